"""What the agent adds to the runtime's report about a pod: OOM verdicts, messages, definitions, resources, faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.pods.container_spec import CONTAINER_HASH, container_hash
from plimsoll.node.pods.observe import Observer, oom_base_key
from plimsoll.node.resources.cgroup_locator import Finding
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.node.volumes.pod_dirs import make_message_file
from plimsoll.rules.lifecycle.pod_actions import definition_of
from plimsoll.rules.model.observed import ObservedContainer, ObservedPod
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resources.values import Values

MIB = 1 << 20


def a_pod(**container: Any) -> RunPod:
    resources = {"limits": {"memory": "64Mi", "cpu": "1"}, "requests": {"memory": "64Mi", "cpu": "1"}}
    spec = {"containers": [{"name": "c", "image": "busybox", "resources": resources, **container}]}
    return run_pod_from_json(
        msgspec.json.encode({"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec})
    )


class Readings:
    """Counters and limits as a test sets them; None cannot be read."""

    def __init__(self) -> None:
        self.own: int | None = None
        self.pod: int | None = None
        self.values: Values | None = None

    def oom_kills(self, uid: str, container: str, container_id: str) -> int | None:
        return self.own

    def pod_oom_kills(self, uid: str) -> int | None:
        return self.pod

    def kernel_values(self, pod: object, container: str, container_id: str) -> Values | None:
        return self.values


class Cgroups:
    """As `ContainerCgroups`, with the faults of the test."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def observe(self, pod: object, containers: object) -> list[Finding]:
        return self.findings


