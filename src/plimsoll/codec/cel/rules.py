"""Rules of custom kinds (`x-kubernetes-validations`): compiled with a definition, evaluated on every write.

A rule that reads `oldSelf` is a transition rule: it is evaluated only on updates, where the old value can be found.
Rules on a value that an update does not change are not evaluated again, unless they are transition rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from plimsoll.codec.cel.costs import added, multiplied
from plimsoll.codec.cel.environment import PER_CALL_LIMIT, Program, compile_expression
from plimsoll.codec.cel.evaluator import Allowance
from plimsoll.codec.cel.schemas import (
    converted,
    most_members,
    most_occurrences,
    type_of,
)
from plimsoll.codec.cel.syntax import CompilationError
from plimsoll.codec.cel.types import Type
from plimsoll.codec.cel.values import NONE, CostError, EvaluationError, Optional
from plimsoll.errors import ErrorType, FieldError, quoted
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, RULES
from plimsoll.rules.model.json_object import JsonObject

BUDGET = 3_000_000  # of all rules of one write (Kubernetes: 10 million), see docs/api-server.md
STATIC_LIMIT = 10_000_000  # of one rule, by its schema
STATIC_TOTAL = 100_000_000  # of all rules of a schema
MOST_LISTED = 4  # of the rules that exceed the total together
REASONS = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


class Rule(msgspec.Struct, frozen=True, eq=False):
    program: Program
    message: str
    message_program: Program | None
    reason: ErrorType
    field_path: str
    is_transition: bool
    optional_old: bool


class Place(msgspec.Struct, frozen=True, eq=False):
    """The rules of one schema, and the places below it that have some."""

    schema: JsonObject
    rules: tuple[Rule, ...] = ()
    properties: dict[str, Place] = {}
    members: Place | None = None  # of a list or map


def compiled_rules(schema: JsonObject) -> Place | None:
    """Of a valid schema; None without any rule."""
    return _compiled(schema, is_resource=True)


def _compiled(schema: JsonObject, *, is_resource: bool) -> Place | None:
    rules: list[Rule] = []
    if schema.get(RULES):
        type_ = type_of(schema, is_resource=is_resource)
        for rule in schema[RULES]:
            try:
                rules.append(_rule(rule, type_))
            except CompilationError:  # of a definition that an older server stored
                continue
    properties = {}
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, dict) and (place := _compiled(inner, is_resource=bool(inner.get(EMBEDDED)))) is not None:
            properties[name] = place
    inner = schema.get("items") if schema.get("type") == "array" else schema.get("additionalProperties")
    members = _compiled(inner, is_resource=bool(inner.get(EMBEDDED))) if isinstance(inner, dict) else None
    if not rules and not properties and members is None:
        return None
    return Place(schema, tuple(rules), properties, members)


def _variables(rule: JsonObject, type_: Type) -> dict[str, Type]:
    return {"self": type_, "oldSelf": Type("optional", (type_,)) if rule.get("optionalOldSelf") else type_}


def _rule(rule: JsonObject, type_: Type) -> Rule:
    variables, optional_old = _variables(rule, type_), bool(rule.get("optionalOldSelf"))
    program = compile_expression(rule["rule"], variables, escaped=True)
    expression = rule.get("messageExpression")
    message_program = compile_expression(expression, variables, escaped=True) if expression else None
    text = rule.get("message") or f"failed rule: {rule['rule'].strip()}"
    reason = cast(ErrorType, rule.get("reason") or "FieldValueInvalid")
    is_transition = "oldSelf" in program.names
    return Rule(program, text, message_program, reason, rule.get("fieldPath") or "", is_transition, optional_old)


# --- evaluation ---


class _Run:
    def __init__(self, budget: int, per_call: int) -> None:
        self.left = budget
        self.per_call = per_call
        self.errors: list[FieldError] = []

    def value(self, program: Program, variables: dict[str, Any]) -> Any:
        """Whatever becomes of it, it counts; raises EvaluationError."""
        allowance = Allowance()
        try:
            return program.evaluate(variables, min(self.per_call, max(self.left, 0)), allowance)[0]
        finally:
            self.left -= allowance.spent


def rule_errors(
    place: Place, new: JsonObject, old: JsonObject | None, budget: int = BUDGET, per_call: int = PER_CALL_LIMIT
) -> list[FieldError]:
    """Of a whole object whose schema it fits; `old` on updates."""
    run = _Run(budget, per_call)
    before = None if old is None else converted(place.schema, old)
    _evaluate(place, converted(place.schema, new), before, "", run)
    return run.errors


def _evaluate(place: Place, value: Any, old: Any, path: str, run: _Run) -> None:
    """`old` is None where there is no old value, or none that belongs to this one."""
    if value is None or run.left < 0:
        return
    is_same = old is not None and old == value
    for rule in place.rules:
        if is_same and not rule.is_transition:
            continue
        if rule.is_transition and old is None and not rule.optional_old:
            continue
        _judge(rule, place.schema, value, old, path, run)
        if run.left < 0:
            return
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, inner in place.properties.items():
            if name in value:
                _evaluate(inner, value[name], before.get(name), f"{path}.{name}" if path else name, run)
        if place.members is not None:
            for name, each in value.items():
                _evaluate(place.members, each, before.get(name), f"{path}[{name}]", run)
    elif isinstance(value, list) and place.members is not None:
        found = _old_members(place.schema, old)
        for index, each in enumerate(value):
            _evaluate(place.members, each, found(each), f"{path}[{index}]", run)


def _old_members(schema: JsonObject, old: Any) -> Any:
    """Which old member of a list belongs to a new one: only in lists that are maps."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return lambda member: None

    def identity(member: Any) -> Any:
        return tuple(str(member.get(key)) for key in keys) if isinstance(member, dict) else None

    known = {identity(each): each for each in old}
    return lambda member: known.get(identity(member))


