"""The data of each view as JSON: what its picture and its table show, for curl, scripts and tests.

curl -H "Authorization: Bearer $TOKEN" https://HOST/dashboard/api/views/hull?node=n1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.codec.live_page import COLUMNS

Snapshot = dict[str, Any]


def _node(snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    return {**_frame(snapshot).get("node", {}), "problem": snapshot["problem"]}


def _hull(snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    return {"vessels": _vessels(snapshot), "marks": _frame(snapshot).get("marks", [])}


def _pod(snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    wanted = (query.get("namespace", "default"), query.get("pod", ""))
    pods = snapshot["objects"]["pods"].values()
    pod = next((each for each in pods if (each["namespace"], each["name"]) == wanted), None)
    uid = "" if pod is None else pod["uid"]
    return {
        "pod": pod,
        "vessels": [each for each in _vessels(snapshot) if each.get("uid") == uid and uid],
        "marks": [each for each in _frame(snapshot).get("marks", []) if each.get("uid") == uid and uid],
        "events": [
            each for each in snapshot["objects"]["events"].values() if (each["namespace"], each["name"]) == wanted
        ],
    }


def _next(snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    return _frame(snapshot).get("orders", {})


def _fleet(snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    return {"nodes": snapshot["fleet"], "pods": list(snapshot["objects"]["pods"].values())}


def _events(snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    return sorted(snapshot["objects"]["events"].values(), key=lambda each: -each["last"])


VIEWS: dict[str, Callable[[Snapshot, Mapping[str, str]], Any]] = {
    "node": _node,
    "hull": _hull,
    "pod": _pod,
    "next": _next,
    "fleet": _fleet,
    "events": _events,
}


def view(name: str, snapshot: Snapshot, query: Mapping[str, str]) -> Any:
    return VIEWS[name](snapshot, query)


def _frame(snapshot: Snapshot) -> dict[str, Any]:
    return snapshot["frame"] or {}


def _vessels(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Each with its figures by name."""
    frame = _frame(snapshot)
    rows = frame.get("rows", {})
    return [
        {**vessel, "figures": dict(zip(COLUMNS, rows[vessel["id"]], strict=True)) if vessel["id"] in rows else None}
        for vessel in frame.get("vessels", [])
    ]