class Events:
    def __init__(self) -> None:
        self.emitted: list[tuple[str, str]] = []

    def emit(self, pod: RunPod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        self.emitted.append((reason, field_path))


class Node:
    def __init__(self, directory: Path) -> None:
        self.directory, self.log = directory, directory / "0.log"
        self.checkpoint = Checkpoint(directory / "agent.jsonl")
        self.readings, self.cgroups, self.events = Readings(), Cgroups(), Events()
        self.observer = Observer(
            self.readings, self.cgroups, self.checkpoint, self.events, directory, lambda _container: self.log  # type: ignore[arg-type]
        )  # fmt: skip

    def observe(self, pod: RunPod, *containers: ObservedContainer) -> tuple[ObservedContainer, ...]:
        return self.observer.observe(pod, ObservedPod((), containers), lean_pod_of(pod)).containers


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def ended(exit_code: int = 137, **more: Any) -> ObservedContainer:
    return ObservedContainer("id", "c", "exited", exit_code=exit_code, **more)


OOM = [
    pytest.param(137, 1, None, None, "OOMKilled", id="its own counter"),
    pytest.param(137, 0, 3, 9, "Error", id="its own counter counts more than the pod's"),
    pytest.param(1, 1, None, None, "Error", id="another exit code"),
    pytest.param(137, None, 3, 4, "OOMKilled", id="the scope is gone, the slice has counted"),
    pytest.param(137, None, 3, 3, "Error", id="the slice has not counted"),
    pytest.param(137, None, None, 4, "Error", id="no base"),
    pytest.param(137, None, 3, None, "Error", id="no counter of the pod"),
]


@pytest.mark.parametrize(("exit_code", "own", "base", "now", "reason"), OOM)
@pytest.mark.parametrize("key", ["id", oom_base_key("c", 0)])
def test_oom_verdicts(
    node: Node, exit_code: int, own: int | None, base: int | None, now: int | None, reason: str, key: str
) -> None:
    node.readings.own, node.readings.pod = own, now
    if base is not None:
        node.checkpoint.put("u", oom_bases={key: base})
    (observed,) = node.observe(a_pod(), ended(exit_code, reason="Error"))
    assert observed.reason == reason


def test_an_oom_verdict_outlives_the_cgroup_and_ends_with_the_record(node: Node, tmp_path: Path) -> None:
    node.readings.own = 1
    node.observe(a_pod(), ended())
    node.readings.own = None
    restarted = Node(tmp_path)
    restarted.checkpoint.load()
    (observed,) = restarted.observe(a_pod(), ended())
    assert observed.reason == "OOMKilled"
    restarted.observe(a_pod())
    assert restarted.checkpoint.get("u").oom_killed == ()


def test_a_container_is_judged_once(node: Node) -> None:
    """The next attempt reuses the pod's cgroup: counts that rise later are not this container's."""
    node.checkpoint.put("u", oom_bases={"id": 3})
    node.readings.pod = 3
    node.observe(a_pod(), ended())
    node.readings.pod = 4
    (observed,) = node.observe(a_pod(), ended())
    assert observed.reason == ""


LOG = b"2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr F two\n"
MESSAGES = [
    pytest.param("", "", "File", 1, "", id="nothing"),
    pytest.param("", "left", "File", 1, "left", id="the container's"),
    pytest.param("cannot run", "", "File", 1, "cannot run", id="the runtime's"),
    pytest.param("cannot run", "left", "File", 1, "cannot run: left", id="both"),
    pytest.param("", "", "FallbackToLogsOnError", 1, "one\ntwo\n", id="the end of the log"),
    pytest.param("", "left", "FallbackToLogsOnError", 1, "left", id="its own rather than the log"),
    pytest.param("", "", "FallbackToLogsOnError", 0, "", id="no log after success"),
]


@pytest.mark.parametrize(("own", "left", "policy", "exit_code", "message"), MESSAGES)
def test_termination_messages(node: Node, own: str, left: str, policy: str, exit_code: int, message: str) -> None:
    make_message_file(node.directory, "u", "c", 0).write_text(left)
    node.log.write_bytes(LOG)
    (observed,) = node.observe(a_pod(terminationMessagePolicy=policy), ended(exit_code, message=own))
    assert observed.message == message


def test_a_termination_message_is_read_once(node: Node) -> None:
    path = make_message_file(node.directory, "u", "c", 0)
    path.write_text("first")
    node.observe(a_pod(), ended())
    path.write_text("second")
    (observed,) = node.observe(a_pod(), ended())
    assert observed.message == "first"


def test_the_definition_is_found_by_the_hash(node: Node) -> None:
    pod, other = a_pod(), a_pod(image="nginx")
    running = ObservedContainer("id", "c", "running")
    spec = pod.spec.containers[0]
    hashed = msgspec.structs.replace(running, annotations={CONTAINER_HASH: container_hash(spec)})
    assert node.observe(pod, running)[0].definition == ""
    assert node.observe(pod, hashed)[0].definition == definition_of(spec)
    assert node.observe(other, hashed)[0].definition == f"another: {container_hash(spec)}"


def test_resources_are_the_kernels_while_it_runs(node: Node) -> None:
    pod = a_pod()
    node.checkpoint.put("u", actuated={"c": pod.spec.containers[0].resources})
    node.readings.values = Values(cpu_shares=512, cpu_quota_us=50_000, cpu_period_us=100_000, memory_bytes=32 * MIB)
    (running,) = node.observe(pod, ObservedContainer("id", "c", "running"))
    assert running.resources is not None and running.resources.limits is not None
    assert {name: str(amount) for name, amount in running.resources.limits.items()} == {"cpu": "500m", "memory": "32Mi"}
    (exited,) = node.observe(pod, ended(0))
    assert exited.resources == pod.spec.containers[0].resources
    (unknown,) = node.observe(pod, ObservedContainer("x", "not in the spec", "running"))
    assert unknown.resources is None


def test_faults_of_cgroups_become_events(node: Node) -> None:
    node.cgroups.findings = [Finding("CgroupDriverMismatch", "c", "outside its pod")]
    node.observe(a_pod(), ObservedContainer("id", "c", "running"))
    assert node.events.emitted == [("CgroupDriverMismatch", "spec.containers{c}")]
