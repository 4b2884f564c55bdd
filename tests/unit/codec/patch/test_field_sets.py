"""Sets of field paths behave like sets of paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.patch.field_sets import (
    FieldSet,
    Path,
    difference,
    filtered,
    from_paths,
    in_order,
    intersection,
    paths,
    union,
    without_branch,
    written_path,
)

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"c"}', 'v:"x"'])
PATHS = st.sets(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), max_size=8)


def members(fields: FieldSet) -> set[Path]:
    return set(paths(fields))


@given(PATHS)
def test_round_trip(original: set[Path]) -> None:
    fields = from_paths(*original)
    assert members(fields) == original
    assert in_order(fields) == fields
    assert list(paths(in_order(fields))) == list(paths(fields))


@given(PATHS, PATHS)
def test_operations(left: set[Path], right: set[Path]) -> None:
    one, other = from_paths(*left), from_paths(*right)
    assert members(union(one, other)) == left | right
    assert members(difference(one, other)) == left - right
    assert members(intersection(one, other)) == left & right
    assert (one, other) == (from_paths(*left), from_paths(*right))


@given(PATHS, st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple))
def test_branches(original: set[Path], branch: Path) -> None:
    fields = from_paths(*original)
    outside = {path for path in original if path[: len(branch)] != branch}
    assert members(without_branch(fields, branch)) == outside
    assert members(filtered(fields, lambda path: path[: len(branch)] != branch)) == outside


def test_form() -> None:
    assert from_paths(("f:a",), ("f:b",), ("f:b", "f:c")) == {"f:a": {}, "f:b": {".": {}, "f:c": {}}}


def test_written() -> None:
    path = ("f:spec", "f:containers", 'k:{"containerPort":80,"protocol":"TCP"}', "f:name", 'v:"x"', "i:0")
    assert written_path(path) == '.spec.containers[containerPort=80,protocol="TCP"].name[="x"][0]'