def _judge(rule: Rule, schema: JsonObject, value: Any, old: Any, path: str, run: _Run) -> None:
    kind = schema.get("type") or "object"

    def refuse(detail: str, type_: ErrorType = "FieldValueInvalid", at: str = path) -> None:
        shown = kind if type_ in ("FieldValueInvalid", "FieldValueDuplicate") else None
        run.errors.append(FieldError(type_, at or "<nil>", detail, shown))

    variables = {"self": value}
    if rule.optional_old:
        variables["oldSelf"] = NONE if old is None else Optional(True, old)
    elif old is not None:
        variables["oldSelf"] = old
    before = run.left
    try:
        passed = run.value(rule.program, variables)
    except CostError:
        if before < run.per_call:
            refuse("validation failed due to running out of cost budget, no further validation rules will be run")
        else:
            refuse(f"call cost exceeds limit for rule: {rule.program.text.strip()}")
        run.left = -1
        return
    except EvaluationError as error:
        refuse(f"{error} evaluating rule: {rule.message}")
        return
    if passed is not True:
        at = f"{path}{rule.field_path}".removeprefix(".") if rule.field_path else path
        refuse(_message(rule, variables, run), rule.reason, at)


def _message(rule: Rule, variables: dict[str, Any], run: _Run) -> str:
    """By messageExpression; its errors and unusable results give way to the message."""
    if rule.message_program is None:
        return rule.message
    try:
        found = run.value(rule.message_program, variables)
    except EvaluationError:
        return rule.message
    text = found.strip() if isinstance(found, str) else ""
    return text if text and "\n" not in text and len(text) <= 5120 else rule.message


# --- definitions ---


class _Total:
    def __init__(self) -> None:
        self.cost = 0
        self.largest: list[tuple[int, str]] = []  # with the paths

    def count(self, cost: int, path: str) -> None:
        self.cost = added(self.cost, cost)
        if cost >= STATIC_TOTAL // 100:
            self.largest.append((cost, path))


def definition_rule_errors(schema: JsonObject, path: str) -> list[FieldError]:
    """Of a structural schema at this path of a definition."""
    total = _Total()
    errors = list(_schema_errors(schema, path, 1, total, uncorrelatable="", is_resource=True))
    if total.cost > STATIC_TOTAL:
        for _, at in sorted(total.largest, key=lambda each: -each[0])[:MOST_LISTED]:
            reason = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            errors.append(FieldError("FieldValueForbidden", at, reason))
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(FieldError("FieldValueForbidden", path, _exceeds(name, total.cost, STATIC_TOTAL)))
    return errors


def _exceeds(name: str, cost: int, limit: int) -> str:
    ratio = cost / limit
    factor = "more than 100x" if ratio > 100 else f"{ratio:f}x" if ratio < 1.5 else f"{ratio:.1f}x"
    return f"{name} exceeds budget by factor of {factor} {_ADVICE}"


