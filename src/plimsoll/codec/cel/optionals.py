"""Functions on optional values."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.cel.overloads import list_cost, overload
from plimsoll.codec.cel.values import NONE, EvaluationError, Optional


@overload("optional::none() optional<dyn>")
def _none() -> Optional:
    return NONE


@overload("optional::of(A) optional<A>")
def _of(value: Any) -> Optional:
    return Optional(True, value)


@overload("optional::ofNonZeroValue(A) optional<A>")
def _of_non_zero(value: Any) -> Optional:
    is_zero = value is None or value is False or (isinstance(value, (int, float, str, bytes, list, dict)) and not value)
    return NONE if is_zero else Optional(True, value)


@overload("optional<A>.hasValue() bool")
def _has_value(found: Optional) -> bool:
    return found.is_set


@overload("optional<A>.value() A")
def _value(found: Optional) -> Any:
    if not found.is_set:
        raise EvaluationError("optional.none() dereference")
    return found.value


@overload("optional<A>.orValue(A) A")
def _or_value(found: Optional, other: Any) -> Any:
    return found.value if found.is_set else other


@overload("optional<A>.or(optional<A>) optional<A>")
def _or(found: Optional, other: Optional) -> Optional:
    return found if found.is_set else other


@overload("optional::unwrap(list<optional<A>>) list<A>", "list<optional<A>>.unwrapOpt() list<A>", cost=list_cost)
def _unwrap(members: list[Any]) -> list[Any]:
    if not all(isinstance(each, Optional) for each in members):
        raise EvaluationError("no such overload")
    return [each.value for each in members if each.is_set]


@overload("list<A>.first() optional<A>")
def _first(members: list[Any]) -> Optional:
    return Optional(True, members[0]) if members else NONE


@overload("list<A>.last() optional<A>")
def _last(members: list[Any]) -> Optional:
    return Optional(True, members[-1]) if members else NONE
