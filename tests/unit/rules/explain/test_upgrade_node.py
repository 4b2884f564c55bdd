"""What the new kubelet refuses, reads otherwise or no longer reports."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.config.parse import config_document, default_config, reading
from plimsoll.rules.explain.upgrade import Change
from plimsoll.rules.explain.upgrade_advice import REMOVED_FLAGS
from plimsoll.rules.explain.upgrade_node import (
    flag_changes,
    metric_changes,
    read_both,
    start_changes,
    without,
    without_defaults,
)
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.profile import RELEASES, profile_named
from tests.unit.strategies import Json


def found(document: Json, first: str, second: str, version: CgroupVersion = 2) -> list[Change]:
    old, new = profile_named(first), profile_named(second)
    read = read_both(document, old, new, {})
    return [change for change, _ in start_changes("n1", document, read, old, new, version)]


def gates(**on: bool) -> Json:
    return {"featureGates": on}


STARTS = [
    # id, configuration, releases, cgroup version, (what, part of the reason), breaks
    ("a gate that is gone", gates(SidecarContainers=True), "1.36", "1.37", 2, "featureGates[SidecarContainers]",
     "unrecognized feature gate: SidecarContainers", True),
    ("a gate that is locked", gates(NodeSwap=False), "1.33", "1.34", 2, "featureGates[NodeSwap]",
     "cannot set feature gate NodeSwap to false, feature is locked to true", True),
    ("a gate that others need", gates(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False),
     "1.36", "1.37", 2, "featureGates[PodLevelResources]", "PodLevelResourcesFixDefaulting is on by default", True),
    ("a factor without its gate", {"memoryThrottlingFactor": 0.8, **gates(MemoryQoS=False)}, "1.36", "1.37", 2,
     "memoryThrottlingFactor", "must not be set when MemoryQoS feature gate is disabled", True),
    ("UnlimitedSwap", {"memorySwap": {"swapBehavior": "UnlimitedSwap"}, **gates(NodeSwap=True)}, "1.29", "1.30", 2,
     "memorySwap.swapBehavior", "must be NoSwap or LimitedSwap", True),
    ("cgroup v1", {}, "1.34", "1.35", 1, "cgroup v1", "refused", True),
    ("cgroup v1, later", {}, "1.30", "1.37", 1, "cgroup v1", "refused", True),
    ("events without limit", {"eventRecordQPS": 0}, "1.36", "1.37", 2, "eventRecordQPS: 0", "no limit", False),
]  # fmt: skip


@pytest.mark.parametrize("row", STARTS, ids=[row[0] for row in STARTS])
def test_what_the_new_kubelet_refuses(row: tuple[Any, ...]) -> None:
    _, document, first, second, version, what, reason, breaks = row
    changes = [each for each in found(document, first, second, version) if each.what == what]
    assert changes and reason in changes[0].new
    assert {each.breaks for each in changes} == {breaks}
    assert {each.what for each in found(document, first, second, version)} == {what}


CLEAN = [
    ("cgroup v2", {}, "1.34", "1.37", 2),
    ("cgroup v1, tolerated", {"failCgroupV1": False}, "1.34", "1.37", 1),
    ("cgroup v1, refused before", {}, "1.35", "1.37", 1),
    ("the former default factor", {"memoryThrottlingFactor": 0.9, **gates(MemoryQoS=False)}, "1.36", "1.37", 2),
    ("a gate with its own value", gates(NodeSwap=True), "1.33", "1.34", 2),
    ("a rate", {"eventRecordQPS": 5}, "1.36", "1.37", 2),
    ("unknown to both", {"noSuchSetting": 1}, "1.36", "1.37", 2),
]


@pytest.mark.parametrize("row", CLEAN, ids=[row[0] for row in CLEAN])
def test_what_stays(row: tuple[Any, ...]) -> None:
    assert found(*row[1:]) == []


def test_flags_are_read_like_the_file() -> None:
    old, new = profile_named("1.33"), profile_named("1.34")
    flags = {"featureGates": ["NodeSwap=false,MemoryQoS=true"], "maxPods": ["many"]}
    read = read_both({}, old, new, flags)
    assert [error.path for error in read.refused] == ["featureGates[NodeSwap]"]
    assert read.new.gate("MemoryQoS") and read.new.max_pods == 110
    assert [note.partition(":")[0] for note in read.notes] == ["--max-pods"]


def test_what_no_release_can_use_is_a_note() -> None:
    document = {"noSuchSetting": 1, "topologyManagerPolicy": "no-such-policy", "maxPods": 50}
    read = read_both(document, profile_named("1.36"), profile_named("1.37"), {})
    assert len(read.notes) == 2 and read.old.max_pods == read.new.max_pods == 50


@pytest.mark.parametrize("release", RELEASES)
def test_defaults_that_configz_writes_out_are_not_settings(release: str) -> None:
    profile = profile_named(release)
    shown = config_document(default_config(profile), profile)
    left = without_defaults(shown, profile, gates_too=True)
    assert {key for key, value in left.items() if value not in ({}, None)} <= {"apiVersion", "kind"}
    kept = without_defaults(
        config_document(reading({"maxPods": 77, "evictionSoft": {}}, profile).config, profile), profile, gates_too=True
    )
    assert kept["maxPods"] == 77


def test_a_gate_that_a_kubelet_shows_was_set() -> None:
    shown = {"failCgroupV1": False, **gates(SidecarContainers=True)}
    left = without_defaults(shown, profile_named("1.34"), gates_too=False)
    assert left == gates(SidecarContainers=True)
    assert [each.what for each in found(left, "1.34", "1.37", 1)] == ["featureGates[SidecarContainers]", "cgroup v1"]


def test_without() -> None:
    document = {"a": {"b": 1, "c": 2}, "d": 3}
    assert without(document, "a.b") == {"a": {"c": 2}, "d": 3}
    assert without(document, "a[b]") == {"a": {"c": 2}, "d": 3}
    assert without(document, "d.e") == {"a": {"b": 1, "c": 2}}
    assert without(document, "x") == document


def test_flags() -> None:
    text = 'KUBELET_ARGS="--node-ip=10.0.0.1 --pod-infra-container-image=pause --storage_driver_db x --v=2"'
    old, new = profile_named("1.34"), profile_named("1.37")
    changes = list(flag_changes("n1", text, old, new))
    assert [each.what for each in changes] == ["--pod-infra-container-image", "--storage-driver-db"]
    assert all(each.breaks and each.node == "n1" for each in changes)
    assert [each.what for each in flag_changes("n1", text, profile_named("1.35"), new)] == ["--storage-driver-db"]
    assert list(flag_changes("n1", "--containerd-like --x", old, new)) == []
    assert sum(each.release == "1.37" for each in REMOVED_FLAGS.values()) == 18


def test_metrics_are_found_as_tokens() -> None:
    lines = [
        'expr: sum(rate(container_tasks_state{state="stopped"}[5m]))',
        "expr: my_container_tasks_state + container_tasks_state_total",
        '"expr": "container_application_requests / kubelet_resource_manager_allocations_total"',
    ]
    old, new = profile_named("1.36"), profile_named("1.37")
    changes = list(metric_changes("a.yaml", enumerate(lines, 1), old, new))
    assert [(each.subject, each.what) for each in changes] == [
        ("a.yaml:1", "container_tasks_state"),
        ("a.yaml:3", "container_application_requests"),
    ]
    assert list(metric_changes("a.yaml", enumerate(lines, 1), profile_named("1.35"), old)) == []
