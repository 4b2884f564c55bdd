"""Critical pods on a full node: others make room, as few and as cheap as can be, and only if that helps (04 §9)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, Document, RealNode, pod_of, real_node, reasons, running, status_of
from tests.e2e.waiting import until

SLEEPS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
PREEMPTED = "Preempted in order to admit critical pod"

pytestmark = pytest.mark.xdist_group("critical pods")  # one node for all


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, manifests: Path, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    options = ("--pod-manifest-path", str(manifests))
    with real_node(tmp_path_factory.mktemp("critical") / "cluster", options=options) as made:
        exercised("critical pods", "this machine, cgroup v1, embedded runtime")
        yield made


@pytest.fixture
def kube(kube: Kubectl, manifests: Path) -> Iterator[Kubectl]:
    """The shared one; afterwards there are no manifests any more."""
    yield kube
    for file in manifests.iterdir():
        file.unlink()


def pod(name: str, cpu: str, *, guaranteed: bool = False, critical: bool = False, placed: bool = True) -> Document:
    kind = "limits" if guaranteed else "requests"
    resources = {kind: {"cpu": cpu, "memory": "32Mi"}} if cpu else {}
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", SLEEPS], "resources": resources}
    spec: Document = {"terminationGracePeriodSeconds": 2, "containers": [container]}
    if placed:  # by hand: the scheduler would find that the node is full
        spec["nodeName"] = NODE
    if critical:
        spec["priorityClassName"] = "system-node-critical"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def create(kube: Kubectl, *pods: Document) -> None:
    for each in pods:
        kube("create", "-f", "-", stdin=json.dumps(each))


def failed(kube: Kubectl, name: str) -> Document:
    return until(lambda: found if (found := status_of(kube, name)).get("phase") == "Failed" else {})


def filled(kube: Kubectl) -> dict[str, Document]:
    """Eight CPUs: four for a Guaranteed pod, three for a Burstable one; one that asks for nothing beside them."""
    create(kube, pod("guaranteed", "4", guaranteed=True), pod("burstable", "3"), pod("nothing", ""))
    return {name: running(kube, name) for name in ("guaranteed", "burstable", "nothing")}


def test_the_cheapest_pod_that_helps_makes_room(node: RealNode, kube: Kubectl) -> None:
    before = filled(kube)
    create(kube, pod("critical", "3", critical=True))
    running(kube, "critical")
    victim = failed(kube, "burstable")
    assert (victim["reason"], victim["message"]) == ("Preempting", PREEMPTED)
    (target,) = [each for each in victim["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"], target["message"]) == (
        "True",
        "TerminationByKubelet",
        "Pod was preempted by Kubelet to accommodate a critical pod.",
    )
    until(lambda: "Preempting" in reasons(kube, "burstable"))
    # It started when the other one had ended, not before.
    ended = victim["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    assert status_of(kube, "critical", "c")["state"]["running"]["startedAt"] >= ended
    for name in ("guaranteed", "nothing"):
        assert status_of(kube, name)["containerStatuses"] == before[name]["containerStatuses"], name


def test_nothing_is_preempted_where_that_would_not_help(node: RealNode, kube: Kubectl) -> None:
    before = filled(kube)
    create(kube, pod("giant", "9", critical=True))
    refused = failed(kube, "giant")
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert refused["message"] == (
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"
    )
    for name, status in before.items():
        assert status_of(kube, name)["containerStatuses"] == status["containerStatuses"], name


def test_an_ordinary_pod_preempts_nothing(node: RealNode, kube: Kubectl) -> None:
    filled(kube)
    create(kube, pod("ordinary", "3"))
    refused = failed(kube, "ordinary")
    assert refused["reason"] == "OutOfcpu"
    assert status_of(kube, "burstable")["phase"] == "Running"


def test_a_static_pod_is_critical(node: RealNode, kube: Kubectl, manifests: Path) -> None:
    filled(kube)
    (manifests / "agent.json").write_text(json.dumps(pod("agent", "3", placed=False)))
    until(lambda: f"agent-{NODE}" in kube("get", "pods", "-o", "name").out)
    running(kube, f"agent-{NODE}")
    assert failed(kube, "burstable")["reason"] == "Preempting"
    # And it is not preempted itself, not even where that would help: 8 − 3 are left for others, not 6.
    create(kube, pod("late", "6", critical=True))
    assert failed(kube, "late")["reason"] == "UnexpectedAdmissionError"
    assert status_of(kube, f"agent-{NODE}")["phase"] == "Running"
    assert pod_of(kube, f"agent-{NODE}")["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
