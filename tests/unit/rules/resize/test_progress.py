"""The progress of a resize, as each profile reports it in the status (03 §5, §8)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.resize.progress import ResizeProgress, pending_verdict, progress

ONE, TWO = {"cpu": "1", "memory": "200Mi"}, {"cpu": "2", "memory": "200Mi"}


def pod(
    allocated: dict[str, str] | None, actual: dict[str, str] | None, generation: int = 2, **status: Any
) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": "c", "restartCount": 1}
    if allocated is not None:
        shown["allocatedResources"] = allocated
    if actual is not None:
        shown["resources"] = {"requests": actual, "limits": actual}
    return {
        "metadata": {"name": "p", "generation": generation},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": TWO, "limits": TWO}}]},
        "status": {"containerStatuses": [shown], **status},
    }


def condition(kind: str, reason: str = "", message: str = "", observed: int | None = None) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "observedGeneration": observed}


def rounded(wanted: str, shown: str, name: str = "cpu", **status: Any) -> dict[str, Any]:
    """One limit that comes back otherwise than it was asked for."""
    found = {"name": "c", "allocatedResources": {}, "resources": {"limits": {name: shown}}}
    return {
        "metadata": {"name": "p", "generation": 2},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": {name: wanted}}}]},
        "status": {"containerStatuses": [found], **status},
    }


def within(limit: str, document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "spec": {**document["spec"], "resources": {"limits": {"cpu": limit}}}}


def requesting(wanted: str, shown: str, **status: Any) -> dict[str, Any]:
    """A cpu request that is allocated and comes back otherwise."""
    found = {"name": "c", "allocatedResources": {"cpu": wanted}, "resources": {"requests": {"cpu": shown}}}
    return {
        "metadata": {"name": "p", "generation": 2},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": wanted}}}]},
        "status": {"containerStatuses": [found], **status},
    }


def deleted(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "deletionTimestamp": "2024-01-01T00:00:00Z"}}


POD_LEVEL: dict[str, Any] = {
    "metadata": {"name": "p", "generation": 2},
    "spec": {
        "nodeName": "n1",
        "resources": {"requests": {"cpu": "2"}},
        "containers": [{"name": "c", "resources": {}}],
    },
    "status": {
        "observedGeneration": 2,
        "allocatedResources": {"cpu": "2"},
        "containerStatuses": [{"name": "c", "resources": {}}],
    },
}
PENDING, GOING = "PodResizePending", "PodResizeInProgress"
ROWS = [
    ("documents proposed", pod(ONE, ONE, resize="Proposed"), "proposed", ""),
    ("documents in progress", pod(TWO, ONE, resize="InProgress"), "allocated", ""),
    ("documents the kernel has it", pod(TWO, TWO, resize="InProgress"), "kernel", ""),
    ("documents done", pod(TWO, TWO), "reported", ""),
    ("documents deferred", pod(ONE, ONE, resize="Deferred"), "deferred", ""),
    ("documents proposed again after a verdict", pod(ONE, ONE, resize="Proposed", conditions=[condition(PENDING, "Infeasible")]), "proposed", ""),
    ("documents infeasible", pod(ONE, ONE, resize="Infeasible"), "infeasible", ""),
    ("1.36 not judged yet", pod(ONE, ONE, observedGeneration=1), "proposed", ""),
    ("1.36 a limit alone, not judged yet", pod(TWO, ONE, observedGeneration=1), "proposed", ""),
    ("1.36 deferred", pod(ONE, ONE, conditions=[condition(PENDING, "Deferred", "no room", 2)]), "deferred", "no room"),
    ("1.36 an old verdict", pod(ONE, ONE, conditions=[condition(PENDING, "Infeasible", "", 1)]), "proposed", ""),
    ("1.36 an error", pod(TWO, ONE, conditions=[condition(GOING, "Error", "cannot shrink", 2)]), "allocated", "cannot shrink"),
    ("1.36 in progress", pod(TWO, TWO, conditions=[condition(GOING)]), "kernel", ""),
    ("1.36 done", pod(TWO, TWO, observedGeneration=2), "reported", ""),
    ("other words for the same", pod({"cpu": "2000m", "memory": "204800Ki"}, TWO), "reported", ""),
    ("no allocatedResources", pod(None, TWO), "reported", ""),
    ("1.36 rounded by systemd", rounded("1234m", "1240m", observedGeneration=2), "reported", ""),
    ("1.36 rounded, still at work", rounded("1234m", "1240m", conditions=[condition(GOING)]), "kernel", ""),
    ("1.36 rounded in another way", rounded("1234m", "1300m", observedGeneration=2), "reported", ""),
    ("1.36 the limit not yet there", rounded("1234m", "1", conditions=[condition(GOING)]), "allocated", ""),
    ("1.36 a request not yet there", requesting("150m", "100m", conditions=[condition(GOING)]), "allocated", ""),
    ("1.36 a request that a weight cannot hold", requesting("150m", "149m", observedGeneration=2), "reported", ""),
    ("1.36 the smallest quota", rounded("3m", "10m", observedGeneration=2), "reported", ""),
    ("1.36 pod level, not allocated", {**POD_LEVEL, "status": {**POD_LEVEL["status"], "allocatedResources": {"cpu": "1"}}}, "proposed", ""),
    ("1.36 pod level", POD_LEVEL, "reported", ""),
    ("documents a limit alone, not judged yet", pod(TWO, ONE), "proposed", ""),
    ("documents a limit alone, at work", pod(TWO, ONE, conditions=[condition(GOING)]), "allocated", ""),
    ("documents rounded by systemd", rounded("1234m", "1240m"), "reported", ""),
    ("documents not yet there", rounded("1234m", "1244m"), "proposed", ""),
    ("documents the smallest quota", rounded("3m", "10m"), "reported", ""),
    ("documents repeated as asked", rounded("3m", "3m"), "reported", ""),
    ("documents whole pages", rounded("100000000", "99999744", "memory"), "reported", ""),
    ("documents another memory limit", rounded("100000000", "99000000", "memory"), "proposed", ""),
    ("documents no limit inside the pod's own", within("2", rounded("0", "2")), "reported", ""),
    ("documents not yet the pod's own", within("2", rounded("0", "1")), "proposed", ""),
    ("documents no limit", rounded("0", "0"), "reported", ""),
    ("documents no limit, not yet", rounded("0", "1"), "proposed", ""),
    ("it has ended", pod(ONE, ONE, phase="Succeeded", resize="Proposed"), "ended", "its phase is Succeeded"),
    ("it is being deleted", deleted(pod(ONE, ONE)), "ended", "it is being deleted"),
    ("on no node", {**pod(None, None), "spec": {"containers": [{"name": "c"}]}, "status": {}}, "proposed", "it is not scheduled yet"),
    ("nothing reported yet", {**pod(None, None), "status": {}}, "proposed", ""),
]  # fmt: skip


@pytest.mark.parametrize(("document", "stage", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_stage(document: dict[str, Any], stage: str, message: str) -> None:
    found = progress(document)
    assert (found.stage, found.message) == (stage, message)


def test_restarts_are_counted() -> None:
    assert progress(pod(TWO, TWO)) == ResizeProgress("reported", "", 1)


def test_a_verdict_on_the_previous_request() -> None:
    """documents reports no generation: a request that returns to what is allocated is not Proposed, and the old verdict stays
    for a moment."""
    stale = pod(TWO, ONE, resize="Infeasible", conditions=[condition(PENDING, "Infeasible", "too large")])
    assert progress(stale).stage == "infeasible"
    assert progress(stale, pending_verdict(stale)).stage == "proposed"
    changed = pod(TWO, ONE, resize="Infeasible", conditions=[condition(PENDING, "Infeasible", "static")])
    assert progress(changed, pending_verdict(stale)).stage == "infeasible"
    assert progress(pod(TWO, TWO), pending_verdict(pod(TWO, TWO))).stage == "reported"


def test_the_same_verdict_on_the_next_request() -> None:
    """The same message within the same second: the generation, where it is reported, distinguishes the two."""
    first = pod(ONE, ONE, generation=2, conditions=[condition(PENDING, "Infeasible", "static", 2)])
    asked = pod(ONE, ONE, generation=3, conditions=[condition(PENDING, "Infeasible", "static", 2)])
    answered = pod(ONE, ONE, generation=3, conditions=[condition(PENDING, "Infeasible", "static", 3)])
    assert progress(asked, pending_verdict(first)).stage == "proposed"
    assert progress(answered, pending_verdict(first)).stage == "infeasible"
