"""What 1.37 does differently from 1.36 when a pod is resized, one test for each point of its list."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.rules.admission.resize import kept_for_resize, resize_errors
from plimsoll.rules.config.gates import gate_in
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resize.allocation import allocated_document, allocation_of
from plimsoll.rules.resize.status import kernel_values
from plimsoll.rules.resize.verdict import ResizeSetting, ResizeVerdict, resize_verdict
from plimsoll.rules.resources.cpu import shares_from_weight, weight_linear
from plimsoll.rules.resources.values import Values
from plimsoll.rules.scheduling.fit import allocated_load
from tests.unit.rules.release_pods import both, container, gates_of, pod
from tests.unit.strategies import lean


def test_r1_resize_of_init_containers_is_locked() -> None:
    found = both(lambda release: gate_in("InPlacePodVerticalScalingInitContainers", release))
    assert list(map(str, found)) == ["on beta", "on GA, locked"]


def resize(release: str, old: dict[str, Any], new: dict[str, Any], **gates: bool) -> list[str]:
    profile = profile_named(release)
    using = msgspec.structs.replace(gates_of(release), **gates)
    stored, sent = with_defaults(old, gates=using), with_defaults(new, gates=using)
    return [error.detail for error in resize_errors(stored, sent, using, profile)]


def test_r3_volumes_are_checked() -> None:
    old, new = (
        pod(
            container(requests={"cpu": "1"}), volumes=[{"name": "v", "emptyDir": {"medium": medium, "sizeLimit": size}}]
        )
        for medium, size in (("Memory", "1Gi"), ("Memory", "2Gi"))
    )
    disabled = "InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled"
    assert resize("1.37", old, new) == [f"volumes are immutable on resize when {disabled}"]
    assert resize("1.37", old, new, memory_volumes=True) == []
    assert resize("1.36", old, new) == ["only cpu and memory resources are mutable"]
    using = msgspec.structs.replace(gates_of("1.37"), memory_volumes=True)
    assert kept_for_resize(old, new, using, profile_named("1.37"))["spec"]["volumes"] == new["spec"]["volumes"]
    assert (
        kept_for_resize(old, new, gates_of("1.37"), profile_named("1.37"))["spec"]["volumes"] == old["spec"]["volumes"]
    )


def allocated(name: str, **amounts: str) -> dict[str, Any]:
    given = pod(container(requests=amounts))
    return {**given, "metadata": {"name": name, "namespace": "kube-system", "uid": name}}


def verdict_of(
    desired: dict[str, Any], stored: dict[str, Any], *others: dict[str, Any], **around: Any
) -> ResizeVerdict:
    amounts = {"cpu": QUANTITIES["4"], "memory": QUANTITIES["8Gi"], "pods": QUANTITIES["10"]}
    machine = Node(Metadata("n"), status=NodeStatus(amounts, amounts))
    using = around.pop("gates", gates_of("1.37"))
    load = allocated_load(machine, map(lean, others))
    setting = ResizeSetting(load, profile_named("1.37"), using, **around)
    return resize_verdict(lean(desired), allocation_of(lean(stored), using), setting)


def test_r4_the_scheduler_preempts_for_a_resize() -> None:
    """With its gate, off by default, the node no longer preempts for a critical pod: the resize is deferred."""
    assert gate_in("InPlacePodVerticalScalingSchedulerPreemption", "1.36") is None
    critical = {"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"}
    stored, desired = (allocated("web", cpu=cpu) for cpu in ("1", "3"))
    for each in (stored, desired):
        each["spec"].update(critical)
    low = allocated("low", cpu="3")
    found = verdict_of(desired, stored, low)
    assert (found.decision, [each.metadata.name for each in found.victims]) == ("Accepted", ["low"])
    using = msgspec.structs.replace(gates_of("1.37"), scheduler_preempts=True)
    assert verdict_of(desired, stored, low, gates=using).decision == "Deferred"


def test_r6_what_still_cannot_be_resized() -> None:
    equal = [{"cpu": cpu, "memory": "1Gi"} for cpu in ("1", "2")]
    stored, desired = (pod(container(requests=each, limits=each)) for each in equal)
    found = verdict_of(desired, stored, static_cpus=True)
    assert (found.decision, found.label) == ("Infeasible", "guaranteed_pod_cpu_manager_static_policy")
    bigger = {"cpu": "1", "memory": "2Gi"}
    found = verdict_of(pod(container(requests=bigger, limits=bigger)), stored, static_memory=True)
    assert (found.decision, found.label) == ("Infeasible", "guaranteed_pod_memory_manager_static_policy")
    small, large = (pod(container(requests={"memory": memory})) for memory in ("1Gi", "2Gi"))
    found = verdict_of(large, small, may_swap=lambda _pod, _container: True)
    assert (found.decision, found.label) == ("Infeasible", "swap_limitation")
    limited = pod(container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "2Gi"}))
    assert resize("1.37", stored, limited) == ["Pod QOS Class may not change as a result of resizing"]
    for gate in ("InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory"):
        assert str(gate_in(gate, "1.37")) == "off alpha"


def test_r7_a_weight_that_lost_precision_is_the_allocated_request() -> None:
    """100 mCPU are 102 shares, weight 4; weight 4 alone is 80 shares, so 78 mCPU."""
    actuated = Values(cpu_shares=102)
    assert weight_linear(102) == 4 and shares_from_weight(4) == 80
    assert kernel_values({"cpu.weight": "4"}, actuated, 2).cpu_shares == 102
    assert kernel_values({"cpu.weight": "5"}, actuated, 2).cpu_shares == shares_from_weight(5), (
        "another process wrote it"
    )


def test_r9_allocated_pods_and_the_gate() -> None:
    """`/allocatedPods` (tests/unit/node/server) needs its gate; a pod is shown with its allocation and no status."""
    assert list(map(str, both(lambda release: gate_in("KubeletAllocatedPodsEndpoint", release)))) == [
        "None",
        "off alpha",
    ]
    stored = pod(container(requests={"cpu": "1"}), container("c1"), resources={"requests": {"cpu": "2"}})
    desired = pod(container(requests={"cpu": "3"}), container("c1"), resources={"requests": {"cpu": "4"}})
    shown = allocated_document({**desired, "status": {"phase": "Running"}}, allocation_of(lean(stored)))
    assert shown["status"] == {}
    assert [each["resources"] for each in shown["spec"]["containers"]] == [{"requests": {"cpu": "1"}}, {}]
    assert shown["spec"]["resources"] == {"requests": {"cpu": "2"}}


def test_r5_pods_with_claims_may_be_resized() -> None:
    claims = {"status": {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "r", "containers": ["c0"]}]}}
    old = pod(container(requests={"cpu": "1"})) | claims
    new = pod(container(requests={"cpu": "2"})) | claims
    found = both(lambda release: resize(release, old, new))
    assert found == (["pods with node allocatable resource claims cannot be resized"], [])


def test_a_dropped_pod_level_is_kept() -> None:
    old = pod(container(requests={"cpu": "1"}), resources={"requests": {"cpu": "2"}})
    new = pod(container(requests={"cpu": "1"}))
    kept = both(
        lambda release: kept_for_resize(old, new, gates_of(release), profile_named(release))["spec"].get("resources")
    )
    assert kept == (None, {"requests": {"cpu": "2"}})
