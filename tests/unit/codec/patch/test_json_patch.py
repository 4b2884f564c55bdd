"""RFC 6902 with jsonpatch as oracle, RFC 7386 by its own examples, and the refusals of spec 05 B6."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.patch.json_patch import (
    REJECTED,
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    patch_problems,
    read_patch,
)

Document = dict[str, Any]
LIVE: Document = {"a": {"b": [1, 2, 3]}, "n": None, "t": True, "x/y": {"~": 0}}

GOOD = [
    ("add", [{"op": "add", "path": "/z", "value": 1}], {"z": 1}),
    ("append", [{"op": "add", "path": "/a/b/-", "value": 4}], {"a": {"b": [1, 2, 3, 4]}}),
    ("insert", [{"op": "add", "path": "/a/b/1", "value": 9}], {"a": {"b": [1, 9, 2, 3]}}),
    ("replace", [{"op": "replace", "path": "/a/b/0", "value": 9}], {"a": {"b": [9, 2, 3]}}),
    ("remove", [{"op": "remove", "path": "/a/b/0"}], {"a": {"b": [2, 3]}}),
    ("from the end", [{"op": "remove", "path": "/a/b/-1"}], {"a": {"b": [1, 2]}}),
    ("escapes", [{"op": "replace", "path": "/x~1y/~0", "value": 1}], {"x/y": {"~": 1}}),
    ("move", [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": [1, 2, 3]}),
    ("copy", [{"op": "copy", "from": "/a/b", "path": "/c"}, {"op": "add", "path": "/c/0", "value": 0}], {"c": [0, 1, 2, 3]}),
    ("test", [{"op": "test", "path": "/a/b", "value": [1, 2, 3]}], {}),
    ("test for nothing", [{"op": "test", "path": "/gone", "value": None}], {}),
    ("no operations", [], {}),
]  # fmt: skip


@pytest.mark.parametrize(("operations", "changed"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD])
def test_operations(operations: list[Document], changed: Document) -> None:
    before = copy.deepcopy(LIVE)
    assert apply_json_patch(LIVE, operations) == {**LIVE, **changed}
    assert before == LIVE


REFUSED = [
    ("failing test", {"op": "test", "path": "/a", "value": 1}),
    ("true is not 1", {"op": "test", "path": "/t", "value": 1}),
    ("missing path", {"op": "remove", "path": "/gone"}),
    ("missing parent", {"op": "add", "path": "/gone/x", "value": 1}),
    ("replace what is not there", {"op": "replace", "path": "/gone", "value": 1}),
    ("unknown op", {"op": "frob", "path": "/a"}),
    ("no op", {"path": "/a"}),
    ("no path", {"op": "remove"}),
    ("through a scalar", {"op": "add", "path": "/t/x", "value": 1}),
    ("index too large", {"op": "add", "path": "/a/b/9", "value": 1}),
    ("index is a word", {"op": "add", "path": "/a/b/x", "value": 1}),
    ("the root", {"op": "replace", "path": "", "value": {}}),
    ("into itself", {"op": "move", "from": "/a", "path": "/a/b"}),
    ("copy from nowhere", {"op": "copy", "from": "/gone", "path": "/x"}),
]


@pytest.mark.parametrize("operation", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_rejected(operation: Document) -> None:
    with pytest.raises(PatchError) as error:
        apply_json_patch(LIVE, [operation])
    assert (error.value.problem, error.value.message) == ("rejected", REJECTED)


def test_copies_are_bounded() -> None:
    operations = [{"op": "copy", "from": "/a", "path": "/a/b/0"} for _ in range(40)]
    with pytest.raises(PatchError, match="accumulated size increase of copy") as error:
        apply_json_patch(LIVE, operations)
    assert error.value.problem == "too-large"


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
POINTERS = st.lists(NAMES | st.integers(0, 3).map(str) | st.just("-"), min_size=1, max_size=3).map(
    lambda steps: "/" + "/".join(steps)
)
OPERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"op": st.sampled_from(["add", "replace", "test"]), "path": POINTERS, "value": VALUES}),
        st.fixed_dictionaries({"op": st.just("remove"), "path": POINTERS}),
        st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "from": POINTERS, "path": POINTERS}),
    ),
    max_size=4,
)


@given(st.dictionaries(NAMES, VALUES, max_size=3), OPERATIONS)
def test_against_jsonpatch(document: Document, operations: list[Document]) -> None:
    try:
        expected = jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(operations))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError):
        expected = None
    before = copy.deepcopy(document)
    try:
        found = apply_json_patch(document, operations)
    except PatchError:
        found = None
    assert document == before
    assert found == expected


MERGES = [  # RFC 7386, appendix A, as far as both sides are objects
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("live", "patch", "expected"), MERGES)
def test_merge(live: Document, patch: Document, expected: Document) -> None:
    before = copy.deepcopy(live)
    assert apply_merge_patch(live, patch) == expected
    assert live == before


UNREADABLE = [
    ("object for a list", b"{}", True, "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
    ("number for an operation", b"[5]", True, "error decoding patch: json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
    ("list for an object", b"[]", False, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ("no JSON", b"{", False, "error decoding patch: unexpected end of JSON input"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "is_list", "message"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE]
)
def test_unreadable(data: bytes, is_list: bool, message: str) -> None:
    with pytest.raises(PatchError) as error:
        read_patch(data, is_list=is_list)
    assert (error.value.problem, error.value.message) == ("decoding", message)


def test_too_many_operations() -> None:
    data = json.dumps([{"op": "remove", "path": "/a"}] * 10_001).encode()
    with pytest.raises(PatchError) as error:
        read_patch(data, is_list=True)
    assert error.value.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )
    assert error.value.problem == "too-large"


def test_problems_of_the_patch_itself() -> None:
    assert patch_problems(b'{"a":{"b":1,"b":2},"c":1}') == ('duplicate field "a.b"',)
    assert patch_problems(b'{"a":{"b":1}}') == ()
    assert patch_problems(b'[{"op":"add","path":"/a","foo":1,"op":"x"}]', is_list=True) == (
        'json patch unknown field "[0].foo"',
        'json patch duplicate field "[0].op"',
    )


HOSTILE = [b'{"a":' + b"[" * 150 + b"]" * 150 + b"}", b"{" * 5_000, b'{"a":1e999}']


@pytest.mark.parametrize("data", HOSTILE, ids=["deep", "very deep", "beyond floats"])
def test_hostile_patches_are_refused(data: bytes) -> None:
    with pytest.raises(PatchError) as error:
        read_patch(data)
    assert error.value.problem == "decoding"


def test_copies_into_themselves_stay_shallow() -> None:
    operations = [{"op": "copy", "from": "/a", "path": "/a/x"} for _ in range(200)]
    with pytest.raises(PatchError):
        apply_json_patch({"a": {}}, operations)


def test_half_a_surrogate_pair() -> None:
    assert read_patch(b'{"a":"\\ud800x"}') == {"a": "\ufffdx"}


def test_a_path_of_many_steps_is_not_built() -> None:
    operations = [{"op": "add", "path": "/a" * steps, "value": {}} for steps in range(1, 1_500)]
    with pytest.raises(PatchError) as error:
        apply_json_patch({}, operations)
    assert error.value.problem == "rejected"
