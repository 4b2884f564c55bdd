"""The settings of a resize verdict, from what a cluster reports about a node."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cli.resize.forecast import NodeSeen, node_setting
from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resize.verdict import ResizeSetting

CAPACITY = {"cpu": "8", "memory": "8Gi", "pods": "110"}
NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "capacity": CAPACITY,
        "allocatable": {**CAPACITY, "memory": "7Gi"},
        "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}],
    },
}


def pod(name: str, cpu: str, /, **limits: str) -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": limits}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    metadata = {"name": name, "namespace": "shop", "uid": name}
    return from_document({"metadata": metadata, "spec": spec}, Pod)


WEB, OTHER = pod("web", "1", cpu="1", memory="1Gi"), pod("other", "4", cpu="4", memory="1Gi")


def setting(config: dict[str, Any], profile: str = "documents") -> tuple[ResizeSetting, list[str]]:
    notes: list[str] = []
    return node_setting(NodeSeen(NODE, [WEB, OTHER], config), WEB, profile_named(profile), notes), notes


def test_the_setting_of_a_reported_node() -> None:
    found, notes = setting(
        {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0-1",
            "memoryManagerPolicy": "Static",
            "memorySwap": {"swapBehavior": "LimitedSwap"},
            "featureGates": {"InPlacePodVerticalScalingInitContainers": False, "InPlacePodVerticalScaling": False},
            "evictionHard": {"memory.available": "1Gi"},
            "aSettingOfTomorrow": True,
        }
    )
    assert notes == []
    assert (found.static_cpus, found.static_memory, found.enabled) == (True, True, False)
    assert (found.gates.init_containers, found.gates.pod_level_resize) == (False, True)
    assert found.absolute_allocatable is not None
    assert {name: str(found.absolute_allocatable[name]) for name in ("cpu", "memory")} == {"cpu": "6", "memory": "8Gi"}
    assert found.conditions == ("MemoryPressure",)
    assert found.may_swap(pod("b", "1", memory="2Gi"), pod("b", "1", memory="2Gi").spec.containers[0])
    assert list(found.load.residents) == ["other"]
    # 6 CPUs can be assigned, the other pod has 4 of them.
    assert found.cpu_refusal(pod("web", "2", cpu="2", memory="1Gi")) is None
    refusal = found.cpu_refusal(pod("web", "3", cpu="3", memory="1Gi"))
    assert refusal is not None
    assert "requested=3, available=2" in refusal.event_text


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({}, "the node does not report its configuration"),
        ({"systemReserved": {"cpu": "many"}}, "the configuration of the node cannot be read (systemReserved[cpu]"),
        ({"systemReserved": {"cpu": "9"}}, "the configuration of the node cannot be read"),
    ],
    ids=["not reported", "unreadable", "impossible"],
)
def test_unknown_facts_become_notes(config: dict[str, Any], note: str) -> None:
    found, notes = setting(config)
    assert [text.startswith(note) for text in notes] == [True], notes
    assert (found.absolute_allocatable, found.static_cpus, found.enabled) == (None, False, True)
    assert found.conditions == ("MemoryPressure",)


def test_a_node_that_is_not_ready() -> None:
    notes: list[str] = []
    status = {**NODE["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]}
    node_setting(NodeSeen({**NODE, "status": status}, [WEB], {"failSwapOn": False}), WEB, profile_named("1.36"), notes)
    assert notes == ["the node is not ready: it decides when it is ready again"]
