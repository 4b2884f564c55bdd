"""Why no value is computed for a pod: every finding of an API server, none that follows from another."""

from __future__ import annotations

from plimsoll.codec.lean.lean import read_as_far
from plimsoll.rules.explain.refusal import refusal_errors
from plimsoll.rules.model.gates import DEFAULT_GATES
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.resources.defaulting import defaulted
from tests.unit.strategies import Json


def refused(requests: Json) -> list[tuple[str, str]]:
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    pod, unreadable = read_as_far({"metadata": {"name": "p"}, "spec": {"containers": [container]}}, Pod)
    return [(each.field, each.detail) for each in refusal_errors(defaulted(pod), unreadable, DEFAULT_GATES)]


def test_two_findings_about_one_field_are_both_listed() -> None:
    """V-2 and V-3: for a name like `gpu` an API server lists both."""
    field = "spec.containers[0].resources.requests[gpu]"
    assert refused({"gpu": "1", "cpu": "1"})[:2] == [
        (field, "must be a standard resource type or fully qualified"),
        (field, "must be a standard resource for containers"),
    ]


def test_what_follows_from_an_unreadable_amount_is_not_listed() -> None:
    (only,) = refused({"cpu": "one", "gpu": "1"})
    assert only[0] == "spec.containers[0].resources.requests[cpu]"
