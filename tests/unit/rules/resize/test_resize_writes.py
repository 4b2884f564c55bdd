"""Which files a resize changes, and in which order (02 §9)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.cgroups.desired import Workload, workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.steps import resize_writes

PROFILE = profile_named("documents")
MACHINE = machine_from_capacity({"cpu": parse("8"), "memory": parse("8Gi")})


def setting(version: Any = 2) -> NodeConfig:
    return resolved(MACHINE, reading(None, PROFILE).config, PROFILE, cgroup_version=version)


def work(node: NodeConfig, *amounts: tuple[str, str], restart: str = "", burstable: bool = False) -> Workload:
    policy = {"resizePolicy": [{"resourceName": restart, "restartPolicy": "RestartContainer"}]} if restart else {}
    containers = []
    for index, (cpu, memory) in enumerate(amounts):
        lists: dict[str, Any] = {"requests": {"cpu": cpu, "memory": memory}}
        if not burstable:
            lists["limits"] = lists["requests"]
        containers.append({"name": f"c{index}", "image": "i", "resources": lists, **policy})
    document = {"metadata": {"name": "web", "uid": "u"}, "spec": {"containers": containers}}
    return workload(from_document(document, Pod), node)


ROWS: list[tuple[str, list[tuple[str, str]], list[tuple[str, str]], list[str]]] = [
    ("grow: the pod first", [("1", "1Gi")], [("1", "2Gi")], ["web memory.max", "c0 memory.max"]),
    ("shrink: the container first", [("1", "2Gi")], [("1", "1Gi")], ["c0 memory.max", "web memory.max"]),
    (
        "memory before cpu",
        [("1", "1Gi")],
        [("2", "2Gi")],
        ["web memory.max", "c0 memory.max", "web cpu.max", "web cpu.weight", "c0 cpu.weight", "c0 cpu.max"],
    ),
    (
        "one down, one up: down first, the pod untouched",
        [("1", "1Gi"), ("1", "2Gi")],
        [("1", "2Gi"), ("1", "1Gi")],
        ["c1 memory.max", "c0 memory.max"],
    ),
    ("nothing", [("1", "1Gi")], [("1", "1Gi")], []),
]


@pytest.mark.parametrize(("before", "after", "order"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_order(before: list[tuple[str, str]], after: list[tuple[str, str]], order: list[str]) -> None:
    node = setting()
    found = resize_writes(work(node, *before), work(node, *after), [], node)
    assert [f"{each.name} {each.file}" for each in found] == order
    assert {each.how for each in found} <= {"resize"}


def test_the_document_s_numbers_on_v1() -> None:
    """Document 003: 1 → 2 CPUs, quota 200000 of 100000, no other file but the shares."""
    node = setting(1)
    found = resize_writes(work(node, ("1", "200Mi")), work(node, ("2", "200Mi")), [], node)
    values = {(each.level, each.file): (each.before, each.after) for each in found}
    assert values == {
        (level, file): pair
        for level in ("pod", "container")
        for file, pair in (("cpu.cfs_quota_us", (100000, 200000)), ("cpu.shares", (1024, 2048)))
    }


def test_a_container_that_is_restarted_gets_its_values_with_the_new_start() -> None:
    node = setting()
    found = resize_writes(
        work(node, ("1", "200Mi"), restart="memory"), work(node, ("1", "500Mi"), restart="memory"), [], node
    )
    assert [(each.name, each.file, each.after, each.how) for each in found] == [
        ("web", "memory.max", 524288000, "resize"),
        ("c0", "memory.max", 524288000, "restart"),
    ]


def test_sums_of_the_class_follow() -> None:
    node = setting()
    found = resize_writes(work(node, ("1", "1Gi"), burstable=True), work(node, ("3", "2Gi"), burstable=True), [], node)
    follows = {(each.level, each.name, each.file) for each in found if each.how == "follows"}
    assert ("class", "Burstable", "cpu.weight") in follows
    assert ("container", "c0", "oom_score_adj") in follows
    assert all(each.how == "follows" for each in found[len(found) - len(follows) :])