def _schema_errors(
    schema: JsonObject, path: str, times: int | None, total: _Total, *, uncorrelatable: str, is_resource: bool
) -> Iterator[FieldError]:
    """`times`: how often the schema occurs in an object; None where no schema above it says so."""
    if schema.get(RULES):
        type_ = type_of(schema, is_resource=is_resource)
        for index, rule in enumerate(schema[RULES]):
            at = f"{path}.{RULES}[{index}]"
            yield from _definition_rule_errors(rule, schema, type_, at, times, total, uncorrelatable)
    atomic = path if schema.get("x-kubernetes-map-type") == "atomic" else ""
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, dict):
            yield from _schema_errors(
                inner,
                f"{path}.properties[{name}]",
                times,
                total,
                uncorrelatable=uncorrelatable or atomic,
                is_resource=bool(inner.get(EMBEDDED)),
            )
    for key in ("items", "additionalProperties"):
        inner = schema.get(key)
        if isinstance(inner, dict):
            lost = uncorrelatable
            if key == "items" and schema.get("x-kubernetes-list-type") != "map":
                lost = lost or path
            members = most_members(schema)
            times_inner = None if times is None or members is None else multiplied(times, members)
            at = f"{path}.{key}"
            yield from _schema_errors(
                inner, at, times_inner, total, uncorrelatable=lost, is_resource=bool(inner.get(EMBEDDED))
            )


def _shown(rule: JsonObject) -> str:
    """As Go prints the structure; for pointers, which have an address there, only the rule is shown."""
    fields = [f"{title}:{quoted(rule.get(name) or '')}" for title, name in _TITLES]
    reason, optional = "Reason:(*apiextensions.FieldValueErrorReason)(nil)", "OptionalOldSelf:(*bool)(nil)"
    return f"apiextensions.ValidationRule{{{', '.join([*fields[:3], reason, fields[3], optional])}}}"


_TITLES = (
    ("Rule", "rule"),
    ("Message", "message"),
    ("MessageExpression", "messageExpression"),
    ("FieldPath", "fieldPath"),
)


def _definition_rule_errors(
    rule: JsonObject, schema: JsonObject, type_: Type, path: str, times: int | None, total: _Total, uncorrelatable: str
) -> Iterator[FieldError]:
    """What compiling shows; the rest of a rule is judged with its schema (`openapi_schema`)."""
    variables, is_transition = _variables(rule, type_), False
    try:
        program = compile_expression(rule["rule"], variables, escaped=True)
        if program.type.name != "bool":
            yield _invalid(rule, f"{path}.rule", "cel expression must evaluate to a bool")
        else:
            is_transition = "oldSelf" in program.names
            cost = multiplied(program.cost, most_occurrences(schema) if times is None else times)
            yield from _cost_errors("estimated rule cost", cost, f"{path}.rule", total)
            if rule.get("messageExpression"):
                yield from _message_errors(rule, variables, f"{path}.messageExpression", total)
    except CompilationError as error:
        yield _invalid(rule, f"{path}.rule", f"compilation failed: {error}")
    if is_transition and uncorrelatable:
        reason = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
        yield FieldError("FieldValueInvalid", f"{path}.rule", reason, rule["rule"])
    if rule.get("optionalOldSelf") is not None and not is_transition:
        reason = "may not be set if oldSelf is not used in rule"
        yield FieldError("FieldValueInvalid", f"{path}.optionalOldSelf", reason, rule["optionalOldSelf"])


def _message_errors(rule: JsonObject, variables: dict[str, Type], path: str, total: _Total) -> Iterator[FieldError]:
    try:
        program = compile_expression(rule["messageExpression"], variables, escaped=True)
    except CompilationError as error:
        yield _invalid(rule, path, f"messageExpression compilation failed: {error}")
        return
    if program.type.name != "string":
        yield _invalid(rule, path, "messageExpression must evaluate to a string")
    else:
        yield from _cost_errors("estimated messageExpression cost", program.cost, path, total)


def _cost_errors(name: str, cost: int, path: str, total: _Total) -> Iterator[FieldError]:
    total.count(cost, path)
    if cost > STATIC_LIMIT:
        yield FieldError("FieldValueForbidden", path, _exceeds(name, cost, STATIC_LIMIT))


def _invalid(rule: JsonObject, path: str, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"{_shown(rule)}: {detail}")
