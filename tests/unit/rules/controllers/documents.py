"""Small documents for the rules of controllers."""

from __future__ import annotations

from typing import Any

from plimsoll.rules.timestamps import rfc3339

Json = dict[str, Any]
NOW_S = 1_794_787_200.0
REFERENCE = {"kind": "Owner", "name": "o", "uid": "o", "controller": True}


def ago(seconds: float) -> str:
    return rfc3339(NOW_S - seconds)


def pod(
    name: str,
    phase: str = "Running",
    *,
    ready: bool = True,
    node: str = "n",
    age_s: float = 100,
    ready_s: float | None = None,
    restarts: int = 0,
    **metadata: Any,
) -> Json:
    """`ready_s`: for how long it has been ready; as long as it exists if it is absent."""
    since = ago(age_s if ready_s is None else ready_s)
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}]
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": ago(age_s), **metadata},
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "restartCount": restarts}],
        },
    }


def names(documents: Any) -> list[str]:
    return [each["metadata"]["name"] for each in documents]
