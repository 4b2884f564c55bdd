"""Advice: why a class, how to be Guaranteed, and what is dangerous."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings

from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.advice import guaranteed_changes, pod_warnings, qos_sentence, setting_warnings
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.qos import computed_qos_class
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, valid_pods

GI = 1 << 30


def setting_of(document: Json | None = None, profile: str = "1.36", version: int = 2, **options: Any) -> NodeConfig:
    config = reading(document, profile_named(profile)).config
    return resolved(Machine(4, 8 * GI, {}), config, profile_named(profile), cgroup_version=version, **options)


def pod(*blocks: Json, **fields: Any) -> Json:
    status = fields.pop("status", {})
    containers = [{"name": f"c{i}", "image": "i", "resources": block} for i, block in enumerate(blocks)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **fields}, "status": status}


FULL = {"limits": {"cpu": "1", "memory": "1Gi"}}
BURST = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}

SENTENCES = [
    ("Guaranteed", pod(FULL), "every container has cpu and memory limits, and its requests equal them"),
    ("BestEffort", pod({}), "no container has a cpu or memory request or limit"),
    ("missing both", pod(FULL, {}), "spec.containers[1] (c1) has no cpu and no memory limit, so the pod is not Guaranteed"),
    ("missing one", pod({"limits": {"cpu": "1"}}), "spec.containers[0] (c0) has no memory limit, so the pod is not Guaranteed"),
    ("differing", pod(BURST), "spec.containers[0] (c0) requests cpu 500m but its limit is 1, so the pod is not Guaranteed"),
    ("an init container", pod(FULL, initContainers=[{"name": "i", "image": "i"}]), "spec.initContainers[0] (i) has no cpu and no memory limit, so the pod is not Guaranteed"),
    ("pod level", pod({}, resources=FULL), "pod-level cpu and memory requests equal pod-level limits; containers are not considered"),
    ("pod level, empty", pod(FULL, resources={}), "spec.resources is set but names no cpu or memory; containers are not considered"),
    ("pod level, no limit", pod({}, resources={"requests": {"cpu": "1"}}), "spec.resources has no cpu and no memory limit, so the pod is not Guaranteed"),
    ("pod level, differing", pod({}, resources=BURST), "spec.resources: requests differ from limits, so the pod is not Guaranteed"),
    ("stored", pod({}, status={"qosClass": "Guaranteed"}), "that class is stored in the pod's status and never changes; by its spec it would be BestEffort"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "sentence"), [row[1:] for row in SENTENCES], ids=[row[0] for row in SENTENCES])
def test_why_this_class(document: Json, sentence: str) -> None:
    setting = setting_of()
    assert qos_sentence(workload(lean(document), setting), setting) == sentence


CHANGES = [
    ("a limit keeps its value", pod(BURST), [("spec.containers[0].resources.requests.cpu", "1")]),
    ("a lone request becomes the limit too", pod({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}), [("spec.containers[0].resources.limits.cpu", "2")]),
    ("nothing: any amount", pod({"limits": {"cpu": "1"}}), [("spec.containers[0].resources.limits.memory", "")]),
    ("nothing to do", pod(FULL), []),
    ("pod level", pod({}, resources=BURST), [("spec.resources.requests.cpu", "1")]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "changes"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_changes(document: Json, changes: list[tuple[str, str]]) -> None:
    setting = setting_of()
    found = guaranteed_changes(workload(lean(document), setting), setting)
    assert [(change.field, change.value) for change in found] == changes


def applied(document: Json, changes: list[Any]) -> Json:
    """The manifest with the advised fields set; where any amount will do, an ordinary one."""
    result = copy.deepcopy(document)
    for change in changes:
        match = re.fullmatch(r"spec(?:\.(\w+)\[(\d+)\])?\.resources\.(requests|limits)\.(\w+)", change.field)
        assert match is not None, change
        kind, index, part, name = match.groups()
        holder = result["spec"] if kind is None else result["spec"][kind][int(index)]
        block = holder.setdefault("resources", {})
        block[part] = {**(block.get(part) or {}), name: change.value or {"cpu": "4000", "memory": "64Ti"}[name]}
    return result


@settings(max_examples=examples(200), deadline=None)
@given(valid_pods(pod_level=False, stored=False))
def test_advice_on_containers_works(document: Json) -> None:
    setting = setting_of()
    changes = guaranteed_changes(workload(lean(document), setting), setting)
    after = defaulted(lean(applied(document, changes)))
    assert computed_qos_class(after) == "Guaranteed", changes
    assert create_errors(after) == []
    assert bool(changes) == (computed_qos_class(defaulted(lean(document))) != "Guaranteed")


@settings(max_examples=examples(200), deadline=None)
@given(valid_pods(stored=False).filter(lambda document: "resources" in document["spec"]))
def test_advice_on_pod_level_works(document: Json) -> None:
    setting = setting_of()
    changes = guaranteed_changes(workload(lean(document), setting), setting)
    after = defaulted(lean(applied(document, changes)))
    assert computed_qos_class(after) == "Guaranteed", changes
    assert create_errors(after) == []


# The smallest pods for which advice is hard.
HARD = [
    ("a request of zero is set for D-1 and absent for QC-1", pod({"requests": {"cpu": "0", "memory": "0"}})),
    ("the same at pod level", pod({}, resources={"requests": {"cpu": "0", "memory": "0"}})),
    ("D-2b takes the pod's request from the containers", pod({"requests": {"memory": "64Mi"}}, resources={"requests": {"cpu": "5"}})),
    ("V-26 a container's limit above the pod's request", pod({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, resources={"limits": {"memory": "1Gi"}})),
]  # fmt: skip


@pytest.mark.parametrize("document", [row[1] for row in HARD], ids=[row[0] for row in HARD])
def test_hard_advice(document: Json) -> None:
    setting = setting_of()
    after = defaulted(lean(applied(document, guaranteed_changes(workload(lean(document), setting), setting))))
    assert computed_qos_class(after) == "Guaranteed"
    assert create_errors(after) == []


# --- warnings ---

TIERED = {"featureGates": {"MemoryQoS": True}, "memoryReservationPolicy": "TieredReservation"}
MEMORY_QOS = {"featureGates": {"MemoryQoS": True}}
WARNINGS = [
    ("memory.min equals memory.max", setting_of(MEMORY_QOS, "documents"), pod(FULL), "memory.min equals memory.max"),
    ("a wide gap below the limit", setting_of(MEMORY_QOS), pod({"limits": {"memory": "20Gi"}, "requests": {"memory": "1Gi"}}), "between memory.high and memory.max"),
    ("below the quota floor", setting_of(), pod({"limits": {"cpu": "5m"}}), "quota floor"),
    ("a thousandth of a byte", setting_of(), pod({"requests": {"memory": "128m"}}), "a suffix may be missing"),
    ("too large for the node", setting_of(), pod({"requests": {"cpu": "5"}}), "requests cpu 5 but the node offers 4"),
    ("a device the node lacks", setting_of(), pod({"limits": {"nvidia.com/gpu": "1"}}), "the node offers none"),
    ("one container without a limit", setting_of(), pod(BURST, {}), "removes the pod's own memory limit"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "document", "words"), [row[1:] for row in WARNINGS], ids=[row[0] for row in WARNINGS]
)
def test_warnings(setting: NodeConfig, document: Json, words: str) -> None:
    assert [text for text in pod_warnings(workload(lean(document), setting), setting) if words in text]


def test_an_ordinary_pod_has_none() -> None:
    setting = setting_of()
    assert pod_warnings(workload(lean(pod(FULL)), setting), setting) == []
    assert pod_warnings(workload(lean(pod({"requests": {"ephemeral-storage": "1Gi"}})), setting), setting) == []


FLOORS = [
    ("100 ms: 9m is below", "100ms", "9m", True),
    ("100 ms: 10m is not", "100ms", "10m", False),
    ("1 s: 5m is a quota of 5000 µs", "1s", "5m", False),
    ("10 ms: 50m would be 500 µs", "10ms", "50m", True),
]


@pytest.mark.parametrize(
    ("period", "limit", "warned"), [row[1:] for row in FLOORS], ids=[f"02 §4.3 {row[0]}" for row in FLOORS]
)
def test_the_quota_floor_depends_on_the_period(period: str, limit: str, warned: bool) -> None:
    setting = setting_of({"cpuCFSQuotaPeriod": period})
    found = pod_warnings(workload(lean(pod({"limits": {"cpu": limit}})), setting), setting)
    assert any("floor" in text for text in found) is warned


def test_no_floor_where_quotas_are_off() -> None:
    setting = setting_of({"cpuCFSQuota": False})
    assert not any(
        "floor" in text for text in pod_warnings(workload(lean(pod({"limits": {"cpu": "5m"}})), setting), setting)
    )


NODES = [
    ("Memory QoS on v1", setting_of({**MEMORY_QOS, "failCgroupV1": False}, version=1), "no effect on cgroup v1"),
    ("memory.min for all", setting_of(MEMORY_QOS, "documents"), "starve page cache"),
    ("Tiered", setting_of(TIERED), "memory_recursiveprot"),
    ("no eviction", setting_of({"evictionHard": {"nodefs.available": "5%"}}), "the kernel's OOM killer acts before"),
    ("systemd", setting_of(driver="systemd"), "whole percents"),
]


@pytest.mark.parametrize(("setting", "words"), [row[1:] for row in NODES], ids=[row[0] for row in NODES])
def test_node_warnings(setting: NodeConfig, words: str) -> None:
    assert [text for text in setting_warnings(setting) if words in text]


def test_an_ordinary_node_has_none() -> None:
    assert setting_warnings(setting_of()) == []


@settings(max_examples=examples(100), deadline=None)
@given(valid_pods(), node_settings(static_cpus=None))
def test_there_is_always_a_sentence(document: Json, setting: NodeConfig) -> None:
    work = workload(lean(document), setting)
    sentence = qos_sentence(work, setting)
    assert sentence
    assert "differ in sum" not in sentence, "QC-5: a valid pod has one container to name"
    for change in guaranteed_changes(work, setting):
        assert not change.value or parse(change.value)
    assert all(pod_warnings(work, setting))
    assert all(setting_warnings(setting))
