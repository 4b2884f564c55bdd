"""How far a resize has come, as each profile's status tells it (03 §5, §8)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.resize_progress import Progress, progress

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
        "spec": {"containers": [{"name": "c", "resources": {"requests": TWO, "limits": TWO}}]},
        "status": {"containerStatuses": [shown], **status},
    }


def condition(kind: str, reason: str = "", message: str = "", observed: int | None = None) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "observedGeneration": observed}


PENDING, GOING = "PodResizePending", "PodResizeInProgress"
ROWS = [
    ("1.27 proposed", pod(ONE, ONE, resize="Proposed"), "proposed", ""),
    ("1.27 in progress", pod(TWO, ONE, resize="InProgress"), "allocated", ""),
    ("1.27 the kernel has it", pod(TWO, TWO, resize="InProgress"), "kernel", ""),
    ("1.27 done", pod(TWO, TWO), "reported", ""),
    ("1.27 deferred", pod(ONE, ONE, resize="Deferred"), "deferred", ""),
    ("1.27 proposed anew after a verdict", pod(ONE, ONE, resize="Proposed", conditions=[condition(PENDING, "Infeasible")]), "proposed", ""),
    ("1.27 infeasible", pod(ONE, ONE, resize="Infeasible"), "infeasible", ""),
    ("1.36 not looked at", pod(ONE, ONE, observedGeneration=1), "proposed", ""),
    ("1.36 a limit alone, not looked at", pod(TWO, ONE, observedGeneration=1), "proposed", ""),
    ("1.36 deferred", pod(ONE, ONE, conditions=[condition(PENDING, "Deferred", "no room", 2)]), "deferred", "no room"),
    ("1.36 an old verdict", pod(ONE, ONE, conditions=[condition(PENDING, "Infeasible", "", 1)]), "proposed", ""),
    ("1.36 an error", pod(TWO, ONE, conditions=[condition(GOING, "Error", "cannot shrink", 2)]), "allocated", "cannot shrink"),
    ("1.36 in progress", pod(TWO, TWO, conditions=[condition(GOING)]), "kernel", ""),
    ("1.36 done", pod(TWO, TWO, observedGeneration=2), "reported", ""),
    ("other words for the same", pod({"cpu": "2000m", "memory": "204800Ki"}, TWO), "reported", ""),
    ("no allocatedResources", pod(None, TWO), "reported", ""),
    ("nothing reported yet", {**pod(None, None), "status": {}}, "proposed", ""),
]  # fmt: skip


@pytest.mark.parametrize(("document", "stage", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_stage(document: dict[str, Any], stage: str, message: str) -> None:
    found = progress(document)
    assert (found.stage, found.message) == (stage, message)


def test_restarts_are_counted() -> None:
    assert progress(pod(TWO, TWO)) == Progress("reported", "", 1)
