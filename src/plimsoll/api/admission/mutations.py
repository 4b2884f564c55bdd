"""MutatingAdmissionPolicies: each binding whose policy a request concerns changes the object, once per parameter.

A mutation sees the object as the mutations before it have left it. An apply configuration is merged as server-side
apply merges, and may not name lists, maps or structs that have one owner; a JSON patch whose `test` does not hold
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.api.admission.evaluation import Evaluator, Judge
from plimsoll.api.admission.hooks import Change, kept_metadata, namespace_of, review_request
from plimsoll.api.admission.policies import bound_policies, parameters
from plimsoll.api.admission.programs import Programs
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.status import StatusError
from plimsoll.codec.cel.evaluator import Allowance
from plimsoll.codec.cel.mutations import APPLY, MutatingPolicy, as_json, compiled_mutations
from plimsoll.codec.cel.policies import CODES, Evaluation, activation
from plimsoll.codec.cel.values import EvaluationError
from plimsoll.codec.patch.json_patch import PatchError, PatchTestError, apply_json_patch
from plimsoll.codec.patch.server_side_apply import ApplyError, apply_configuration
from plimsoll.codec.schema.decode import DecodeError, decode_document
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.webhooks.matching import RequestAttributes

_programs = Programs(compiled_mutations)
_FAILURES = (EvaluationError, PatchError, ApplyError, DecodeError)


class Invocation(msgspec.Struct, frozen=True, eq=False):
    """One policy with one binding and one parameter object, and the object that it left."""

    policy: JsonObject
    binding: JsonObject
    params: Any
    version: str
    left: JsonObject | None = None

    @property
    def is_repeated(self) -> bool:
        return (self.policy.get("spec") or {}).get("reinvocationPolicy") == "IfNeeded"


async def apply_policies(
    cluster: Cluster, call: ApiCall, change: Change, request: RequestAttributes
) -> list[Invocation]:
    """Change `change.new`; raises the refusal of the first policy that fails. Returns what was invoked."""
    done, evaluator = [], Evaluator(cluster, call)
    for invocation in _invocations(cluster, call, change, request):
        await _invoke(cluster, call, change, request, invocation, evaluator)
        done.append(msgspec.structs.replace(invocation, left=change.new))
    return done


async def apply_again(
    cluster: Cluster, call: ApiCall, change: Change, request: RequestAttributes, done: list[Invocation]
) -> None:
    """Those that ask for it (reinvocationPolicy), where something has changed the object after them."""
    evaluator = Evaluator(cluster, call)
    for invocation in done:
        if invocation.is_repeated and invocation.left != change.new:
            await _invoke(cluster, call, change, request, invocation, evaluator)


def _invocations(cluster: Cluster, call: ApiCall, change: Change, request: RequestAttributes) -> Iterator[Invocation]:
    for policy, binding, version in bound_policies(cluster, "mutatingadmissionpolic", change, request):
        found, problem = parameters(cluster, policy.get("spec") or {}, binding.get("spec") or {}, request.namespace)
        if problem:
            _fail(call, request, Invocation(policy, binding, None, version), problem)
        for params in found:
            yield Invocation(policy, binding, params, version)


async def _invoke(
    cluster: Cluster,
    call: ApiCall,
    change: Change,
    request: RequestAttributes,
    invocation: Invocation,
    evaluator: Evaluator,
) -> None:
    program = _programs.of(invocation.policy)
    if program is None:
        _fail(call, request, invocation, "its expressions do not compile")
        return
    namespace = namespace_of(cluster, request, change)
    change.new = await evaluator.run(
        lambda allowance, judge: _mutated(call, change, request, invocation, program, namespace, allowance, judge)
    )


def _mutated(
    call: ApiCall,
    before: Change,
    request: RequestAttributes,
    invocation: Invocation,
    program: MutatingPolicy,
    namespace: JsonObject | None,
    allowance: Allowance,
    judge: Judge,
) -> JsonObject | None:
    """The object after all mutations of a policy; raises the refusal."""
    change = msgspec.structs.replace(before)
    for index, (kind, expression) in enumerate(program.mutations):
        document = review_request(call, request, change, invocation.version, "")
        variables = activation(document, change.new, change.old, judge)
        evaluation = Evaluation(program.policy, variables, invocation.params, namespace, allowance)
        if index == 0:
            holds, problem = evaluation.matches()
            if problem:
                _fail(call, request, invocation, problem)
            if not holds:
                break
        try:
            value = as_json(evaluation.value(expression))
            change.new = _changed(call, change, kind, value)
        except _FAILURES as error:
            if isinstance(error, EvaluationError):
                reason = f"expression '{expression.text}' resulted in error: {error}"
            else:
                reason = f"error applying patch: {error}" if kind == APPLY else f"JSON Patch: {error}"
            _fail(call, request, invocation, reason)
    return change.new


def _changed(call: ApiCall, change: Change, kind: str, value: Any) -> JsonObject | None:
    if change.new is None:
        return None
    resource = call.info.resource
    schema = kind_of(resource)
    if kind == APPLY:
        if not isinstance(value, dict):
            raise EvaluationError("an apply configuration must be an Object")
        patched = apply_configuration(schema, change.new, value)
    else:
        try:
            patched = apply_json_patch(change.new, value)
        except PatchTestError:
            return change.new
    decoded = decode_document(schema, patched).document
    return kept_metadata(resource, change.new, decoded)


def _fail(call: ApiCall, request: RequestAttributes, invocation: Invocation, reason: str) -> None:
    if ((invocation.policy.get("spec") or {}).get("failurePolicy") or "Fail") != "Fail":
        return
    resource = call.info.resource
    where = (
        f"policy '{invocation.policy['metadata']['name']}' with binding '{invocation.binding['metadata']['name']}' "
        f"denied request: {reason}"
    )
    details = {"name": request.name, "group": resource.group, "kind": resource.plural, "causes": [{"message": where}]}
    message = f'{resource.group_resource} "{request.name}" is forbidden: {where}'
    raise StatusError(CODES["Invalid"], "Invalid", message, details)
