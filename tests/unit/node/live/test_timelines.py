"""The timeline of document 003 (03 §5), from the versions of the pod that the agent receives."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.lean.lean import from_document
from plimsoll.codec.live_page import Mark
from plimsoll.node.live.timelines import Timelines
from plimsoll.rules.model.runnable import RunPod

CREATED_S = 1_700_000_000


def version(spec: str, allocated: str, actual: str, resize: str, **status: Any) -> RunPod:
    """The stored pod with these amounts of CPU; empty: none."""
    container: dict[str, Any] = {"name": "c"}
    if allocated:
        container["allocatedResources"] = {"cpu": allocated}
    if actual:
        container["resources"] = {"requests": {"cpu": actual}}
    statuses = [container] if len(container) > 1 else []
    return from_document(
        {
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "creationTimestamp": "2023-11-14T22:13:20Z"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": spec}}}]},
            "status": {"containerStatuses": statuses, "resize": resize, **status},
        },
        RunPod,
    )


class Clock:
    def __init__(self) -> None:
        self.now_s = CREATED_S + 1.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def shown(mark: Mark) -> tuple[object, ...]:
    assert mark.step is not None

    def cpu(part: str) -> str:
        return next(iter(mark.step[part].values()), ("",))[0]  # type: ignore[index]

    return mark.step["number"], cpu("spec"), cpu("allocated"), cpu("actual"), mark.step["state"]


def test_the_table_of_the_document() -> None:
    timelines = Timelines(Clock())
    marks: list[Mark] = []
    for row in (
        ("1", "1", "", ""),
        ("1", "1", "1", ""),
        ("1500m", "1", "1", "Proposed"),
        ("1500m", "1500m", "1", "InProgress"),
        ("2", "1500m", "1", "Proposed"),
    ):
        marks += timelines.seen(version(*row))
    marks += timelines.conflicted("d", "p", "u")
    for row in (
        ("2", "1500m", "1500m", "Deferred"),
        ("1600m", "1500m", "1500m", "Proposed"),
        ("1600m", "1600m", "1500m", "InProgress"),
        ("1600m", "1600m", "1600m", ""),
        ("100", "1600m", "1600m", "Proposed"),
        ("100", "1600m", "1600m", "Infeasible"),
    ):
        marks += timelines.seen(version(*row))
        marks += timelines.seen(version(*row))  # the same again is no step
    assert [shown(mark) for mark in marks] == [
        (0, "1", "", "", ""),
        (1, "1", "1", "", ""),
        (2, "1", "1", "1", ""),
        (3, "1500m", "1", "1", "Proposed"),
        (4, "1500m", "1500m", "1", "InProgress"),
        (5, "2", "1500m", "1", "Proposed"),
        (6, "2", "1500m", "1", "Proposed"),
        (7, "2", "1500m", "1500m", "Deferred"),
        (8, "1600m", "1500m", "1500m", "Proposed"),
        (9, "1600m", "1600m", "1500m", "InProgress"),
        (10, "1600m", "1600m", "1600m", ""),
        (11, "100", "1600m", "1600m", "Proposed"),
        (12, "100", "1600m", "1600m", "Infeasible"),
    ]
    assert [mark.text for mark in marks] == [
        "created",
        "received by the node",
        "running",
        "resize requested: cpu request 1 → 1500m",
        "accepted by the node: cpu request 1 → 1500m",
        "resize requested: cpu request 1500m → 2",
        "409 Conflict: the pod has changed, its status is computed again",
        "Deferred; applied: cpu request 1 → 1500m",
        "resize requested: cpu request 2 → 1600m",
        "accepted by the node: cpu request 1500m → 1600m",
        "applied: cpu request 1500m → 1600m",
        "resize requested: cpu request 1600m → 100",
        "Infeasible",
    ]
    assert marks[0].at == CREATED_S and [mark.at for mark in marks] == sorted(mark.at for mark in marks)


def test_conditions_of_later_releases() -> None:
    timelines = Timelines(Clock())
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "Node didn't have enough"}
    marks = [
        mark
        for pod in (
            version("1", "1", "1", ""),
            version("2", "1", "1", ""),
            version("2", "1", "1", "", conditions=[pending]),
            version("2", "2", "1", "", conditions=[{"type": "PodResizeInProgress", "status": "True"}]),
            version("2", "2", "2", ""),
        )
        for mark in timelines.seen(pod)
    ]
    assert [shown(mark)[4] for mark in marks] == ["", "", "", "Deferred", "InProgress", ""]
    assert [mark.text for mark in marks] == [
        "created",
        "the node agent has found it",
        "resize requested: cpu request 1 → 2",
        "Deferred: Node didn't have enough",
        "accepted by the node: cpu request 1 → 2",
        "applied: cpu request 1 → 2",
    ]


def test_a_pod_without_a_resize_has_no_marks_and_a_deleted_one_is_forgotten() -> None:
    timelines = Timelines(Clock())
    for row in (("1", "1", "", ""), ("1", "1", "1", ""), ("1", "1", "", ""), ("1", "1", "1", "")):
        assert list(timelines.seen(version(*row))) == []
    assert list(timelines.conflicted("d", "p", "u")) == []
    timelines.forget("u")
    assert list(timelines.seen(version("2", "1", "1", "Proposed"))) == [], "a pod of another life begins again"
    assert [shown(mark)[0] for mark in timelines.seen(version("3", "1", "1", "Proposed"))] == [0, 1, 2]
