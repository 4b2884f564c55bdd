"""What no table of expected.yaml says about document 000: memory QoS."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.explain.advice import pod_warnings, setting_warnings
from plimsoll.rules.model.objects import Node
from plimsoll.rules.model.observed import CriResources
from plimsoll.rules.profile import PROFILE_NAMES, profile_named
from plimsoll.rules.resources.cri import cri_resources
from plimsoll.rules.scheduling.fit import node_load, verdict, waiting_load
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    DOCUMENTS,
    Json,
    amount,
    at,
    cgroups,
    config_problems,
    lean,
    manifest,
    node,
    one_container,
    read_config,
    tree,
    work,
    written,
)

CHECKS = Checks()
row = CHECKS.row


@row("000-01")
def memory_qos_is_off_and_its_formula_is_that_of_documents() -> None:
    assert PROFILE_NAMES[0] == "documents"
    assert not any(default_config(profile).gate("MemoryQoS") for profile in map(profile_named, ("documents", "1.36")))
    # 1.26 had 0.8 × limit: 335544320 for 300Mi/400Mi. The table beside this has what both profiles give.
    assert {
        default_config(profile).memory_throttling_factor for profile in map(profile_named, ("documents", "1.36"))
    } == {0.9}


@row("000-04", "004-54")
def requests_may_add_up_to_allocatable_exactly() -> None:
    setting = node()
    here = Node(status=msgspec.structs.replace(Node().status, allocatable=setting.allocatable))
    load = node_load(here, [lean(one_container({"cpu": "45", "memory": "1Gi"}))], setting.profile)

    def fits(requests: Json) -> bool:
        document = one_container(requests)
        document["metadata"]["uid"] = "another"
        return verdict(waiting_load(lean(document)), load, setting.profile).fits

    assert fits({"cpu": "1"}) and not fits({"cpu": "1001m"})
    assert fits({"memory": "257437680Ki"}) and not fits({"memory": "257437681Ki"})  # 258486256 − 1048576
    assert fits({"cpu": "0", "memory": "0"})


def runtime_resources(file: str, **asked: Any) -> CriResources:
    """LinuxContainerResources of the one container, on document 004's node."""
    found = work(file, node(**asked))
    (values,), (score,) = found.container_values, found.scores
    return cri_resources(values, score)


@row("000-06")
def the_message_to_the_runtime() -> None:
    assert runtime_resources("000-example.yaml", version=1) == CriResources(
        cpu_shares=256,
        cpu_quota_us=50000,
        cpu_period_us=100000,
        memory_limit_bytes=67108864,
        memory_swap_limit_bytes=67108864,
        oom_score_adj=999,
    )


@row("000-25")
def protection_travels_in_unified() -> None:
    without = runtime_resources("000-example.yaml")
    assert "memory.min" not in without.unified
    resources = runtime_resources("000-example.yaml", gates={"MemoryQoS": True})
    assert resources.unified == {**without.unified, "memory.min": "67108864"}
    assert runtime_resources("000-example.yaml", version=1, gates={"MemoryQoS": True}).unified == {}


@row("000-08")
def without_the_gate_nothing_is_protected() -> None:
    for profile in ("documents", "1.36"):
        top = tree(node(profile=profile), "000-example.yaml", "003-demo.yaml")
        names = {file for _, file, _ in written(top)}
        assert "memory.max" in names
        assert names.isdisjoint({"memory.min", "memory.low", "memory.high"})


@row("000-10")
def v1_has_no_memory_qos() -> None:
    files = [each.name for each in DOCUMENTS.glob("00[0-4]-*.yaml") if manifest(each.name)["kind"] == "Pod"]
    for profile in ("documents", "1.36"):
        on, off = (node(profile=profile, version=1, gates={"MemoryQoS": gate}) for gate in (True, False))
        assert written(tree(on, *files)) == written(tree(off, *files))
        assert any("no effect on cgroup v1" in warning for warning in setting_warnings(on))
        assert not any("MemoryQoS" in warning for warning in setting_warnings(off))


@row("000-11")
def memory_that_can_never_be_reclaimed_is_warned_of() -> None:
    setting = node(gates={"MemoryQoS": True})
    assert any("memory.min equals memory.max" in each for each in pod_warnings(work("003-demo.yaml", setting), setting))
    assert pod_warnings(work("004-busybox.yaml", setting), setting) == []


@row("000-14")
def group_kill_came_after_documents() -> None:
    assert at(tree(node(), "002-qos-demo.yaml"), "container").value("memory.oom.group") is None
    v1 = tree(node(profile="1.36", version=1), "002-qos-demo.yaml")
    assert at(v1, "container").value("memory.oom.group") is None


@row("000-16")
def limit_is_no_part_of_memory_qos() -> None:
    for gate in (False, True):
        top = tree(node(gates={"MemoryQoS": gate}), "000-example.yaml")
        assert [at(top, level).value("memory.max") for level in ("pod", "container")] == [67108864, 67108864]


@row("000-18")
def profile_documents_never_writes_memory_low() -> None:
    pods = ("000-example.yaml", "003-demo.yaml", "002-besteffort.yaml")
    names = {file for _, file, _ in written(tree(node(gates={"MemoryQoS": True}), *pods))}
    assert {"memory.max", "memory.min", "memory.high"} <= names and "memory.low" not in names


@row("000-20")
def throttling_factor_lies_above_0_and_up_to_1() -> None:
    for profile in ("documents", "1.36"):
        assert read_config(None, profile).config.memory_throttling_factor == 0.9
        assert read_config(None, profile, settings={"memoryThrottlingFactor": 1}).config.memory_throttling_factor == 1
    for factor in (0, -0.1, 1.01):
        assert list(config_problems({"memoryThrottlingFactor": factor})) == ["memoryThrottlingFactor"]


@row("000-22")
def absolute_allocatable_stands_in_for_the_limit() -> None:
    setting = node(gates={"MemoryQoS": True})
    assert setting.policy.allocatable_memory_bytes == 265214214144
    assert setting.allocatable["memory"] == amount("258486256Ki") != amount("265214214144")


@row("000-24")
def only_containers_are_throttled() -> None:
    for profile in ("documents", "1.36"):
        top = tree(node(profile=profile, gates={"MemoryQoS": True}), "004-busybox.yaml")
        assert {each.level for each in cgroups(top) if each.value("memory.high") is not None} == {"container"}


@row("000-26")
def container_without_request_has_no_memory_min() -> None:
    top = tree(node(gates={"MemoryQoS": True}), "002-burstable-bar-empty.yaml")
    assert at(top, "container", "bar").value("memory.min") is None


@row("000-27")
def every_ancestor_carries_memory_min() -> None:
    top = tree(node(gates={"MemoryQoS": True}), "004-busybox.yaml")
    for level, name in (("pods", ""), ("class", "Burstable"), ("pod", ""), ("container", "")):
        assert at(top, level, name).value("memory.min") == 314572800, level


@row("000-36")
def note_says_that_real_1_27_did_otherwise() -> None:
    top = tree(node(gates={"MemoryQoS": True}), "002-besteffort.yaml")
    (high,) = (file for file in at(top, "container", "foo").files if file.name == "memory.high")
    assert "real 1.27 did not" in high.reason.note


@row("000-40")
def memory_qos_configuration() -> None:
    for profile in ("documents", "1.36"):
        found = read_config("000-kubelet-memory-qos.yaml", profile)
        assert found.config.gate("MemoryQoS") and found.config.memory_throttling_factor == 0.9
        assert (found.without_effect, found.notes) == ([], [])
