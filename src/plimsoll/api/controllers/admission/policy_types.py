"""Type checks of ValidatingAdmissionPolicies: their expressions against the schemas of the resources that they match.

What does not fit becomes a warning in `status.typeChecking`; it refuses nothing. Rules with wildcards name no type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key
from plimsoll.api.machinery.catalog import Catalog
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.model.json_object import JsonObject

POLICIES = ResourcePath("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
PREFIX = "admissionregistration.k8s.io/validatingadmissionpolicies/"
MOST_TYPES = 10  # as in Kubernetes: further ones are not checked
_REFERENCE = "#/components/schemas/"


def controller(context: ControllerContext, catalog: Catalog) -> Controller:
    async def reconcile(key: str) -> float | None:
        policy = context.document(key)
        if policy is None or policy["metadata"].get("deletionTimestamp"):
            return None
        generation = policy["metadata"].get("generation")
        status = policy.get("status") or {}
        if status.get("observedGeneration") == generation and "typeChecking" in status:
            return None
        warnings = expression_warnings(policy.get("spec") or {}, matched_kinds(policy, catalog))
        checked: JsonObject = {"expressionWarnings": warnings} if warnings else {}
        await context.set_status(
            POLICIES, policy, {**status, "observedGeneration": generation, "typeChecking": checked}
        )
        return None

    return Controller("policy types", context.store, {PREFIX: own_key}, reconcile)


def matched_kinds(policy: JsonObject, catalog: Catalog) -> list[ApiResource]:
    """The kinds that the rules name without wildcards."""
    constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
    found: list[ApiResource] = []
    for rule in constraints.get("resourceRules") or []:
        for resource in catalog.resources():
            is_named = (
                resource.group in (rule.get("apiGroups") or ())
                and resource.version in (rule.get("apiVersions") or ())
                and resource.plural in (rule.get("resources") or ())
            )
            if is_named and resource.storage and resource not in found:
                found.append(resource)
    return found[:MOST_TYPES]


def expression_warnings(spec: JsonObject, kinds: list[ApiResource]) -> list[JsonObject]:
    from plimsoll.codec.cel.policies import policy_errors  # only where there are policies
    from plimsoll.codec.cel.schemas import type_of

    by_field: dict[str, list[str]] = {}
    for resource in kinds:
        schema, resolve = _schema(resource)
        if schema is None:
            continue
        for finding in policy_errors(spec, type_of(schema, resource.kind, resolve=resolve)):
            reason = finding.detail.removeprefix("compilation failed: ")
            by_field.setdefault(finding.field, []).append(f"{resource.group_version}, Kind={resource.kind}: {reason}")
    return [{"fieldRef": field, "warning": "\n".join(reasons)} for field, reasons in by_field.items()]


def _schema(resource: ApiResource) -> tuple[JsonObject | None, Callable[[JsonObject], JsonObject]]:
    """The schema of a kind, and how its references are followed."""
    from plimsoll.codec.openapi.custom import custom_documents
    from plimsoll.codec.openapi.v3 import openapi_document

    path = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    if resource.custom is not None:
        body: bytes | None = custom_documents([resource.custom.kind]).get(path)
    else:
        body = openapi_document(path)
    schemas: JsonObject = msgspec.json.decode(body)["components"]["schemas"] if body else {}

    def resolve(schema: JsonObject) -> JsonObject:
        inner = schema.get("allOf")
        reference: Any = schema.get("$ref") or (inner[0].get("$ref") if inner and len(inner) == 1 else None)
        if not reference:
            return schema
        found: JsonObject = schemas.get(str(reference).removeprefix(_REFERENCE)) or {}
        return found if not found.get("oneOf") else {}  # quantities and the like may be several types

    wanted = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    schema = next(
        (each for each in schemas.values() if wanted in (each.get("x-kubernetes-group-version-kind") or ())), None
    )
    return schema, resolve
