"""ValidatingAdmissionPolicies: each binding whose policy a request concerns is evaluated, once per parameter object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.api.admission.evaluation import Evaluator, Judge
from plimsoll.api.admission.hooks import Change, concerns, namespace_of, review_request
from plimsoll.api.admission.programs import Programs
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, decoded, key, prefix
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.status import StatusError
from plimsoll.codec.cel.evaluator import Allowance
from plimsoll.codec.cel.policies import CODES, Evaluation, Judged, Policy, activation, compiled_policy
from plimsoll.codec.cel.values import EvaluationError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.webhooks.matching import RequestAttributes, matched_version, selects

_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_programs = Programs(compiled_policy)


class _Asked(msgspec.Struct, frozen=True, eq=False):
    """A policy that a request concerns by a binding, with all that its expressions see."""

    policy: JsonObject
    binding: JsonObject
    program: Policy | None  # None: it does not compile
    document: JsonObject  # the request
    namespace: JsonObject | None
    params: list[Any]
    problem: str  # with the parameters

    @property
    def place(self) -> str:
        name, binding = self.policy["metadata"]["name"], self.binding["metadata"]["name"]
        return f"ValidatingAdmissionPolicy '{name}' with binding '{binding}'"


class _Outcome(msgspec.Struct):
    found: list[Judged] = []
    annotations: dict[str, str] = {}


async def check_policies(cluster: Cluster, call: ApiCall, change: Change, request: RequestAttributes) -> None:
    """Raises the refusal of the first that denies; adds warnings and annotations."""
    asked = list(_asked(cluster, call, change, request))
    if not asked:
        return
    outcomes = await Evaluator(cluster, call).run(
        lambda allowance, judge: [_judged(each, change, allowance, judge) for each in asked]
    )
    refusals: list[tuple[str, Judged]] = []
    failures: list[JsonObject] = []
    for each, outcome in zip(asked, outcomes, strict=True):
        call.annotations.update(outcome.annotations)
        _act(call, each, outcome.found, refusals, failures)
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


def _asked(cluster: Cluster, call: ApiCall, change: Change, request: RequestAttributes) -> Iterator[_Asked]:
    namespace = namespace_of(cluster, request, change)
    for policy, binding, version in bound_policies(cluster, "validatingadmissionpolic", change, request):
        document = review_request(call, request, change, version, "")
        where = document.get("namespace") or ""
        params, problem = parameters(cluster, policy.get("spec") or {}, binding.get("spec") or {}, where)
        yield _Asked(policy, binding, _programs.of(policy), document, namespace, params, problem)


def bound_policies(
    cluster: Cluster, stem: str, change: Change, request: RequestAttributes
) -> Iterator[tuple[JsonObject, JsonObject, str]]:
    """Policies with their bindings that concern the request, and the version that they match. `stem`: of the names of
    both resources."""
    policies = {each["metadata"]["name"]: each for each in cluster.policies(f"{stem}ies")}
    namespace = namespace_of(cluster, request, change)
    for binding in cluster.policies(f"{stem}ybindings"):
        policy = policies.get((binding.get("spec") or {}).get("policyName") or "")
        version = "" if policy is None else concerned(policy, binding, request, namespace, change)
        if policy is not None and version:
            yield policy, binding, version


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


def _judged(asked: _Asked, change: Change, allowance: Allowance, judge: Judge) -> _Outcome:
    if asked.program is None:
        return _Outcome([Judged("its expressions do not compile", error=True)])
    outcome = _Outcome([Judged(asked.problem, error=True)] if asked.problem else [])
    variables = activation(asked.document, change.new, change.old, judge)
    for params in asked.params:
        evaluation = Evaluation(asked.program, variables, params, asked.namespace, allowance)
        holds, error = evaluation.matches()
        if error:
            outcome.found.append(Judged(error, error=True))
        elif holds:
            outcome.found += evaluation.failures()
            try:
                annotations = evaluation.annotations()
            except EvaluationError as error_found:
                outcome.found.append(Judged(f"audit annotation: {error_found}", error=True))
            else:
                name = asked.policy["metadata"]["name"]
                outcome.annotations.update({f"{name}/{key}": text for key, text in annotations.items()})
    return outcome


def _act(
    call: ApiCall,
    asked: _Asked,
    found: list[Judged],
    refusals: list[tuple[str, Judged]],
    failures: list[JsonObject],
) -> None:
    """What the binding's actions make of failed validations."""
    actions = (asked.binding.get("spec") or {}).get("validationActions") or []
    fails = ((asked.policy.get("spec") or {}).get("failurePolicy") or "Fail") == "Fail"
    for judged in found:
        if judged.error and not fails:
            continue
        if "Deny" in actions or judged.error:
            refusals.append((asked.place, judged))
        if "Warn" in actions:
            call.warnings.append(f"Validation failed for {asked.place}: {judged.message}")
        if "Audit" in actions:
            failures.append(
                {
                    "message": judged.message,
                    "policy": asked.policy["metadata"]["name"],
                    "binding": asked.binding["metadata"]["name"],
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
