"""Webhooks and policies around a write.

    (defaults, admission of pods) → mutating policies, mutating webhooks → (validation)
    → validating policies, validating webhooks → (quota, write)

Without any configuration a write costs one look into the store. Configurations themselves are exempt, so that a webhook
that refuses everything can be removed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.api.admission.webhook_client import WebhookError, ask, webhook_address
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.status import StatusError, forbidden, internal_error
from plimsoll.codec.patch.json_patch import PatchError, apply_json_patch
from plimsoll.codec.schema.decode import DecodeError, decode_document
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.webhooks.matching import (
    RequestAttributes,
    is_exempt,
    matched_version,
    selects,
    selects_objects,
)

if TYPE_CHECKING:
    from plimsoll.api.admission.evaluation import Evaluator

PREFIX = "admissionregistration.k8s.io/"
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp")


class Change(msgspec.Struct):
    """What a request does to an object: from `old` to `new`, in the form that is served."""

    operation: str
    new: JsonObject | None
    old: JsonObject | None
    dry_run: bool = False
    options: JsonObject | None = None


_MUTATING, _VALIDATING = f"{PREFIX}mutatingwebhookconfigurations/", f"{PREFIX}validatingwebhookconfigurations/"
_BINDINGS = f"{PREFIX}validatingadmissionpolicybindings/"
_MUTATING_BINDINGS = f"{PREFIX}mutatingadmissionpolicybindings/"
_CONFIGURATIONS = frozenset({_MUTATING, _VALIDATING, _BINDINGS, _MUTATING_BINDINGS})


def has_hooks(cluster: Cluster, resource: ApiResource) -> bool:
    """Whether anything but the server itself judges writes."""
    return cluster.store.has_any(_CONFIGURATIONS) and not is_exempt(resource.group)


async def check_connect(cluster: Cluster, call: ApiCall) -> None:
    """exec, attach, port-forward and proxy: the operation CONNECT, with the options as the object; a log is read."""
    info = call.info
    found = info.resource.subresource(info.subresource)
    if found is None or info.subresource == "log" or not has_hooks(cluster, info.resource):
        return
    options: JsonObject = {"kind": found.kind, "apiVersion": info.resource.group_version}
    for name, values in info.query.items():
        options[name] = values if name == "command" else _OPTION_VALUES.get(values[0], values[0])
    await check_hooks(cluster, call, Change("CONNECT", options, None))


_OPTION_VALUES: dict[str, Any] = {"true": True, "false": False, "1": True, "0": False}


def attributes(cluster: Cluster, call: ApiCall, change: Change) -> RequestAttributes:
    info, resource = call.info, call.info.resource
    versions: tuple[str, ...] = ()
    if resource.custom is not None:
        versions = tuple(
            each.version
            for each in cluster.catalog.custom
            if (each.group, each.plural) == (resource.group, resource.plural)
        )
    name = info.name or (((change.new or change.old or {}).get("metadata") or {}).get("name") or "")
    is_namespace = resource.storage == "namespaces"
    namespace = name if is_namespace else info.namespace
    return RequestAttributes(
        change.operation,
        resource.group,
        resource.version,
        resource.plural,
        info.subresource,
        namespace,
        name,
        versions,
        is_namespace,
    )


def namespace_of(cluster: Cluster, request: RequestAttributes, change: Change) -> JsonObject | None:
    if request.is_namespace and change.operation != "DELETE":
        return change.new
    return cluster.document("namespaces", "", request.namespace) if request.namespace else None


def concerns(
    holder: JsonObject,
    rules: list[JsonObject],
    request: RequestAttributes,
    namespace: JsonObject | None,
    change: Change,
) -> str:
    """The version in which the request concerns a webhook or policy; empty if it does not."""
    equivalent = (holder.get("matchPolicy") or "Equivalent") == "Equivalent"
    version = matched_version(rules, request, equivalent=equivalent)
    if not version:
        return ""
    if holder.get("namespaceSelector") and (request.namespace or request.is_namespace):
        labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        if not selects(holder["namespaceSelector"], labels):
            return ""
    return version if selects_objects(holder.get("objectSelector"), change.new, change.old) else ""


# --- the review ---


def review_request(call: ApiCall, request: RequestAttributes, change: Change, version: str, uid: str) -> JsonObject:
    resource = call.info.resource
    kind = resource.kind
    if call.info.subresource and (found := resource.subresource(call.info.subresource)) is not None:
        kind = found.kind
    of_kind = {"group": resource.group, "version": resource.version, "kind": kind}
    of_resource = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    found_request: JsonObject = {
        "uid": uid,
        "kind": {**of_kind, "version": version},
        "resource": {**of_resource, "version": version},
        "requestKind": of_kind,
        "requestResource": of_resource,
        "name": request.name,
        "operation": change.operation,
        "userInfo": call.user.info(),
        "object": _in_version(resource, change.new, version),
        "oldObject": _in_version(resource, change.old, version),
        "dryRun": change.dry_run,
        "options": change.options,
    }
    if call.info.subresource:
        found_request |= {"subResource": call.info.subresource, "requestSubResource": call.info.subresource}
    if request.namespace:
        found_request["namespace"] = request.namespace
    return found_request


def _in_version(resource: ApiResource, document: JsonObject | None, version: str) -> JsonObject | None:
    if document is None or version == resource.version:
        return document
    return {**document, "apiVersion": f"{resource.group}/{version}"}


# --- webhooks ---


class _Call(msgspec.Struct):
    webhook: JsonObject
    version: str


async def _wanted(
    cluster: Cluster, call: ApiCall, storage: str, change: Change, request: RequestAttributes, uid: str
) -> list[_Call]:
    namespace = namespace_of(cluster, request, change)
    found, evaluator = [], None
    for configuration in cluster.policies(storage):
        for webhook in configuration.get("webhooks") or []:
            version = concerns(webhook, webhook.get("rules") or [], request, namespace, change)
            if not version:
                continue
            document = review_request(call, request, change, version, uid)
            if webhook.get("matchConditions"):
                if evaluator is None:
                    from plimsoll.api.admission.evaluation import Evaluator  # few webhooks have conditions

                    evaluator = Evaluator(cluster, call)
                if not await _holds(evaluator, call, webhook, document, change):
                    continue
            found.append(_Call(webhook, version))
    return found


async def _holds(
    evaluator: Evaluator, call: ApiCall, webhook: JsonObject, document: JsonObject, change: Change
) -> bool:
    """Whether all match conditions hold; one with an error follows the failure policy."""
    from plimsoll.codec.cel.policies import activation, condition_programs, failed_conditions

    programs = condition_programs(tuple((each["name"], each["expression"]) for each in webhook["matchConditions"]))
    holds, problem = await evaluator.run(
        lambda allowance, judge: failed_conditions(
            programs, activation(document, change.new, change.old, judge), allowance
        )
    )
    if problem and (webhook.get("failurePolicy") or "Fail") == "Fail":
        raise forbidden(call.info.resource, document["name"], problem)
    return holds


class _Status(msgspec.Struct, frozen=True):
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: dict[str, Any] | None = None


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    """AdmissionResponse; null is the zero value, as in Go."""

    uid: str | None = None
    allowed: bool | None = None
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct, frozen=True):
    response: _Response | None = None


async def _asked(cluster: Cluster, call: ApiCall, wanted: _Call, document: JsonObject) -> _Response | None:
    """The response of one webhook; None where it failed and that is to be ignored. Raises the refusal."""
    webhook, uid = wanted.webhook, document["uid"]
    name = webhook.get("name") or ""
    timeout_s = webhook.get("timeoutSeconds") or 10
    versions = webhook.get("admissionReviewVersions") or ["v1"]
    api_version = f"admission.k8s.io/{next((each for each in versions if each in ('v1', 'v1beta1')), 'v1')}"
    review = msgspec.json.encode({"kind": "AdmissionReview", "apiVersion": api_version, "request": document})
    client = webhook.get("clientConfig") or {}
    try:
        address = webhook_address(cluster, client, timeout_s)
        answer = await ask(address, client.get("caBundle") or "", review, timeout_s)
        response = msgspec.convert(answer, _Review).response
        if response is None:
            raise WebhookError("failed to call webhook: webhook response was absent")
        if response.uid != uid and api_version.endswith("/v1"):
            raise WebhookError(f'failed to call webhook: expected response.uid="{uid}", got "{response.uid or ""}"')
    except (WebhookError, msgspec.ValidationError) as error:
        if webhook.get("failurePolicy") == "Ignore":
            call.annotations[f"failed-open.{name}"] = str(error)[:500]
            return None
        raise internal_error(f'failed calling webhook "{name}": {error}') from None
    call.warnings += response.warnings or []
    for key, value in (response.audit_annotations or {}).items():
        call.annotations[f"{name}/{key}"] = value
    if not response.allowed:
        raise _denial(name, response.status or _Status())
    return response


def _denial(name: str, status: _Status) -> StatusError:
    denied = f'admission webhook "{name}" denied the request'
    said = status.message or status.reason
    message = f"{denied}: {said}" if said else f"{denied} without explanation"
    code = status.code or 0
    return StatusError(code if 400 <= code < 600 else 400, status.reason or "", message, status.details or {})


async def mutated(cluster: Cluster, call: ApiCall, change: Change) -> JsonObject | None:
    """The new object after every mutating policy and webhook that it concerns; None if none changed it."""
    has_policies = bool(cluster.store.count(_MUTATING_BINDINGS))
    if not has_policies and not cluster.store.count(_MUTATING):
        return None
    request = attributes(cluster, call, change)
    before = change.new
    invoked = []
    if has_policies:
        from plimsoll.api.admission.mutations import apply_again, apply_policies  # most clusters have none

        invoked = await apply_policies(cluster, call, change, request)
    seen: list[tuple[_Call, JsonObject | None]] = []  # with the object after the call
    for wanted in await _wanted(cluster, call, "mutatingwebhookconfigurations", change, request, "uid"):
        await _applied(cluster, call, wanted, request, change)
        seen.append((wanted, change.new))
    if invoked:
        await apply_again(cluster, call, change, request, invoked)
    for wanted, after in seen:
        if wanted.webhook.get("reinvocationPolicy") == "IfNeeded" and after != change.new:
            await _applied(cluster, call, wanted, request, change)
    return None if change.new is before or change.new == before else change.new


async def _applied(cluster: Cluster, call: ApiCall, wanted: _Call, request: RequestAttributes, change: Change) -> None:
    """Call one mutating webhook and put its patch into `change.new`."""
    document = review_request(call, request, change, wanted.version, cluster.new_uid())
    response = await _asked(cluster, call, wanted, document)
    if response is None or not response.patch or change.new is None:
        return
    name, resource = wanted.webhook.get("name") or "", call.info.resource
    if response.patch_type != "JSONPatch":
        raise internal_error(f'failed calling webhook "{name}": unsupported patch type "{response.patch_type or ""}"')
    try:
        patch = msgspec.json.decode(base64.b64decode(response.patch, validate=True))
        patched = apply_json_patch(document["object"], patch)
        decoded = decode_document(kind_of(resource), patched).document
    except (binascii.Error, msgspec.DecodeError, PatchError, DecodeError, TypeError, ValueError) as error:
        raise internal_error(f'failed calling webhook "{name}": unable to apply its patch: {error}') from None
    change.new = kept_metadata(resource, change.new, decoded)


def kept_metadata(resource: ApiResource, before: JsonObject, changed: JsonObject) -> JsonObject:
    """What a mutation made of an object, with the kind and the metadata that it cannot change."""
    metadata = {**(changed.get("metadata") or {})}
    for field in _KEPT:
        if field in before["metadata"]:
            metadata[field] = before["metadata"][field]
    return {**changed, "kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}


async def check_hooks(cluster: Cluster, call: ApiCall, change: Change) -> None:
    """Policies, then every validating webhook at the same time. Raises the first refusal."""
    request = attributes(cluster, call, change)
    if cluster.store.count(_BINDINGS):
        from plimsoll.api.admission.policies import check_policies

        await check_policies(cluster, call, change, request)
    if not cluster.store.count(_VALIDATING):
        return
    wanted = await _wanted(cluster, call, "validatingwebhookconfigurations", change, request, "uid")
    reviews = [review_request(call, request, change, each.version, cluster.new_uid()) for each in wanted]
    answers = await asyncio.gather(
        *(_asked(cluster, call, each, review) for each, review in zip(wanted, reviews, strict=True)),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
