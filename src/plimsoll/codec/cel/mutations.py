"""Mutating admission policies: expressions that make an apply configuration or a JSON patch.

`Object{spec: Object.spec{replicas: 3}}` is an apply configuration, which names the fields to set. A JSON patch is a
list of `JSONPatch{op: "add", path: "/metadata/labels/a", value: "b"}`. Both see what expressions of policies see.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.codec.cel.checker import PATCHES
from plimsoll.codec.cel.environment import Program, compile_expression
from plimsoll.codec.cel.overloads import overload
from plimsoll.codec.cel.policies import (
    Policy,
    compiled_conditions,
    condition_errors,
    policy_variables,
    with_own_variables,
)
from plimsoll.codec.cel.syntax import CompilationError
from plimsoll.codec.cel.types import BOOL, Type
from plimsoll.codec.cel.values import Duration, EvaluationError, Opaque, Timestamp
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject

APPLY, JSON_PATCH = "ApplyConfiguration", "JSONPatch"
FIELDS = {APPLY: "applyConfiguration", JSON_PATCH: "jsonPatch"}


class MutatingPolicy(msgspec.Struct, frozen=True, eq=False):
    policy: Policy  # its conditions and variables
    mutations: tuple[tuple[str, Program], ...]  # patchType and expression


@overload("jsonpatch::escapeKey(string) string")
def _escape_key(key: str) -> str:
    """For a step of a path: `example.com/a` → `example.com~1a`."""
    return key.replace("~", "~0").replace("/", "~1")


def _expressions(spec: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Of each mutation: its type, its path and its expression."""
    for index, mutation in enumerate(spec.get("mutations") or []):
        kind = mutation.get("patchType") or ""
        field = FIELDS.get(kind, "")
        text = (mutation.get(field) or {}).get("expression") or ""
        yield kind, f"spec.mutations[{index}].{field}.expression", text.strip()


def _scope(spec: JsonObject) -> dict[str, Type]:
    return {**policy_variables(spec), PATCHES: BOOL}


def mutation_errors(spec: JsonObject) -> list[FieldError]:
    """Expressions that do not compile, or that make something else than a patch."""
    scope, _, errors = with_own_variables(spec, _scope(spec))
    errors += condition_errors(spec.get("matchConditions") or [], "spec.matchConditions", scope)
    for kind, path, text in _expressions(spec):
        try:
            found = compile_expression(text, scope).type
        except CompilationError as error:
            errors.append(FieldError("FieldValueInvalid", path, f"compilation failed: {error}", text))
            continue
        wanted = "Object" if kind == APPLY else "list(JSONPatch)"
        if found.name != "dyn" and str(found) != wanted and not (kind == JSON_PATCH and str(found) == "list(dyn)"):
            errors.append(FieldError("FieldValueInvalid", path, f"must evaluate to {wanted}", text))
    return errors


def compiled_mutations(spec: JsonObject) -> MutatingPolicy:
    """Raises CompilationError."""
    scope, variables, conditions = compiled_conditions(spec, _scope(spec))
    mutations = [(kind, compile_expression(text, scope)) for kind, _, text in _expressions(spec)]
    return MutatingPolicy(Policy(conditions, (), (), variables), tuple(mutations))


def as_json(value: Any) -> Any:
    """A value of an expression as it is written in an object; raises EvaluationError."""
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (Timestamp, Duration)):
        return str(value)
    if isinstance(value, Opaque) or not isinstance(value, (str, bool, int, float, type(None))):
        raise EvaluationError(f"a value of type {type(value).__name__} cannot be written in an object")
    return value
