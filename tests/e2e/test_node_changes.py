"""A pod waits for a label, a taint or a resource of its node. When it comes, the pod runs, however old the agent's Node
is: between two reports of a node's status lie ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.linux.machine import has_app_armor, has_selinux
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, PODS, RealNode, kubectl_for, pod_of, real_node, reasons
from tests.e2e.waiting import until

PATH = f"/api/v1/nodes/{NODE}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("changes") / "n", "1.36") as made:
        yield made


@pytest.fixture
def kube(node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    with kubectl_for(node, tmp_path) as made:
        yield made


def _waiting(kube: Kubectl, name: str, **spec: Any) -> None:
    container: dict[str, Any] = {"name": "c", "image": "busybox", "command": ["sleep", "3600"]}
    container |= spec.pop("container", {})
    document = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    kube.api("POST", PODS, {"metadata": {"name": name}, "spec": document})
    until(lambda: any(each["type"] == "PodScheduled" for each in _status(kube, name).get("conditions", [])))


def _status(kube: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(kube, name).get("status", {})
    return found


def _runs(kube: Kubectl, name: str) -> None:
    phase = until(lambda: {"Pending": ""}.get(_status(kube, name)["phase"], _status(kube, name)["phase"]))
    assert phase == "Running", _status(kube, name)


def _patch(kube: Kubectl, path: str, change: dict[str, Any]) -> None:
    kube.api("PATCH", path, change)


@pytest.mark.parametrize("number", range(4))
def test_a_label(kube: Kubectl, number: int) -> None:
    _waiting(kube, f"label-{number}", nodeSelector={"disk": f"d{number}"})
    _patch(kube, PATH, {"metadata": {"labels": {"disk": f"d{number}"}}})
    _runs(kube, f"label-{number}")


def test_a_taint(kube: Kubectl) -> None:
    taints = (kube.api("GET", PATH)["spec"] or {}).get("taints") or []
    _patch(kube, PATH, {"spec": {"taints": [*taints, {"key": "busy", "effect": "NoExecute"}]}})
    until(lambda: "busy" in str(kube.api("GET", PATH)["spec"]))
    _waiting(kube, "taint")
    _patch(kube, PATH, {"spec": {"taints": taints}})
    _runs(kube, "taint")


def test_pods_tolerate_a_taint_for_a_while(kube: Kubectl) -> None:
    """e2e: NoExecuteTaintManager. kubectl sets no time: it counts from the moment when the taint is seen."""
    for name, seconds in (("brief", 1), ("patient", 3600)):
        toleration = {"key": "leave", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        _waiting(kube, name, tolerations=[toleration])
        _runs(kube, name)
    kube.api("PATCH", f"{PODS}/brief", {"metadata": {"finalizers": ["example.com/kept"]}})
    kube("taint", "node", NODE, "leave=now:NoExecute")
    evicted = until(lambda: found if (found := pod_of(kube, "brief"))["metadata"].get("deletionTimestamp") else {})
    reasons_of = {each["type"]: each.get("reason") for each in evicted["status"]["conditions"]}
    assert reasons_of["DisruptionTarget"] == "DeletionByTaintManager"
    kube("taint", "node", NODE, "leave-")
    kube.api("PATCH", f"{PODS}/brief", {"metadata": {"finalizers": None}})
    assert not pod_of(kube, "patient")["metadata"].get("deletionTimestamp")


def test_a_resource(kube: Kubectl) -> None:
    resources = {"requests": {"example.com/dongle": "1"}, "limits": {"example.com/dongle": "1"}}
    _waiting(kube, "resource", container={"resources": resources})
    amounts = {"capacity": {"example.com/dongle": "1"}, "allocatable": {"example.com/dongle": "1"}}
    _patch(kube, f"{PATH}/status", {"status": amounts})
    _runs(kube, "resource")


def test_preemption_for_a_resource_of_others(kube: Kubectl) -> None:
    """e2e: SchedulerPreemption … runs ReplicaSets to verify preemption running path."""
    name = "example.com/fakecpu"
    _patch(kube, f"{PATH}/status", {"status": {"capacity": {name: "1000"}, "allocatable": {name: "1000"}}})
    for level in range(1, 5):
        body = {"metadata": {"name": f"p{level}"}, "value": level}
        kube.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for level, amount in ((1, "200"), (2, "300"), (3, "450"), (4, "500")):
        size = {"requests": {name: amount}, "limits": {name: amount}}
        _waiting(kube, f"level-{level}", container={"resources": size}, priorityClassName=f"p{level}")
        _runs(kube, f"level-{level}")
    phases = {each["metadata"]["name"]: each["status"]["phase"] for each in kube.api("GET", PODS)["items"]}
    assert {pod for pod in phases if pod.startswith("level")} == {"level-3", "level-4"}, "no more than needed"


def _failed(kube: Kubectl, pod: str) -> dict[str, Any] | None:
    status = _status(kube, pod)
    return status if status["phase"] == "Failed" else None


def test_settings_of_the_kernel(kube: Kubectl) -> None:
    """AppArmor where there is none: refused as by a kubelet. SELinux where there is none: no effect, and an event."""
    container = {"name": "c", "image": "busybox", "command": ["sleep", "3600"]}
    if not has_app_armor():
        profile = {"appArmorProfile": {"type": "RuntimeDefault"}}
        spec = {"containers": [container], "securityContext": profile, "nodeName": NODE}
        kube.api("POST", PODS, {"metadata": {"name": "armoured"}, "spec": spec})
        status = until(lambda: _failed(kube, "armoured"))
        text = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
        assert (status["reason"], text in status["message"]) == ("AppArmor", True)
    if not has_selinux():
        _waiting(kube, "labelled", securityContext={"seLinuxOptions": {"level": "s0"}})
        _runs(kube, "labelled")
        assert "NoEffect" in until(lambda: {*reasons(kube, "labelled")} & {"NoEffect"})


def test_what_never_comes_is_refused(kube: Kubectl) -> None:
    """Bound by hand: the node reads its labels again, and refuses the pod."""
    container = {"name": "c", "image": "busybox", "command": ["sleep", "3600"]}
    spec = {"containers": [container], "nodeSelector": {"disk": "never"}, "nodeName": NODE}
    kube.api("POST", PODS, {"metadata": {"name": "never"}, "spec": spec})
    status = until(lambda: _failed(kube, "never"))
    assert status["reason"] == "NodeAffinity"
