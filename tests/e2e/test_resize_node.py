"""In-place resizes by the real agent on this machine's own kernel (cgroup v1), asked for with real kubectl (03; doc 003)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.held_api import Asked, HeldApi, held_api
from tests.e2e.kubectl import Kubectl, NoKubectl, installed, unpacked
from tests.e2e.real_node import RealNode, pod_of, real_node, reasons, running, status_of
from tests.e2e.waiting import until

MIB = 1 << 20
DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
Document = dict[str, Any]


@pytest.fixture(scope="module", params=["1.27", "1.36"])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("resize") / "world", request.param) as made:
        exercised("resize by the node agent", f"this machine, cgroup v1, embedded runtime, profile {request.param}")
        yield made


@pytest.fixture
def kube(node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    try:
        binary = unpacked()
    except NoKubectl:
        binary = installed()[0]
    made = Kubectl(binary, node.kubeconfig, tmp_path)
    yield made
    made("delete", "pods", "--all", "--grace-period=1")


# --- asking and looking ---


def resources(cpu: str | None = None, memory: str | None = None, **more: str) -> Document:
    """Requests and limits alike; with `cpu_limit` and so on, other limits; "-" for none at all."""
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    limits = {name: more.get(f"{name}_limit", text) for name, text in requests.items()}
    limits = {name: text for name, text in limits.items() if text != "-"}
    return {"requests": requests, **({"limits": limits} if limits else {})}


def pod(name: str, *containers: Document, **spec: object) -> str:
    spec = {"terminationGracePeriodSeconds": 2, **spec, "containers": list(containers)}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def shell(name: str, size: Document, script: str = HANDLES_TERM, **more: object) -> Document:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], "resources": size, **more}


def patch_of(**sizes: Document) -> str:
    """Container → its new resources."""
    return json.dumps(
        {"spec": {"containers": [{"name": name, "resources": size} for name, size in sizes.items()]}}
    )


def ask(node: RealNode, kube: Kubectl, name: str, patch: str) -> None:
    """As the profile's users do: 1.27 by a plain patch."""
    way = () if node.profile == "1.27" else ("--subresource", "resize")
    kube("patch", "pod", name, *way, "-p", patch)


def files(node: RealNode, kube: Kubectl, name: str, container: str = "") -> dict[str, int]:
    """What the kernel has for the pod, or for one of its containers."""
    found = pod_of(kube, name)
    qos = {"Guaranteed": "", "Burstable": "burstable/", "BestEffort": "besteffort/"}[found["status"]["qosClass"]]
    path = f"{node.cgroup_root}/kubepods/{qos}pod{found['metadata']['uid']}"
    if container:
        path += "/" + status_of(kube, name, container)["containerID"].removeprefix("plimsoll://")
    return {
        file: int(Path(f"/sys/fs/cgroup/{file.partition('.')[0]}{path}/{file}").read_text())
        for file in ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes")
    }


def settled(kube: Kubectl, name: str, container: str, size: Document, timeout_s: float = 20.0) -> Document:
    """Its status, as soon as it says that the resources are these and nothing is left to do."""

    def look() -> Document:
        status = status_of(kube, name)
        conditions = {each["type"] for each in status.get("conditions", ())}
        found = next(each for each in status["containerStatuses"] if each["name"] == container)
        is_so = found.get("resources") == size and found.get("allocatedResources") == size["requests"]
        is_done = not status.get("resize") and not {"PodResizePending", "PodResizeInProgress"} & conditions
        return found if is_so and is_done and found.get("state", {}).get("running") else {}

    return until(look, timeout_s)


def pending(kube: Kubectl, name: str) -> Document:
    return next((c for c in status_of(kube, name).get("conditions", ()) if c["type"] == "PodResizePending"), {})


# --- document 003 ---


