"""Semantic equality of documents (03 §4.1): what decoding makes equal is no difference, what it distinguishes is
one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.admission.comparison import same, specs_differ

EQUAL = [
    ("null and absent", {"a": None}, {}),
    ("empty list and absent", {"volumes": []}, {}),
    ("empty map and absent", {"nodeSelector": {}}, {}),
    ("quantities by value", {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}),
    ("quantity as a number", {"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}),
    ("quantity null is zero", {"limits": {"cpu": None}}, {"limits": {"cpu": "0"}}),
    ("overhead", {"overhead": {"memory": "1Gi"}}, {"overhead": {"memory": "1024Mi"}}),
    ("size limit", {"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1024Mi"}}),
    ("false and absent", {"hostNetwork": False}, {}),
    ("empty text and absent", {"hostname": ""}, {}),
    ("a container's empty resources", {"resources": {}}, {}),
    ("a container's resources with empty lists", {"resources": {"requests": {}, "limits": None}}, {}),
    ("order of keys", {"a": "1", "b": "2"}, {"b": "2", "a": "1"}),
    ("null item", [None], [{}]),
]
DIFFERENT = [
    ("other value", {"a": "1"}, {"a": "2"}),
    ("other quantity", {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1001m"}}),
    ("a zero quantity is set", {"limits": {"cpu": "0"}}, {"limits": {}}),
    ("a map's key with an empty value", {"nodeSelector": {"a": ""}}, {"nodeSelector": {}}),
    ("an optional block", {"securityContext": {}}, {}),
    ("an optional scalar", {"priority": 0}, {}),
    ("an optional flag", {"hostUsers": False}, {}),
    ("order of a list", {"args": ["a", "b"]}, {"args": ["b", "a"]}),
    ("length of a list", {"args": ["a"]}, {"args": ["a", "a"]}),
    ("text that resembles a quantity", {"value": "1000m"}, {"value": "1"}),
    ("no quantity at all", {"limits": {"cpu": "x"}}, {"limits": {"cpu": "1"}}),
]


@pytest.mark.parametrize(("left", "right"), [row[1:] for row in EQUAL], ids=[row[0] for row in EQUAL])
def test_equal(left, right):
    assert same(left, right) and same(right, left)


@pytest.mark.parametrize(("left", "right"), [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT])
def test_different(left, right):
    assert not same(left, right) and not same(right, left)


def test_a_pods_resources_are_optional_as_a_whole_but_not_a_containers():
    assert specs_differ({"resources": {}}, {})
    assert specs_differ({}, {"resources": {}})
    assert not specs_differ({"resources": {}}, {"resources": {"requests": {}}})
    assert not specs_differ({"resources": None}, {})
    assert not specs_differ({"containers": [{"resources": {}}]}, {"containers": [{}]})


NAMES = st.sampled_from(["a", "resources", "limits", "nodeSelector", "priority", "sizeLimit"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "1", "1000m", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(DOCUMENTS, DOCUMENTS)
def test_reflexive_and_symmetric(left, right):
    assert same(left, left)
    assert same(left, right) == same(right, left)


@given(st.dictionaries(NAMES, DOCUMENTS, max_size=4), st.sampled_from([None, []]))
def test_an_absent_field_may_be_written_out(document, nothing):
    assert same(document, {**document, "other": nothing})
