"""Tolerations: findings, and the merge with those of a RuntimeClass (05 B6)."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.admission.tolerations import merged_tolerations, toleration_errors
from plimsoll.rules.model.objects import Toleration

FINDINGS = [
    ("all taints", Toleration(operator="Exists"), []),
    ("a value", Toleration("k", "Equal", "v", "NoSchedule"), []),
    ("no key", Toleration("", "Equal", "v"),
     ['t[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"']),
    ("a time without NoExecute", Toleration("k", "Exists", effect="NoSchedule", toleration_seconds=5),
     ['t[0].effect: Invalid value: "NoSchedule": effect must be \'NoExecute\' when `tolerationSeconds` is set']),
    ("a value with Exists", Toleration("k", "Exists", "v"),
     ['t[0].operator: Invalid value: "v": value must be empty when `operator` is \'Exists\'']),
    ("an operator", Toleration("k", "In"), ['t[0].operator: Unsupported value: "In": supported values: "Equal", "Exists"']),
    ("an effect", Toleration("k", "Exists", effect="Never"),
     ['t[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"']),
]  # fmt: skip


@pytest.mark.parametrize(("toleration", "errors"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS])
def test_findings(toleration: Toleration, errors: list[str]) -> None:
    assert [str(error) for error in toleration_errors([toleration], "t")] == errors


ALL = Toleration(operator="Exists")
KEY = Toleration("k", "Exists")
VALUE = Toleration("k", "Equal", "v", "NoSchedule")
SHORT = Toleration("k", "Equal", "v", "NoExecute", 60)
LONG = Toleration("k", "Equal", "v", "NoExecute", 300)
OTHER = Toleration("other", "Equal", "v", "NoSchedule")
MERGED = [
    ("equal ones", [VALUE], [VALUE], [VALUE]),
    ("different ones", [VALUE], [OTHER], [VALUE, OTHER]),
    ("a wider one of the class", [VALUE, OTHER], [KEY], [OTHER, KEY]),
    ("a wider one of the pod", [ALL], [VALUE, SHORT], [ALL]),
    ("the longer stay", [SHORT], [LONG], [LONG]),
    ("no operator is not Equal", [Toleration("k", "", "v")], [Toleration("k", "Equal", "v")],
     [Toleration("k", "", "v")]),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "merged"), [row[1:] for row in MERGED], ids=[row[0] for row in MERGED])
def test_merge(first: list[Toleration], second: list[Toleration], merged: list[Toleration]) -> None:
    assert list(merged_tolerations(first, second)) == merged


@given(st.lists(st.sampled_from([ALL, KEY, VALUE, SHORT, LONG, OTHER])), st.lists(st.sampled_from([KEY, VALUE, LONG])))
def test_a_merge_is_stable(first: list[Toleration], second: list[Toleration]) -> None:
    """Merging the result once more changes nothing, and it has only what came in."""
    merged = merged_tolerations(first, second)
    assert merged_tolerations(merged, ()) == merged
    assert set(merged) <= {*first, *second}


@pytest.mark.parametrize("what", ["keys", "values", "equal ones"])
def test_the_work_grows_linearly_with_the_tolerations(what: str) -> None:
    """A pod of 3 MB has 60,000, and they are merged between the requests of other clients."""

    def calls(count: int) -> int:
        made = {
            "keys": lambda number: Toleration(key=f"k{number}", operator="Exists"),
            "values": lambda number: Toleration(key="k", operator="Equal", value=f"v{number}"),
            "equal ones": lambda number: Toleration(key="k", operator="Exists"),
        }[what]
        many, seen = [made(number) for number in range(count)], list[str]()
        sys.setprofile(lambda frame, event, argument: seen.append(event) if event in ("call", "c_call") else None)
        try:
            merged_tolerations(many, [Toleration(key="class", operator="Exists")])
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls(400) < 6 * calls(100)