def test_the_demo_pod_of_the_document(node: RealNode, kube: Kubectl) -> None:
    kube("apply", "-f", str(DOCUMENTS / "003-demo.yaml"))
    before = running(kube, "demo")["containerStatuses"][0]
    ask(node, kube, "demo", (DOCUMENTS / "003-patch-cpu-2.json").read_text())
    after = settled(kube, "demo", "demo", resources("2", "200Mi"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    for where in ("", "demo"):
        found = files(node, kube, "demo", where)
        assert (found["cpu.cfs_quota_us"], found["cpu.cfs_period_us"], found["cpu.shares"]) == (200_000, 100_000, 2048)
        assert found["memory.limit_in_bytes"] == 200 * MIB
    assert {"ResizeStarted", "ResizeCompleted"} <= set(until(lambda: reasons(kube, "demo")))

    ask(node, kube, "demo", (DOCUMENTS / "003-patch-memory-500mi.json").read_text())
    after = settled(kube, "demo", "demo", resources("2", "500Mi"), 45.0)  # its bash ends by KILL, after 30 s of grace
    assert after["restartCount"] == 1
    assert after["containerID"] != before["containerID"]
    assert kube("get", "pod", "demo", "--no-headers").out.split()[3] == "1"
    for where in ("", "demo"):
        assert files(node, kube, "demo", where)["memory.limit_in_bytes"] == 524_288_000
    assert kube("exec", "demo", "--", "free").out
    assert "Killing" in reasons(kube, "demo")
    killed = [
        each["message"]
        for each in json.loads(kube("get", "events", "-o", "json").out)["items"]
        if each["reason"] == "Killing" and each["involvedObject"]["name"] == "demo"
    ]
    assert killed == ["Container demo resize requires restart"]

    way = () if node.profile == "1.27" else ("--subresource", "resize")
    said = kube.refused("patch", "pod", "demo", *way, "-p", (DOCUMENTS / "003-patch-qos-change.json").read_text())
    assert said == (
        'The Pod "demo" is invalid: metadata: Invalid value: "Burstable": Pod QoS is immutable'
        if node.profile == "1.27"
        else 'The Pod "demo" is invalid: spec: Invalid value: "Guaranteed": '
        "Pod QOS Class may not change as a result of resizing"
    )


# --- the timeline of document 003 (03 §5) ---


def row(kube: Kubectl, name: str) -> tuple[str, str, str, str]:
    """spec, A, R, Z of the stored object."""
    found = pod_of(kube, name)
    (container,) = found["status"].get("containerStatuses") or [{}]
    return (
        found["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        container.get("allocatedResources", {}).get("cpu", "-"),
        container.get("resources", {}).get("requests", {}).get("cpu", "-"),
        found["status"].get("resize", "-"),
    )


def is_status(asked: Asked) -> bool:
    return asked.method == "PATCH" and asked.path.endswith("/pods/timeline/status")


def timeline_patch(number: int) -> str:
    return (DOCUMENTS / f"003-patch-timeline-{number}.json").read_text()


@pytest.fixture
def held(node: RealNode, kube: Kubectl) -> Iterator[HeldApi]:
    """The same node, its agent started anew behind something that can hold its requests; given back before `kube`."""
    direct, through = node.node_kubeconfig, node.directory / "held.kubeconfig"
    with held_api(direct, node.api_state / "pki", through) as api:
        node.kill_node()
        node.node_kubeconfig = through
        node.start_node()
        yield api
        api.release()
        node.kill_node()
    node.node_kubeconfig = direct
    node.start_node()


def test_the_timeline_of_the_document(node: RealNode, held: HeldApi, kube: Kubectl) -> None:
    """Every row is read from the store while the agent's next request is held back."""
    kube("create", "-f", "-", stdin=pod("filler", shell("c", {"requests": {"cpu": "6100m"}})))
    running(kube, "filler")
    held.hold(is_status)
    kube("apply", "-f", str(DOCUMENTS / "003-timeline.yaml"))
    seen = ("1", "1", "-", "-") if node.profile == "1.27" else ("1", "-", "-", "-")
    first = held.next()
    assert row(kube, "timeline") == seen  # T=1
    assert first.let_go() == 200
    held.release()
    running(kube, "timeline")
    assert row(kube, "timeline") == ("1", "1", "1", "-")  # T=2

    older = node.profile == "1.27"

    def shown(spec: str, allocated: str, actual: str, word: str) -> tuple[str, str, str, str]:
        return spec, allocated, actual, word if older else "-"

    held.hold(is_status)
    ask(node, kube, "timeline", timeline_patch(1))
    accepted = held.next()
    assert row(kube, "timeline") == shown("1500m", "1", "1", "Proposed")  # T=3
    version = pod_of(kube, "timeline")["metadata"]["resourceVersion"]
    assert accepted.body["metadata"].get("resourceVersion") == (version if older else None)
    assert accepted.let_go() == 200
    assert row(kube, "timeline") == shown("1500m", "1500m", "1", "InProgress")  # T=4
    assert conditions(kube, "timeline") == [("PodResizeInProgress", "", 2 if not older else 0)]

    completed = held.next()
    ask(node, kube, "timeline", timeline_patch(2))
    assert row(kube, "timeline") == shown("2", "1500m", "1", "Proposed")  # T=5
    assert completed.let_go() == (409 if older else 200)
    if older:
        assert row(kube, "timeline") == shown("2", "1500m", "1", "Proposed")  # T=6
    deferred = held.next()
    if older:
        assert deferred.body["metadata"]["resourceVersion"] == pod_of(kube, "timeline")["metadata"]["resourceVersion"]
    assert deferred.let_go() == 200
    assert row(kube, "timeline") == shown("2", "1500m", "1500m", "Deferred")  # T=7
    assert conditions(kube, "timeline") == [("PodResizePending", "Deferred", 3 if not older else 0)]
    text = "Node didn't have enough resource: cpu, requested: 2000, used: 6100, capacity: 8000"
    assert pending(kube, "timeline")["message"] == text

    ask(node, kube, "timeline", timeline_patch(3))
    accepted = held.next()
    assert row(kube, "timeline") == shown("1600m", "1500m", "1500m", "Proposed")  # T=8
    assert accepted.let_go() == 200
    assert row(kube, "timeline") == shown("1600m", "1600m", "1500m", "InProgress")  # T=9
    assert conditions(kube, "timeline") == [("PodResizeInProgress", "", 4 if not older else 0)]
    assert held.next().let_go() == 200
    assert row(kube, "timeline") == ("1600m", "1600m", "1600m", "-")  # T=10
    assert conditions(kube, "timeline") == []
    assert files(node, kube, "timeline", "app")["cpu.shares"] == 1638

    if not older:
        refused = kube.refused("patch", "pod", "timeline", "--subresource", "resize", "-p", timeline_patch(4))
        assert "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 8000" in refused
        return
    ask(node, kube, "timeline", timeline_patch(4))
    last = held.next()
    assert row(kube, "timeline") == shown("100", "1600m", "1600m", "Proposed")  # T=11
    assert last.let_go() == 200
    assert row(kube, "timeline") == shown("100", "1600m", "1600m", "Infeasible")  # T=12
    assert status_of(kube, "timeline", "app")["restartCount"] == 0
    assert files(node, kube, "timeline", "app")["cpu.shares"] == 1638
    held.release()
    told = {"ResizeStarted": 2, "ResizeCompleted": 2, "ResizeDeferred": 1, "ResizeInfeasible": 1}
    until(lambda: Counter(each for each in reasons(kube, "timeline") if each.startswith("Resize")) == told)


def conditions(kube: Kubectl, name: str) -> list[tuple[str, str, int]]:
    """Those of a resize: type, reason, observedGeneration."""
    return [
        (each["type"], each.get("reason", ""), each.get("observedGeneration", 0))
        for each in status_of(kube, name).get("conditions", ())
        if each["type"].startswith("PodResize")
    ]
