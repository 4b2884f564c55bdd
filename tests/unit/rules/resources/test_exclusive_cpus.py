"""Exclusive CPUs under the static policy (spec 02 §10)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.exclusive_cpus import exclusive_cpus, pod_exclusive_cpus
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import qos_class
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, valid_pods

STATIC = NodePolicy(1 << 33, static_cpus=True)
NONE = NodePolicy(1 << 33)
FIXED = NodePolicy(1 << 33, static_cpus=True, gates=Gates(fixed_class=True))  # 1.37: the class is the containers'
MANAGED = NodePolicy(1 << 33, static_cpus=True, pod_level_unmanaged=False)


def container(name: str, cpu: str, *, sidecar: bool = False) -> Json:
    return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}} | (
        {"restartPolicy": "Always"} if sidecar else {}
    )


def counted(
    policy: NodePolicy, *containers: Json, inits: tuple[Json, ...] = (), **fields: object
) -> tuple[list[int], int]:
    pod = defaulted(lean({"spec": {"containers": list(containers), "initContainers": list(inits), **fields}}))
    qos = qos_class(pod, gates=policy.gates)
    each = [exclusive_cpus(pod, c, qos, policy) for c in pod.spec.init_containers + pod.spec.containers]
    return each, pod_exclusive_cpus(pod, qos, policy)


ROWS = [
    ("whole", counted(STATIC, container("a", "2")), ([2], 2)),
    ("whole in milli", counted(STATIC, container("a", "3000m")), ([3], 3)),
    ("a fraction runs on the shared CPUs", counted(STATIC, container("a", "1500m")), ([0], 0)),
    ("below one", counted(STATIC, container("a", "500m")), ([0], 0)),
    ("per container", counted(STATIC, container("a", "2"), container("b", "500m")), ([2, 0], 2)),
    ("policy none", counted(NONE, container("a", "2")), ([0], 0)),
    ("Burstable", counted(STATIC, container("a", "2"), {"name": "b"}), ([0, 0], 0)),
    ("pod-level resources", counted(STATIC, container("a", "2"), resources={"limits": {"cpu": "2", "memory": "1Gi"}}), ([0], 0)),
    ("an empty block is none", counted(FIXED, container("a", "2"), resources={}), ([2], 2)),
    ("pod-level resources before 1.34", counted(MANAGED, container("a", "2"), resources={"limits": {"cpu": "2", "memory": "1Gi"}}), ([2], 2)),
    ("plain inits hand theirs on", counted(STATIC, container("a", "2"), inits=(container("i", "3"), container("j", "1"))), ([3, 1, 2], 3)),
    ("sidecars keep theirs", counted(STATIC, container("a", "2"), inits=(container("s", "1", sidecar=True), container("i", "3"))), ([1, 3, 2], 4)),
]  # fmt: skip


@pytest.mark.parametrize(("got", "expected"), [row[1:] for row in ROWS], ids=[f"02 §10 {row[0]}" for row in ROWS])
def test_who_owns_cpus(got: tuple[list[int], int], expected: tuple[list[int], int]) -> None:
    assert got == expected


@settings(max_examples=examples(100), deadline=None)
@given(valid_pods(), node_settings(static_cpus=True))
def test_properties(document: Json, setting) -> None:
    policy = setting.policy
    pod = defaulted(lean(document), gates=policy.gates)
    qos = qos_class(pod, gates=policy.gates)
    total = pod_exclusive_cpus(pod, qos, policy)
    own = [exclusive_cpus(pod, each, qos, policy) for each in pod.spec.init_containers + pod.spec.containers]
    assert max(own, default=0) <= total <= sum(own)
    if qos != "Guaranteed":
        assert total == 0
    for container, cpus in zip(pod.spec.init_containers + pod.spec.containers, own, strict=True):
        if cpus:
            assert container.resources.requests["cpu"].milli == 1000 * cpus
