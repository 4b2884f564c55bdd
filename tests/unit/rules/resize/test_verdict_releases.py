"""Resizes of pods with exclusive resources, by release (07 §6)."""

from __future__ import annotations

import pytest

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.gates import Gates, resolved_gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.rules.resize.steps import pending_actuation
from plimsoll.rules.resize.verdict import PendingResize, queue_order
from tests.unit.rules.resize.resized_pods import ONE, container, node, pod, setting, verdict
from tests.unit.rules.resize.test_verdict import STATIC_MEMORY

OLD_CPUS = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
OLD_MEMORY = "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"


@pytest.mark.parametrize(
    ("release", "cpu_policy", "memory_policy"),
    [("1.31", "", ""), ("1.32", OLD_CPUS, ""), ("1.33", OLD_CPUS, OLD_MEMORY), ("1.34", "", STATIC_MEMORY)],
    ids=lambda each: each[-25:] or "accepted",
)
def test_exclusive_resources_by_release(release: str, cpu_policy: str, memory_policy: str) -> None:
    """07 §6: a resize of memory alone."""
    new = pod(container(cpu="1", memory="2Gi"))
    for around, message in (({"static_cpus": True}, cpu_policy), ({"static_memory": True}, memory_policy)):
        found = verdict(ONE, new, setting(profile=profile_named(release), **around))
        assert (found.decision, found.message) == (("Infeasible", message) if message else ("Accepted", ""))


def test_in_1_32_and_1_33_one_gate_is_for_cpus_and_memory() -> None:
    """RS-2: InPlacePodVerticalScalingExclusiveMemory came with 1.34."""
    new = pod(container(cpu="1", memory="2Gi"))
    for release, decision in (("1.33", "Accepted"), ("1.34", "Infeasible")):
        around = setting(profile=profile_named(release), static_memory=True, gates=Gates(exclusive_cpus=True))
        assert verdict(ONE, new, around).decision == decision


@pytest.mark.parametrize(
    ("release", "decision", "message"),
    [
        ("1.31", "Infeasible", "Node didn't have enough capacity: memory, requested: 8482979840, capacity: 8375186227"),
        ("1.33", "Infeasible", "Node didn't have enough capacity: memory, requested: 8482979840, capacity: 8375186227"),
        ("1.34", "Deferred", "Node didn't have enough resource: memory, requested: 8482979840, used: 0, capacity: 8375186227"),
        ("1.36", "Deferred", "Node didn't have enough resource: memory, requested: 8482979840, used: 0, capacity: 8375186227"),
    ],
)  # fmt: skip
def test_what_is_too_large_for_the_node(release: str, decision: str, message: str) -> None:
    """03 §6 step 6: up to 1.33 beyond the Node's allocatable, then beyond its absolute allocatable, 102.8 MB more."""
    old, new = pod(container(memory="1Gi", guaranteed=False)), pod(container(memory="8090Mi", guaranteed=False))
    around = setting(
        node=node(memory="8375186227"), profile=profile_named(release), absolute_allocatable={"memory": parse("8Gi")}
    )
    found = verdict(old, new, around)
    assert (found.decision, found.message) == (decision, message)


@pytest.mark.parametrize(("release", "decision"), [("1.30", "Accepted"), ("1.32", "Accepted"), ("1.33", "Infeasible")])
def test_swap_prevents_a_resize_of_memory_since_1_33(release: str, decision: str) -> None:
    """03 §6 step 3."""
    old = pod(container(memory="1Gi", guaranteed=False))
    new = pod(container(memory="2Gi", guaranteed=False))
    around = setting(profile=profile_named(release), may_swap=lambda _pod, _container: True)
    assert verdict(old, new, around).decision == decision


def test_the_queue_sees_the_class_that_the_gates_give() -> None:
    """03 §7, QC-2: an empty spec.resources decides the class up to 1.36, so only later the pod is Guaranteed."""
    old, new = container(cpu="1", memory="1Gi"), container(cpu="2", memory="1Gi")
    waiting = [
        PendingResize(pod(new, name=name, **fields), allocation_of(pod(old, name=name, **fields)), since_s)
        for name, since_s, fields in (("burstable", 1.0, {}), ("empty", 2.0, {"resources": {}}))
    ]
    waiting[0] = PendingResize(
        pod(container(cpu="2", guaranteed=False), name="burstable"), waiting[0].allocation, waiting[0].pending_since_s
    )
    for fixed, first in ((False, "burstable"), (True, "empty")):
        assert queue_order(waiting, Gates(fixed_class=fixed))[0].desired.metadata.name == first


TOO_LARGE = "Node didn't have enough capacity: cpu, requested: 6000, capacity: 4000"
OUT_OF_CPU = "Node didn't have enough resource: cpu, requested: 6000, used: 0, capacity: 4000"


@pytest.mark.parametrize(
    ("release", "message"), [("1.33", OUT_OF_CPU), ("1.34", TOO_LARGE), ("1.36", OUT_OF_CPU), ("documents", TOO_LARGE)]
)
def test_what_counts_as_too_large(release: str, message: str) -> None:
    """03 §6 step 6: the request as it is ranked for eviction; up to 1.33 a sidecar counts like any init container."""
    profile = profile_named(release)
    gates = resolved_gates(default_config(profile).feature_gates, profile)
    side = container("s", cpu="3", guaranteed=False, restartPolicy="Always")
    old, new = (pod(container(cpu=cpu, guaranteed=False), initContainers=[side]) for cpu in ("500m", "3"))
    found = verdict(old, new, setting(profile=profile, gates=gates))
    assert (found.decision, found.message) == ("Infeasible" if message == TOO_LARGE else "Deferred", message)


@pytest.mark.parametrize(
    ("release", "restarts"), [("1.32", []), ("1.33", ["c"]), ("1.37", ["c"]), ("documents", ["c"])]
)
def test_another_memory_request_restarts_since_1_33(release: str, restarts: list[str]) -> None:
    """03 §3.1: with RestartContainer for memory. Another limit restarts in every release."""
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    profile = profile_named(release)
    gates = resolved_gates(default_config(profile).feature_gates, profile)

    def made(request: str, limit: str) -> Pod:
        resources = {"requests": {"memory": request}, "limits": {"memory": limit}}
        return pod({"name": "c", "resources": resources, "resizePolicy": policy})

    began = allocation_of(made("1Gi", "2Gi"), gates)
    for new, expected in ((made("1500Mi", "2Gi"), restarts), (made("1Gi", "3Gi"), ["c"])):
        assert [each.name for each in pending_actuation(new, began, {"c"}, gates).restarts] == expected
