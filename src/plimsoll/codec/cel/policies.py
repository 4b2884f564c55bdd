"""Expressions of admission: match conditions of webhooks, and validating admission policies.

They see `object`, `oldObject`, `request`, `authorizer`, and in policies `params`, `namespaceObject` and `variables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from plimsoll.codec.cel.authorizer import Answer, Attributes, authorizer
from plimsoll.codec.cel.environment import PER_CALL_LIMIT, Program, compile_expression
from plimsoll.codec.cel.evaluator import Allowance, Frame, Lazy
from plimsoll.codec.cel.syntax import CompilationError
from plimsoll.codec.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from plimsoll.codec.cel.values import CostError, EvaluationError
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject

BUDGET = 10_000_000  # of all expressions of one policy on one request
CONDITIONS_BUDGET = 2_500_000  # of all match conditions of one webhook or policy on one request
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


def _struct(shown: str, fields: dict[str, Type]) -> Type:
    return Type("object", fields=fields.get, shown=shown)


_KIND = _struct("GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
_RESOURCE = _struct("GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
_USER = _struct(
    "UserInfo",
    {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
)
REQUEST = _struct(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
_AUTHORIZER = Type("authorizer")
_OF_WEBHOOKS: dict[str, Type] = {
    "object": DYN,
    "oldObject": DYN,
    "request": REQUEST,
    "authorizer": _AUTHORIZER,
}


class Judged(msgspec.Struct, frozen=True):
    """One validation that does not hold; `error` where it could not be evaluated."""

    message: str
    reason: str = "Invalid"
    error: bool = False
    index: int = 0


Programs = tuple[tuple[str, Program], ...]  # with their names


class Policy(msgspec.Struct, frozen=True, eq=False):
    conditions: Programs
    validations: tuple[tuple[JsonObject, Program, Program | None], ...]
    annotations: Programs
    variables: Programs


@lru_cache(256)
def condition_programs(conditions: tuple[tuple[str, str], ...]) -> tuple[tuple[str, Program], ...]:
    """Of a webhook, by names and texts; raises CompilationError."""
    return tuple((name, compile_expression(text, _OF_WEBHOOKS)) for name, text in conditions)


def condition_errors(
    conditions: list[JsonObject], path: str, variables: dict[str, Type] | None = None
) -> Iterator[FieldError]:
    for index, condition in enumerate(conditions):
        yield from _errors(
            condition.get("expression"), variables or _OF_WEBHOOKS, f"{path}[{index}].expression", "bool"
        )


def _errors(text: Any, variables: dict[str, Type], path: str, wanted: str) -> Iterator[FieldError]:
    if not isinstance(text, str) or not text.strip():
        return
    try:
        program = compile_expression(text, variables)
    except CompilationError as error:
        yield FieldError("FieldValueInvalid", path, f"compilation failed: {error}", text)
        return
    name = program.type.name
    if name not in (wanted, "dyn") and not (wanted == "string?" and name in ("string", "null")):
        yield FieldError("FieldValueInvalid", path, f"must evaluate to {wanted.removesuffix('?')}", text)


def policy_variables(spec: JsonObject, object_type: Type = DYN, params: Type = DYN) -> dict[str, Type]:
    """Types of what the expressions of a policy see, beside its own variables."""
    found = {**_OF_WEBHOOKS, "object": object_type, "oldObject": object_type, "namespaceObject": DYN}
    if spec.get("paramKind"):
        found["params"] = params
    return found


def with_own_variables(
    spec: JsonObject, base: dict[str, Type]
) -> tuple[dict[str, Type], list[tuple[str, Program]], list[FieldError]]:
    """The variables that a policy declares, each of which sees those before it."""
    own: dict[str, Type] = {}
    programs: list[tuple[str, Program]] = []
    errors: list[FieldError] = []
    scope = {**base, "variables": _struct("kubernetes.variables", own)}
    for index, variable in enumerate(spec.get("variables") or []):
        path = f"spec.variables[{index}].expression"
        try:
            program = compile_expression(variable.get("expression") or "", scope)
        except CompilationError as error:
            errors.append(
                FieldError("FieldValueInvalid", path, f"compilation failed: {error}", variable.get("expression"))
            )
            own[variable.get("name") or ""] = DYN
            continue
        own[variable["name"]] = program.type
        programs.append((variable["name"], program))
    return scope, programs, errors


def policy_errors(spec: JsonObject, object_type: Type = DYN) -> list[FieldError]:
    """Expressions that do not compile, with this type for the object."""
    scope, _, errors = with_own_variables(spec, policy_variables(spec, object_type))
    errors += condition_errors(spec.get("matchConditions") or [], "spec.matchConditions", scope)
    for index, validation in enumerate(spec.get("validations") or []):
        path = f"spec.validations[{index}]"
        errors += _errors(validation.get("expression"), scope, f"{path}.expression", "bool")
        errors += _errors(validation.get("messageExpression"), scope, f"{path}.messageExpression", "string")
    for index, annotation in enumerate(spec.get("auditAnnotations") or []):
        path = f"spec.auditAnnotations[{index}].valueExpression"
        errors += _errors(annotation.get("valueExpression"), scope, path, "string?")
    return errors


def compiled_conditions(spec: JsonObject, scope: dict[str, Type]) -> tuple[dict[str, Type], Programs, Programs]:
    """The scope with the policy's own variables, these variables, and its match conditions. Raises CompilationError."""
    scope, variables, errors = with_own_variables(spec, scope)
    if errors:
        raise CompilationError([])
    conditions = [
        (each["name"], compile_expression(each["expression"], scope)) for each in spec.get("matchConditions") or []
    ]
    return scope, tuple(variables), tuple(conditions)


