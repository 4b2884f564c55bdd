"""Starting a pod: the order of cgroups, checkpoint and runtime calls, and what a failure stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.net.grpc.status import UNKNOWN, GrpcError
from plimsoll.rules.model.objects import MEMORY
from plimsoll.runtime.cri.calls import CallRefusedError
from plimsoll.runtime.interface import RuntimeFeatures
from tests.unit.node.pods.one_pod_node import UID, Document, PodNode, container
from tests.unit.node.test_agent import eventually

MIB = 1 << 20
A, B, INIT = f"{UID}.a.0", f"{UID}.b.0", f"{UID}.i.0"


async def test_cgroup_and_checkpoint_come_before_the_container(tmp_path: Path) -> None:
    """03 §10: what a container starts with is saved first, and its cgroup is sized."""
    node = PodNode(tmp_path, container("a"))
    limits: dict[str, object] = {}
    actuated: dict[str, object] = {}

    def before(call: str) -> None:
        if call in ("make a", f"start {A}"):
            seen = node.kernel.read(node.agent.cgroups.paths(UID)["a"], ("memory.max",))
            assert seen is not None
            limits[call] = seen.files["memory.max"]
            record = node.agent.checkpoint.get(UID)
            actuated[call] = (record.actuated["a"].limits or {})[MEMORY].value

    node.runtime.before = before
    async with node.running():
        await node.until_running()
    assert limits == {"make a": str(64 * MIB), f"start {A}": str(64 * MIB)}
    assert actuated == {"make a": 64 * MIB, f"start {A}": 64 * MIB}
    assert node.runtime.calls[:3] == ["make sandbox", "make a", f"start {A}"]


async def test_containers_start_in_order_and_one_failure_stops_no_other(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), container("b"))
    node.runtime.failing = {f"start {A}"}
    async with node.running():
        await eventually(lambda: f"start {B}" in node.runtime.calls)
        await eventually(lambda: len(node.status.get("containerStatuses", ())) == 2)
        assert node.runtime.calls[1:5] == ["make a", f"start {A}", "make b", f"start {B}"]
        await eventually(lambda: "running" in node.status["containerStatuses"][1].get("state", {}))
        first = node.status["containerStatuses"][0]
        assert first["state"]["waiting"]["reason"] == "RunContainerError"
        await eventually(lambda: "Failed" in node.reasons())
        node.runtime.failing.clear()
        await node.until_running()
    assert node.runtime.calls.count("make a") == 1, "a container that exists is only started"


@pytest.mark.parametrize(
    ("more", "starts_main"),
    [
        pytest.param({}, False, id="an ordinary init container"),
        pytest.param({"restartPolicy": "Always"}, False, id="a sidecar"),
    ],
)
async def test_a_failing_init_container_stops_the_start(tmp_path: Path, more: Document, starts_main: bool) -> None:
    node = PodNode(tmp_path, container("a"), initContainers=[container("i", **more)])
    node.runtime.failing = {f"start {INIT}"}
    async with node.running():
        await eventually(lambda: node.runtime.calls.count(f"start {INIT}") >= 2)
        assert ("make a" in node.runtime.calls) is starts_main
        statuses = node.status["initContainerStatuses"]
        assert statuses[0]["state"]["waiting"]["reason"] == "RunContainerError"


async def test_a_failed_sandbox_is_reported_and_counted(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    node.runtime.failing = {"make sandbox"}
    async with node.running():
        await eventually(lambda: "FailedCreatePodSandBox" in node.reasons())
        assert "make a" not in node.runtime.calls
        assert node.agent.meters.started_pods_errors.values[()] >= 1
        node.runtime.failing.clear()
        await node.until_running()


@pytest.mark.parametrize("failing", ["make sandbox", "make a", f"start {A}"])
async def test_a_pod_with_users_of_its_own_is_counted(tmp_path: Path, failing: str) -> None:
    """As the kubelet: whatever fails in the sync that makes the sandbox is an error of a pod with users of its own."""
    node = PodNode(tmp_path, container("a"), hostUsers=False)
    node.runtime.features = RuntimeFeatures(user_namespaces=frozenset({""}))
    meters = node.agent.meters
    node.runtime.failing = {failing}
    async with node.running():
        await eventually(lambda: meters.started_user_namespaces_errors.values.get((), 0) >= 1)
        node.runtime.failing.clear()
        await node.until_running()
    syncs = node.runtime.calls.count("make sandbox")
    assert meters.started_user_namespaces.values[()] == syncs
    assert meters.started_user_namespaces_errors.values[()] == (syncs - 1 or 1)


@pytest.mark.parametrize("refused", ["make a", f"start {A}"])
async def test_an_event_has_the_words_of_the_runtime_alone(tmp_path: Path, refused: str) -> None:
    """As the kubelet's: neither the call nor the code of its answer."""
    node = PodNode(tmp_path, container("a"))

    def refuse(call: str) -> None:
        if call == refused:
            raise CallRefusedError("Call", GrpcError(UNKNOWN, 'exec: "x": executable file not found in $PATH'))

    node.runtime.before = refuse
    async with node.running():
        await eventually(lambda: "Failed" in node.reasons())
        event = next(each for each in node.events if each["reason"] == "Failed")
        assert event["message"] == 'Error: exec: "x": executable file not found in $PATH'
        await eventually(lambda: node.status.get("containerStatuses"))
        waiting = node.status["containerStatuses"][0]["state"]["waiting"]
        assert waiting["message"] == 'exec: "x": executable file not found in $PATH'


