"""What a create sets, in one walk, is what comparing it with an empty object finds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.patch.field_sets import difference, in_order, union
from plimsoll.codec.patch.list_types import root_shape
from plimsoll.codec.patch.managed_fields import empty_object
from plimsoll.codec.patch.merge import compare, set_fields
from plimsoll.codec.schema.schema import schema

Document = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "name", "spec", "labels"])
SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"])
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
MAPS = st.dictionaries(NAMES, st.sampled_from(["", "x"]), max_size=2)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["c", "d"])},
        optional={
            "image": st.just("i"),
            "args": st.lists(st.just("x"), max_size=2),
            "ports": st.lists(st.fixed_dictionaries({"containerPort": st.integers(1, 2)}), max_size=2),
            "resources": st.fixed_dictionaries({}, optional={"limits": MAPS}),
            "bogus": ANYTHING,
        },
    ),
    max_size=3,
)
PODS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.just("Pod"),
        "metadata": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "name": st.just("x"),
                "creationTimestamp": st.none() | st.just("2026-11-15T20:38:46Z"),
                "labels": MAPS,
                "finalizers": st.lists(st.sampled_from(["a/b", "c/d"]), max_size=2),
                "ownerReferences": st.lists(st.fixed_dictionaries({"uid": st.sampled_from(["1", "2"])}), max_size=2),
            },
        ),
        "spec": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "containers": st.none() | CONTAINERS,
                "nodeSelector": MAPS,
                "securityContext": st.just({}),
                "bogus": ANYTHING,
            },
        ),
        "status": st.none() | st.just({}) | st.just({"phase": "Pending"}),
        "bogus": ANYTHING,
    },
)


def _as_compared(before: Document, after: Document) -> Document:
    changes = compare(root_shape(schema("v1", "Pod")), before, after)
    return in_order(union(changes.modified, changes.added))


@given(PODS)
def test_from_an_empty_object(after: Document) -> None:
    kind = schema("v1", "Pod")
    found = set_fields(root_shape(kind), empty_object(kind), after)
    assert repr(found) == repr(_as_compared(empty_object(kind), after))  # with the order of members


@given(PODS, PODS)
def test_from_any_object(before: Document, after: Document) -> None:
    assert set_fields(root_shape(schema("v1", "Pod")), before, after) == _as_compared(before, after)


@given(PODS, PODS)
def test_a_difference_keeps_the_order_and_what_is_untouched(left: Document, right: Document) -> None:
    shape = root_shape(schema("v1", "Pod"))
    one, other = (set_fields(shape, {}, each) for each in (left, right))
    found = difference(one, other)
    assert list(found) == [element for element in one if element in found]
    assert difference(found, other) is found