def compiled_policy(spec: JsonObject) -> Policy:
    """Raises CompilationError."""
    scope, programs, conditions = compiled_conditions(spec, policy_variables(spec))
    validations = [
        (
            each,
            compile_expression(each["expression"], scope),
            compile_expression(each["messageExpression"], scope) if each.get("messageExpression") else None,
        )
        for each in spec.get("validations") or []
    ]
    annotations = [
        (each["key"], compile_expression(each["valueExpression"], scope)) for each in spec.get("auditAnnotations") or []
    ]
    return Policy(conditions, tuple(validations), tuple(annotations), programs)


# --- evaluation ---


def activation(
    request: JsonObject,
    new: JsonObject | None,
    old: JsonObject | None,
    judge: Callable[[Attributes], Answer],
) -> dict[str, Any]:
    resource = request["resource"]
    attributes = Attributes(
        group=resource["group"],
        resource=resource["resource"],
        subresource=request.get("subResource") or "",
        namespace=request.get("namespace") or "",
        name=request.get("name") or "",
    )
    return {
        "object": new,
        "oldObject": old,
        "request": request,
        "authorizer": authorizer(judge, attributes),
    }


def failed_conditions(
    programs: Programs,
    variables: dict[str, Any],
    allowance: Allowance | None = None,
    budget: int = CONDITIONS_BUDGET,
) -> tuple[bool, str]:
    """Whether all match conditions hold; and the first error, if one has an error and none is false."""
    problem, allowance = "", allowance or Allowance()
    end = allowance.spent + budget
    for _, program in programs:
        left = end - allowance.spent
        try:
            value, _ = program.evaluate(variables, min(PER_CALL_LIMIT, left), allowance)
        except EvaluationError as error:
            if isinstance(error, CostError) and left < PER_CALL_LIMIT:
                return False, problem or _OUT_OF_BUDGET
            problem = problem or f"expression '{program.text}' resulted in error: {error}"
            continue
        if value is not True:
            return False, ""
    return not problem, problem


class Evaluation:
    """One policy on one request with one parameter object."""

    def __init__(
        self,
        policy: Policy,
        variables: dict[str, Any],
        params: Any,
        namespace: JsonObject | None,
        allowance: Allowance | None = None,
    ) -> None:
        self._policy = policy
        self._allowance = allowance or Allowance()
        self._end = self._allowance.spent + BUDGET
        own: dict[str, Any] = {}
        self._variables = {**variables, "params": params, "namespaceObject": namespace, "variables": own}
        for name, program in policy.variables:
            own[name] = Lazy(self._lazy(program))

    def _lazy(self, program: Program) -> Callable[[Frame], Any]:
        return lambda frame: program.within(frame, self._variables)

    def value(self, program: Program) -> Any:
        """Raises EvaluationError."""
        left = self._end - self._allowance.spent
        value, _ = program.evaluate(self._variables, min(PER_CALL_LIMIT, left), self._allowance)
        return value

    def matches(self) -> tuple[bool, str]:
        return failed_conditions(self._policy.conditions, self._variables, self._allowance)

    def failures(self) -> list[Judged]:
        found = []
        for index, (validation, program, message_program) in enumerate(self._policy.validations):
            text = program.text.strip()
            try:
                if self.value(program) is True:
                    continue
            except EvaluationError as error:
                found.append(Judged(f"expression '{text}' resulted in error: {error}", error=True, index=index))
                continue
            message = validation.get("message") or f"failed expression: {text}"
            if message_program is not None:
                message = self._message(message_program) or message
            found.append(Judged(message.strip(), validation.get("reason") or "Invalid", index=index))
        return found

    def _message(self, program: Program) -> str:
        try:
            value = self.value(program)
        except EvaluationError:
            return ""
        text = value.strip() if isinstance(value, str) else ""
        return text if "\n" not in text and len(text) <= 5120 else ""

    def annotations(self) -> dict[str, str]:
        """Raises EvaluationError."""
        found = {}
        for key, program in self._policy.annotations:
            value = self.value(program)
            if isinstance(value, str) and value.strip():
                found[key] = value[:10_240]
        return found
