"""The messages of resize events, byte for byte (03 §8): JSON as Go encodes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resize.allocation import allocated_pod, allocation_of
from plimsoll.rules.resize.conditions import (
    NO_RESIZE_CONDITIONS,
    PendingCondition,
    ProgressCondition,
    ResizeConditions,
    failed,
    finished,
    judged,
    resize_conditions,
)
from plimsoll.rules.resize.verdict import ResizeVerdict

SMALL = {"requests": {"memory": "100Mi", "cpu": "0.5"}, "limits": {"memory": "0.25Gi", "cpu": "1000m"}}
LARGE = {"requests": {"memory": "100Mi", "cpu": "1500m"}, "limits": {"memory": "0.25Gi", "cpu": "2"}}


def pod(resources: dict[str, Any], generation: int) -> Pod:
    document = {
        "metadata": {"name": "p", "generation": generation},
        "spec": {
            "initContainers": [
                {"name": "init"},
                {"name": "side", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}, "claims": [{"name": "gpu"}]}},
            ],
            "containers": [{"name": "c", "resources": resources}, {"name": "idle", "resources": {"requests": {}}}],
        },
    }  # fmt: skip
    return from_document(document, Pod)


def text(cpu: str, limit: str, generation: int, error: str = "") -> str:
    return (
        '{"initContainers":[{"name":"init","resources":{}},'
        '{"name":"side","resources":{"limits":{"memory":"1Gi"},"claims":[{"name":"gpu"}]}}],'
        '"containers":[{"name":"c","resources":{"limits":{"cpu":"'
        + limit
        + '","memory":"256Mi"},"requests":{"cpu":"'
        + cpu
        + '","memory":"100Mi"}}},{"name":"idle","resources":{}}],"generation":'
        + str(generation)
        + (f',"error":"{error}"' if error else "")
        + "}"
    )


def accepted(generation: int = 2) -> tuple[ResizeConditions, LifecycleEvent | None]:
    wanted = pod(SMALL, generation)
    return judged(NO_RESIZE_CONDITIONS, wanted, ResizeVerdict("Accepted", allocation_of(wanted)), 1.0)


def test_started() -> None:
    _, event = accepted()
    assert event == LifecycleEvent("ResizeStarted", "Pod resize started: " + text("500m", "1", 2), "Normal")


@pytest.mark.parametrize(
    ("decision", "reason", "kind"),
    [("Deferred", "OutOfcpu", "ResizeDeferred"), ("Infeasible", "Infeasible", "ResizeInfeasible")],
)
def test_pending(decision: Any, reason: str, kind: str) -> None:
    wanted = pod(LARGE, 3)
    verdict = ResizeVerdict(decision, allocation_of(pod(SMALL, 2)), "no room", reason)
    _, event = judged(NO_RESIZE_CONDITIONS, wanted, verdict, 1.0)
    assert event == LifecycleEvent(kind, f"Pod resize {reason}: " + text("1500m", "2", 3, "no room"), "Warning")


def test_completed_and_error_are_of_the_resize_that_was_accepted() -> None:
    """Meanwhile generation 3 has requested more, and waits."""
    conditions, _ = accepted()
    allocated = allocated_pod(pod(LARGE, 3), allocation_of(pod(SMALL, 2)))
    conditions, event = failed(conditions, allocated, '"c" <is> full & stays', 2.0)
    said = '\\"c\\" \\u003cis\\u003e full \\u0026 stays'
    assert event == LifecycleEvent("ResizeError", "Pod resize error: " + text("500m", "1", 2, said), "Warning")
    conditions, event = finished(conditions, allocated)
    assert event == LifecycleEvent("ResizeCompleted", "Pod resize completed: " + text("500m", "1", 2), "Normal")
    assert conditions == NO_RESIZE_CONDITIONS


def test_an_error_without_recorded_conditions_names_the_newest_spec() -> None:
    _, event = failed(NO_RESIZE_CONDITIONS, pod(SMALL, 7), "no", 1.0)
    assert event is not None
    assert msgspec.json.decode(event.message.partition(": ")[2])["generation"] == 7


@pytest.mark.parametrize(("profile", "types"), [("documents", 2), ("1.27", 0), ("1.32", 0), ("1.33", 2), ("1.37", 2)])
def test_the_conditions_exist_since_1_33(profile: str, types: int) -> None:
    both = ResizeConditions(PendingCondition("Deferred", "no room", 2), ProgressCondition(1, 5.0))
    assert len(resize_conditions(both, profile_named(profile))) == types