async def test_metrics_count_containers_by_kind(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), initContainers=[container("i")])
    async with node.running():
        await eventually(lambda: INIT in node.runtime.containers)
        node.runtime.end(INIT, 0)
        await node.until_running()
    assert dict(node.agent.meters.started_containers.values) == {("init_container",): 1, ("container",): 1}
    assert not node.agent.meters.start_errors.values


async def test_metrics_count_the_ends_of_containers(tmp_path: Path) -> None:
    """Each end once, however often the status is reported again."""
    node = PodNode(tmp_path, container("a"), container("b"), initContainers=[container("i")], restartPolicy="Never")
    async with node.running():
        await eventually(lambda: INIT in node.runtime.containers)
        node.runtime.end(INIT, 0)
        await node.until_running()
        node.runtime.end(A, 139)
        await eventually(lambda: "terminated" in node.status["containerStatuses"][0]["state"])
        node.runtime.end(B, 0)
        await eventually(lambda: node.status["phase"] == "Failed")
    assert dict(node.agent.meters.ended_containers.values) == {
        ("init_container", "0", "Completed"): 1,
        ("container", "139", "Error"): 1,
        ("container", "0", "Completed"): 1,
    }


CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata-qemu"}


@pytest.mark.parametrize(("name", "handler"), [("kata", "kata-qemu"), (None, "")])
async def test_the_runtime_gets_the_handler_of_the_class(tmp_path: Path, name: str | None, handler: str) -> None:
    node = PodNode(tmp_path, container("a"), objects=[CLASS], **({"runtimeClassName": name} if name else {}))
    async with node.running():
        await node.until_running()
    assert node.runtime.handlers == [handler]


async def test_a_missing_class_delays_the_sandbox(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), runtimeClassName="kata")
    async with node.running():
        await eventually(lambda: "FailedCreatePodSandBox" in node.reasons())
        event = next(each for each in node.events if each["reason"] == "FailedCreatePodSandBox")
        assert event["message"] == 'Failed to create pod sandbox: runtimeclass.node.k8s.io "kata" not found'
        assert "make sandbox" not in node.runtime.calls
        node.api.add(CLASS)
        await node.until_running()
    assert node.runtime.handlers == ["kata-qemu"]
