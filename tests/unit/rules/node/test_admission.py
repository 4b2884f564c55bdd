"""Whether the node takes a pod: order of the checks, texts, and room for critical pods (03 §6, 04 §8, §9)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.node.admission import AdmissionRefusal, Admitted, admit
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.scheduling.fit import allocated_load

CRITICAL = 2_000_000_000


def pod(name: str = "p", cpu: str = "", memory: str = "", *, metadata: Any = None, **spec: Any) -> Pod:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    container = {"name": "c", "resources": {"requests": requests}, "ports": spec.pop("ports", [])}
    document = {
        "metadata": {"name": name, "uid": name, **(metadata or {})},
        "spec": {"containers": [container], **spec},
    }
    return from_document(document, Pod)


def node(cpu: str = "4", memory: str = "8Gi", pods: str = "110", labels: Any = None, taints: Any = ()) -> Node:
    document = {
        "metadata": {"name": "n", "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}},
    }
    return from_document(document, Node)


RESIZED = pod("resized", "3800m", "1Gi")
EXECUTE = {"key": "k", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("newcomer", "others", "around", "reason", "message"),
    [
        pytest.param(
            pod(cpu="500m"),
            [RESIZED],
            node(),
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000",
            id="lost the race with a resize",
        ),
        pytest.param(
            pod(cpu="500m", memory="8Gi"),
            [RESIZED],
            node(),
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000",
            id="only the first is said",
        ),
        pytest.param(
            pod(memory="8Gi"),
            [RESIZED],
            node(),
            "OutOfmemory",
            "Pod was rejected: Node didn't have enough resource: memory, requested: 8589934592, used: 1073741824, "
            "capacity: 8589934592",
            id="memory",
        ),
        pytest.param(
            pod(),
            [RESIZED],
            node(pods="1"),
            "OutOfpods",
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
            id="pods",
        ),
        pytest.param(
            pod(cpu="500m", nodeSelector={"a": "b"}),
            [RESIZED],
            node(),
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000",
            id="resources before the selector",
        ),
        pytest.param(
            pod(nodeSelector={"a": "b"}, nodeName="other"),
            [],
            node(),
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed",
            id="selector before the name",
        ),
        pytest.param(
            pod(nodeName="other"), [], node(), "NodeName", "Pod was rejected: Predicate NodeName failed", id="name"
        ),
        pytest.param(
            pod(ports=[{"containerPort": 80, "hostPort": 80}]),
            [pod("o", ports=[{"containerPort": 8, "hostPort": 80}])],
            node(taints=[EXECUTE]),
            "NodePorts",
            "Pod was rejected: Predicate NodePorts failed",
            id="ports before taints",
        ),
        pytest.param(
            pod(),
            [],
            node(taints=[EXECUTE]),
            "TaintToleration",
            "Pod was rejected: Predicate TaintToleration failed",
            id="taint",
        ),
        pytest.param(
            pod(os={"name": "windows"}, nodeSelector={"a": "b"}),
            [],
            node(),
            "PodOSNotSupported",
            "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
            id="another system",
        ),
        pytest.param(
            pod(metadata={"labels": {"kubernetes.io/os": "windows"}}),
            [],
            node(),
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            id="another system's label",
        ),
    ],
)
def test_refusals(newcomer: Pod, others: list[Pod], around: Node, reason: str, message: str) -> None:
    found = admit(newcomer, allocated_load(around, others), profile=PROFILE_DOCUMENTS)
    assert isinstance(found, AdmissionRefusal)
    assert (found.reason, found.message) == (reason, message)
    assert found.event_text == message.removeprefix("Pod was rejected: ")


@pytest.mark.parametrize(
    ("newcomer", "others", "around"),
    [
        pytest.param(pod(cpu="200m"), [RESIZED], node(), id="just fits"),
        pytest.param(pod("resized", cpu="4"), [RESIZED], node(), id="itself is not counted twice"),
        pytest.param(
            pod("o", ports=[{"hostPort": 80}]), [pod("o", ports=[{"hostPort": 80}])], node(), id="nor its ports"
        ),
        pytest.param(pod(nodeName="n", nodeSelector={"a": "b"}), [], node(labels={"a": "b"}), id="selected"),
        pytest.param(pod(), [], node(taints=[{"key": "k", "effect": "NoSchedule"}]), id="NoSchedule is not asked"),
        pytest.param(pod(tolerations=[{"operator": "Exists"}]), [], node(taints=[EXECUTE]), id="tolerated"),
        pytest.param(
            pod(metadata={"annotations": {"kubernetes.io/config.source": "file"}}),
            [],
            node(taints=[EXECUTE]),
            id="a static pod has no taints",
        ),
        pytest.param(pod(os={"name": "linux"}), [], node(), id="linux"),
        pytest.param(pod(cpu="1"), [], node(cpu="1", pods="1"), id="all of it"),
    ],
)
def test_admitted(newcomer: Pod, others: list[Pod], around: Node) -> None:
    assert admit(newcomer, allocated_load(around, others)) == Admitted()


def test_the_later_text_has_the_reason() -> None:
    found = admit(pod(nodeSelector={"a": "b"}), allocated_load(node(), []), profile=profile_named("1.36"))
    assert isinstance(found, AdmissionRefusal)
    assert found.event_text == "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"


def test_pressure_comes_first() -> None:
    found = admit(pod(nodeName="other"), allocated_load(node(), []), ["MemoryPressure"])
    assert found == AdmissionRefusal("Evicted", "The node had condition: [MemoryPressure]. ")
    assert admit(pod(cpu="1"), allocated_load(node(), []), ["MemoryPressure"]) == Admitted()


def test_a_critical_pod_makes_room() -> None:
    small, large = pod("small", "500m"), pod("large", "3")
    critical = pod(cpu="1", priority=CRITICAL)
    assert admit(critical, allocated_load(node(), [small, large])) == Admitted((small,), "cpu")
    assert admit(critical, allocated_load(node(), [small, large]), ["DiskPressure"]) == Admitted((small,), "cpu")


def test_a_critical_pod_that_fits_nowhere() -> None:
    found = admit(pod(cpu="5", priority=CRITICAL), allocated_load(node(), [pod("o", "1")]))
    assert isinstance(found, AdmissionRefusal)
    assert (found.reason, found.message) == (
        "UnexpectedAdmissionError",
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]",
    )


def test_a_critical_pod_with_other_reasons_preempts_no_pod() -> None:
    found = admit(pod(cpu="4", priority=CRITICAL, nodeName="other"), allocated_load(node(), [pod("o", "1")]))
    assert found == AdmissionRefusal("NodeName", "Predicate NodeName failed")


def test_what_the_caller_has_against_it_comes_last() -> None:
    also = AdmissionRefusal("Shutdown", "the node is going down")
    assert admit(pod(), allocated_load(node(), []), also=[also]) == also
    assert admit(pod(nodeName="other"), allocated_load(node(), []), also=[also]) == AdmissionRefusal(
        "NodeName", "Predicate NodeName failed"
    )
