"""ValidatingAdmissionPolicies: each binding whose policy a request concerns is evaluated, once per parameter object."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.admission.hooks import Change, concerns, judge_of, namespace_of, review_request
from plimsoll.api.admission.programs import Programs
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, decoded, key, prefix
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.status import StatusError
from plimsoll.codec.cel.policies import CODES, Evaluation, Judged, activation, compiled_policy
from plimsoll.codec.cel.values import EvaluationError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.webhooks.matching import RequestAttributes, matched_version, selects

_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_programs = Programs(compiled_policy)


def check_policies(cluster: Cluster, call: ApiCall, change: Change, request: RequestAttributes) -> None:
    """Raises the refusal of the first that denies; adds warnings and annotations."""
    policies = {each["metadata"]["name"]: each for each in cluster.policies("validatingadmissionpolicies")}
    namespace = namespace_of(cluster, request, change)
    refusals: list[tuple[str, Judged]] = []
    failures: list[JsonObject] = []
    for binding in cluster.policies("validatingadmissionpolicybindings"):
        policy = policies.get((binding.get("spec") or {}).get("policyName") or "")
        if policy is None:
            continue
        version = concerned(policy, binding, request, namespace, change)
        if version:
            document = review_request(call, request, change, version, "")
            _judge(cluster, call, policy, binding, change, document, namespace, refusals, failures)
    if failures:
        call.annotations[_FAILURES] = msgspec.json.encode(failures).decode()
    if refusals:
        resource = call.info.resource
        where, first = refusals[0]
        message = f'{resource.group_resource} "{request.name}" is forbidden: {where} denied request: {first.message}'
        details = {
            "name": request.name,
            "group": resource.group,
            "kind": resource.plural,
            "causes": [{"message": f"{at} denied request: {each.message}"} for at, each in refusals],
        }
        raise StatusError(CODES.get(first.reason, 422), first.reason, message, details)


def concerned(
    policy: JsonObject, binding: JsonObject, request: RequestAttributes, namespace: JsonObject | None, change: Change
) -> str:
    """The version in which the request concerns a policy by this binding; empty if it does not."""
    constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
    excluded = constraints.get("excludeResourceRules") or []
    if excluded and matched_version(excluded, request, equivalent=constraints.get("matchPolicy") != "Exact"):
        return ""
    version = concerns(constraints, constraints.get("resourceRules") or [], request, namespace, change)
    narrower = (binding.get("spec") or {}).get("matchResources")
    if not version or narrower is None:
        return version
    rules = narrower.get("resourceRules") or [_EVERYTHING]
    excluded = narrower.get("excludeResourceRules") or []
    if excluded and matched_version(excluded, request, equivalent=narrower.get("matchPolicy") != "Exact"):
        return ""
    return version if concerns(narrower, rules, request, namespace, change) else ""


_EVERYTHING: JsonObject = {
    "operations": ["*"],
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*", "*/*"],
    "scope": "*",
}


def _judge(
    cluster: Cluster,
    call: ApiCall,
    policy: JsonObject,
    binding: JsonObject,
    change: Change,
    document: JsonObject,
    namespace: JsonObject | None,
    refusals: list[tuple[str, Judged]],
    failures: list[JsonObject],
) -> None:
    spec, bound = policy.get("spec") or {}, binding.get("spec") or {}
    policy_name, binding_name = policy["metadata"]["name"], binding["metadata"]["name"]
    where = f"ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}'"
    actions = bound.get("validationActions") or []
    fails = (spec.get("failurePolicy") or "Fail") == "Fail"
    program = _programs.of(policy)
    found: list[Judged] = []
    if program is None:
        found = [Judged("its expressions do not compile", error=True)]
    else:
        variables = activation(document, change.new, change.old, judge_of(cluster, call.user))
        given, problem = parameters(cluster, spec, bound, document.get("namespace") or "")
        if problem:
            found.append(Judged(problem, error=True))
        for params in given:
            evaluation = Evaluation(program, variables, params, namespace)
            holds, error = evaluation.matches()
            if error:
                found.append(Judged(error, error=True))
            elif holds:
                found += evaluation.failures()
                try:
                    annotations = evaluation.annotations()
                except EvaluationError as error_found:
                    found.append(Judged(f"audit annotation: {error_found}", error=True))
                else:
                    call.annotations.update({f"{policy_name}/{name}": text for name, text in annotations.items()})
    for judged in found:
        if judged.error and not fails:
            continue
        if "Deny" in actions or judged.error:
            refusals.append((where, judged))
        if "Warn" in actions:
            call.warnings.append(f"Validation failed for {where}: {judged.message}")
        if "Audit" in actions:
            failures.append(
                {
                    "message": judged.message,
                    "policy": policy_name,
                    "binding": binding_name,
                    "expressionIndex": judged.index,
                    "validationActions": actions,
                }
            )


def parameters(cluster: Cluster, spec: JsonObject, bound: JsonObject, namespace: str) -> tuple[list[Any], str]:
    """The parameter objects, and what is wrong with them."""
    kind, reference = spec.get("paramKind"), bound.get("paramRef")
    if not kind or not reference:
        return [None], ""
    resource = _resource(cluster, kind)
    if resource is None:
        return (
            [],
            f"failed to find resource referenced by paramKind: '{kind.get('apiVersion')}, Kind={kind.get('kind')}'",
        )
    where = (reference.get("namespace") or namespace) if resource.namespaced else ""
    found: list[JsonObject] = []
    if reference.get("name"):
        record = cluster.store.get(key(resource, where, reference["name"]))
        found = [] if record is None else [decoded(record)]
    else:
        _, records = cluster.store.list(prefix(resource, where))
        found = [
            each
            for each in map(decoded, records)
            if selects(reference.get("selector"), each["metadata"].get("labels") or {})
        ]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        return [], "no params found for policy binding with `Deny` parameterNotFoundAction"
    about = {"apiVersion": resource.group_version, "kind": resource.kind}
    return [{**about, **each} for each in found], ""


def _resource(cluster: Cluster, kind: JsonObject) -> ApiResource | None:
    wanted = (kind.get("apiVersion"), kind.get("kind"))
    return next(
        (each for each in cluster.catalog.resources() if each.storage and (each.group_version, each.kind) == wanted),
        None,
    )
