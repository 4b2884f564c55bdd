"""Functions on lists: Kubernetes' list library, cel-go's, and sets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from plimsoll.codec.cel.overloads import (
    COMPARABLE,
    SUMMABLE,
    list_cost,
    overload,
    product_cost,
    self_comparison_cost,
)
from plimsoll.codec.cel.values import Duration, EvaluationError, equal, is_number


def _check_comparable(members: list[Any]) -> None:
    for one, other in pairwise(members):
        if type(one) is not type(other) and not (is_number(one) and is_number(other)):
            raise EvaluationError("no such overload")


@overload(*(f"list<{each}>.isSorted() bool" for each in COMPARABLE), cost=list_cost)
def _is_sorted(members: list[Any]) -> bool:
    _check_comparable(members)
    return all(one <= other for one, other in pairwise(members))


@overload(*(f"list<{each}>.sum() {each}" for each in SUMMABLE), cost=list_cost)
def _sum(members: list[Any]) -> Any:
    if not members:
        return 0
    _check_comparable(members)
    if isinstance(members[0], Duration):
        return Duration(sum(each.nanos for each in members))
    if not is_number(members[0]):
        raise EvaluationError("no such overload")
    return type(members[0])(sum(members))


def _some_comparable(members: list[Any], call: str) -> list[Any]:
    if not members:
        raise EvaluationError(f"{call} called on empty list")
    _check_comparable(members)
    return members


@overload(*(f"list<{each}>.min() {each}" for each in COMPARABLE), cost=list_cost)
def _min(members: list[Any]) -> Any:
    return min(_some_comparable(members, "min"))


@overload(*(f"list<{each}>.max() {each}" for each in COMPARABLE), cost=list_cost)
def _max(members: list[Any]) -> Any:
    return max(_some_comparable(members, "max"))


@overload("list<A>.indexOf(A) int", cost=list_cost)
def _index_of(members: list[Any], wanted: Any) -> int:
    return next((index for index, each in enumerate(members) if equal(each, wanted)), -1)


@overload("list<A>.lastIndexOf(A) int", cost=list_cost)
def _last_index_of(members: list[Any], wanted: Any) -> int:
    found = [index for index, each in enumerate(members) if equal(each, wanted)]
    return found[-1] if found else -1


@overload("list<A>.distinct() list<A>", cost=self_comparison_cost)
def _distinct(members: list[Any]) -> list[Any]:
    found: list[Any] = []
    for each in members:
        if not any(equal(each, other) for other in found):
            found.append(each)
    return found


@overload("list<A>.slice(int, int) list<A>", cost=list_cost)
def _slice(members: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(members):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(members)}")
    return members[start:end]


@overload("list<A>.reverse() list<A>", cost=list_cost)
def _reverse(members: list[Any]) -> list[Any]:
    return members[::-1]


@overload(*(f"list<{each}>.sort() list<{each}>" for each in COMPARABLE), cost=self_comparison_cost)
def _sort(members: list[Any]) -> list[Any]:
    return sorted_by_keys([(each, each) for each in members])


def sorted_by_keys(members: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Of pairs of a key and a value: the values."""
    _check_comparable([key for key, _ in members])
    try:
        return [value for _, value in sorted(members, key=itemgetter(0))]
    except TypeError:
        raise EvaluationError("no such overload") from None


@overload("list<list<A>>.flatten() list<A>", "list<dyn>.flatten(int) list<dyn>", cost=list_cost)
def _flatten(members: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found: list[Any] = []
    for each in members:
        found += _flatten(each, depth - 1) if isinstance(each, list) and depth > 0 else [each]
    return found


@overload("lists::range(int) list<int>", cost=lambda count: 1 + max(0, count))
def _range(count: int) -> list[int]:
    if count > 100_000:
        raise EvaluationError("the range is too long")
    return list(range(count))


# --- sets ---


def _has_all(members: list[Any], wanted: list[Any]) -> bool:
    return all(any(equal(each, other) for other in members) for each in wanted)


@overload("sets::contains(list<A>, list<A>) bool", cost=product_cost)
def _set_contains(members: list[Any], wanted: list[Any]) -> bool:
    return _has_all(members, wanted)


@overload("sets::equivalent(list<A>, list<A>) bool", cost=product_cost)
def _set_equivalent(left: list[Any], right: list[Any]) -> bool:
    return _has_all(left, right) and _has_all(right, left)


@overload("sets::intersects(list<A>, list<A>) bool", cost=product_cost)
def _set_intersects(left: list[Any], right: list[Any]) -> bool:
    return any(equal(one, other) for one in left for other in right)
