"""Unreachable nodes, their taints, and pod garbage collection: tables."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.controllers.node_lifecycle import stay_s, taints, unknown_conditions
from plimsoll.rules.controllers.owner_references import controller_of, is_left_over
from plimsoll.rules.controllers.pod_gc import collected
from plimsoll.rules.model.objects import Pod, Taint, Toleration

Json = dict[str, Any]


def _node(conditions: dict[str, str], *, unschedulable: bool = False, keys: tuple[tuple[str, str], ...] = ()) -> Json:
    return {
        "spec": {"unschedulable": unschedulable, "taints": [{"key": key, "effect": effect} for key, effect in keys]},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]},
    }


P = "node.kubernetes.io/"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (_node({"Ready": "True"}), None),
        (_node({}), [(f"{P}not-ready", "NoSchedule")]),
        (
            _node({"Ready": "True"}, keys=((f"{P}not-ready", "NoSchedule"), ("mine", "NoExecute"))),
            [("mine", "NoExecute")],
        ),
        (_node({"Ready": "False"}), [(f"{P}not-ready", "NoExecute"), (f"{P}not-ready", "NoSchedule")]),
        (
            _node({"Ready": "Unknown"}, keys=((f"{P}not-ready", "NoExecute"),)),
            [(f"{P}unreachable", "NoExecute"), (f"{P}unreachable", "NoSchedule")],
        ),
        (_node({"Ready": "True", "MemoryPressure": "True"}), [(f"{P}memory-pressure", "NoSchedule")]),
        (_node({"Ready": "True"}, unschedulable=True), [(f"{P}unschedulable", "NoSchedule")]),
        (_node({"Ready": "True"}, unschedulable=True, keys=((f"{P}unschedulable", "NoSchedule"),)), None),
    ],
)
def test_taints_follow_conditions(node: Json, expected: list[tuple[str, str]] | None) -> None:
    found = taints(node, "now")
    assert (found and [(each["key"], each["effect"]) for each in found]) == expected


def test_an_unreachable_nodes_conditions_become_unknown_once() -> None:
    node = _node({"Ready": "True", "MemoryPressure": "False"})
    found = unknown_conditions(node, "now")
    assert {(each["type"], each["reason"]) for each in found} == {
        ("Ready", "NodeStatusUnknown"),
        ("MemoryPressure", "NodeStatusUnknown"),
        ("DiskPressure", "NodeStatusNeverUpdated"),
        ("PIDPressure", "NodeStatusNeverUpdated"),
    }
    node["status"]["conditions"] = found
    assert unknown_conditions(node, "later") == []


ANY = Toleration(operator="Exists")
FOR_300 = Toleration(key=f"{P}not-ready", operator="Exists", effect="NoExecute", toleration_seconds=300)
FOR_10 = Toleration(key=f"{P}not-ready", operator="Exists", toleration_seconds=10)
GONE = Taint(f"{P}not-ready", "", "NoExecute")


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [((), 0), ((ANY,), None), ((FOR_300,), 300), ((FOR_300, FOR_10), 10), ((ANY, FOR_300), 300)],
)
def test_how_long_a_pod_stays(tolerations: tuple[Toleration, ...], expected: float | None) -> None:
    assert stay_s(tolerations, [GONE, Taint("x", "", "NoSchedule")]) == expected


def test_without_such_taints_a_pod_stays() -> None:
    assert stay_s((), [Taint("x", "", "NoSchedule")]) is None


def _pod(name: str, phase: str = "Running", node: str = "n1", created: str = "1", deleted: str | None = None) -> Pod:
    return from_document(
        {
            "metadata": {"name": name, "creationTimestamp": created, "deletionTimestamp": deleted},
            "spec": {"nodeName": node},
            "status": {"phase": phase},
        },
        Pod,
    )


def test_pod_gc() -> None:
    pods = [
        _pod("runs"),
        _pod("lost", node="n9"),
        _pod("waits", "Pending", node=""),
        _pod("leaves", "Pending", node="", deleted="x"),
        _pod("new", "Failed", created="3"),
        _pod("old", "Succeeded", created="2"),
    ]
    found = collected(pods, {"n1"}, threshold=1)
    assert [(each.pod.metadata.name, each.fail_first, each.is_orphan) for each in found] == [
        ("lost", True, True),
        ("leaves", True, False),
        ("old", False, False),
    ]


def test_left_over_means_that_no_owner_is_left() -> None:
    document = {"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b", "controller": True}]}}
    assert controller_of(document) == "b"
    assert not is_left_over(document, {"a"})
    assert is_left_over(document, {"c"})
    assert not is_left_over({"metadata": {}}, set())
