"""Logs, exec, stats and metrics of real containers: kubectl → API server → the node's endpoint → the embedded runtime."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import Node
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import pod, shell
from tests.e2e.real_node import NODE, RealNode, real_node, running, status_of
from tests.e2e.waiting import until

MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; while :; do sleep 0.05; done"

pytestmark = pytest.mark.xdist_group("node endpoint")  # one node for all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("endpoint") / "cluster") as made:
        exercised("node endpoint", "this machine, cgroup v1, embedded runtime")
        yield made


def _run(kube: Kubectl, name: str, script: str, **more: object) -> None:
    kube("create", "-f", "-", stdin=pod(name, shell("c", script, **more)))


def _raw(kube: Kubectl, path: str) -> str:
    return kube("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/{path}").out


# --- logs ---


def test_a_log_in_every_way(kube: Kubectl) -> None:
    _run(kube, "talk", f"for i in 1 2 3; do echo line $i; done; sleep 0.3; echo warning >&2; {HANDLES_TERM}")
    running(kube, "talk")
    until(lambda: "warning" in kube("logs", "talk").out)
    assert kube("logs", "talk").lines == ["line 1", "line 2", "line 3", "warning"]
    assert kube("logs", "talk", "--tail=1").out == "warning\n"
    stamped = kube("logs", "talk", "--timestamps", "--tail=2").lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z line 3", stamped[0])
    assert kube("logs", "talk", "--limit-bytes=9").out == "line 1\nli"
    assert kube("logs", "talk", "--since=1h").lines[0] == "line 1"
    assert kube("logs", "talk", "--since-time=2999-01-01T00:00:00Z").out == ""
    assert 'previous terminated container "c" in pod "talk" not found' in kube.refused("logs", "talk", "-p")


def test_the_log_directory_of_the_machine(kube: Kubectl) -> None:
    """Proxy version v1 should proxy logs on node using proxy subresource. A directory without its slash leads there."""
    listed = _raw(kube, "logs/")
    assert "<a href=" in listed
    assert _raw(kube, "logs") == listed


async def test_a_log_over_a_websocket(kube: Kubectl, node: RealNode) -> None:
    """As browsers read it: binary messages without a channel, until the log ends."""
    kube("create", "-f", "-", stdin=pod("sockets", shell("c", "echo one; echo two"), restartPolicy="Never"))
    until(lambda: status_of(kube, "sockets").get("phase") == "Succeeded")
    transport = HttpTransport(load(node.kubeconfig))
    try:
        socket = await transport.websocket("/api/v1/namespaces/default/pods/sockets/log?follow=true", ["binary.k8s.io"])
        log = b""
        async with asyncio.timeout(60):
            async for piece, _ in socket.pieces():
                log += piece
    finally:
        await transport.close()
    assert log == b"one\ntwo\n"


def test_a_log_is_followed_to_its_end_and_the_one_before_is_kept(kube: Kubectl) -> None:
    script = f"echo up; trap 'echo down; exit 0' TERM; {HANDLES_TERM.partition('; ')[2]}"
    kube("create", "-f", "-", stdin=pod("ends", shell("c", script), restartPolicy="Never"))
    running(kube, "ends")
    with kube.background("logs", "-f", "ends") as log:
        log.wait_for(lambda lines: lines == ["up"])
        # Its own shell is the first process of the container.
        kube.run("exec", "ends", "--", "kill", "-TERM", "1")  # it may end with what it kills
        log.wait_for(lambda lines: lines == ["up", "down"])
        assert log.process.wait(60) == 0
    assert kube("logs", "ends").lines == ["up", "down"]


def test_each_run_has_its_own_log(kube: Kubectl) -> None:
    said = "echo this is $(cat /proc/sys/kernel/random/uuid)"
    script = f"{said}; [ -e /data/once ] && exec sleep 1000; touch /data/once; exit 3"
    container = shell("c", script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    kube("create", "-f", "-", stdin=pod("again", container, volumes=[{"name": "data", "emptyDir": {}}]))
    until(lambda: status_of(kube, "again", "c").get("restartCount", 0) >= 1)
    now, before = until(lambda: _both(kube))
    assert now.startswith("this is ")
    assert before.startswith("this is ")
    assert now != before


def _both(kube: Kubectl) -> tuple[str, ...]:
    """The logs of this run and the one before, once there are two."""
    now, before = kube.run("logs", "again"), kube.run("logs", "again", "-p")
    return (now.out, before.out) if now.out and before.out and now.out != before.out else ()


def test_what_has_no_log_yet(kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("absent", {"name": "c", "image": "example.invalid/none"}))
    until(
        lambda: status_of(kube, "absent", "c").get("state", {}).get("waiting", {}).get("reason", "").endswith("BackOff")
    )
    sentence = 'container "c" in pod "absent" is waiting to start: trying and failing to pull image'
    assert sentence in kube.refused("logs", "absent")
    assert kube.refused("exec", "absent", "--", "ls").endswith(
        'unable to upgrade connection: container not found ("c")'
    )


# --- exec ---


@pytest.fixture(params=["true", "false"], ids=["WebSocket", "SPDY"])
def either(kube: Kubectl, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl with both protocols: up to 1.29 it speaks only SPDY."""
    chosen = copy.copy(kube)
    chosen.environment = {**kube.environment, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": request.param}
    return chosen


def test_exec_in_every_way(either: Kubectl) -> None:
    kube = either
    kube.run("delete", "pod", "box", "--ignore-not-found", "--now")
    _run(kube, "box", HANDLES_TERM)
    running(kube, "box")
    both = kube("exec", "box", "--", "sh", "-c", "echo out; echo err >&2")
    assert (both.out, both.err) == ("out\n", "err\n")
    seven = kube.run("exec", "box", "--", "sh", "-c", "exit 7")
    assert (seven.code, seven.err.strip()) == (7, "command terminated with exit code 7")
    assert '"nonesuch": executable file not found in $PATH' in kube.refused("exec", "box", "--", "nonesuch")
    text = "".join(f"{number} {'x' * 90}\n" for number in range(20_000))
    assert kube("exec", "-i", "box", "--", "cat", stdin=text).out == text
    assert kube("exec", "-i", "box", "--", "wc", "-c", stdin="").out.strip() == "0"
    sized = "tty; while [ \"$(stty size)\" = '0 0' ]; do sleep 0.05; done; stty size"  # it comes after the start
    size = kube.on_a_terminal("exec", "-it", "box", "--", "sh", "-c", sized, rows=33, columns=77)
    assert re.fullmatch(r"/dev/pts/\d+\r\n33 77\r\n", size)
    absent = kube.refused("exec", "box", "-c", "nope", "--", "ls")
    assert "container nope is not valid for pod box" in absent


def test_a_client_that_is_killed_takes_its_process_along(either: Kubectl) -> None:
    kube = either
    kube.run("delete", "pod", "left", "--ignore-not-found", "--now")
    _run(kube, "left", HANDLES_TERM)
    running(kube, "left")
    with kube.background("exec", "left", "--", "sh", "-c", "echo began; exec sleep 4242") as session:
        session.wait_for(lambda lines: lines == ["began"])
        assert until(lambda: _sleeping("4242"))
    until(lambda: not _sleeping("4242"))


def _sleeping(seconds: str) -> bool:
    wanted = b"\0".join((b"sleep", seconds.encode(), b""))
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


# --- figures ---


def _usage(kube: Kubectl, name: str) -> dict[str, Any]:
    """Empty as long as there is none."""
    done = kube.run("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/{name}")
    found: dict[str, Any] = json.loads(done.out)["containers"][0]["usage"] if done.code == 0 else {}
    return found


def test_figures_of_a_busy_pod(kube: Kubectl) -> None:
    script = f"head -c {20 * MIB} /dev/zero >/data/file; while :; do :; done"
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = shell("c", script, volumeMounts=mounts, resources={"limits": {"cpu": "200m", "memory": "128Mi"}})
    volumes = [{"name": "data", "emptyDir": {"medium": "Memory"}}]
    kube("create", "-f", "-", stdin=pod("busy", container, volumes=volumes))
    running(kube, "busy")
    until(lambda: int(_usage(kube, "busy").get("memory", "0Ki").removesuffix("Ki")) >= 20 * 1024)
    until(lambda: 0 < int(_usage(kube, "busy")["cpu"].removesuffix("n")) <= 300_000_000)
    lines = kube("top", "pod", "busy").lines
    assert lines[0].split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert int(lines[1].split()[2].removesuffix("Mi")) >= 20
    assert kube("top", "node").lines[1].startswith(NODE)

    summary = json.loads(_raw(kube, "stats/summary"))
    (found,) = (each for each in summary["pods"] if each["podRef"]["name"] == "busy")
    assert found["containers"][0]["memory"]["workingSetBytes"] >= 20 * MIB
    assert found["containers"][0]["memory"]["availableBytes"] <= 108 * MIB
    assert found["process_stats"]["process_count"] >= 1
    assert {each["name"] for each in summary["node"]["systemContainers"]} == {"kubelet", "pods", "runtime"}

    labels = {"namespace": "default", "pod": "busy", "container": "c"}
    throttled = "container_cpu_cfs_throttled_periods_total"
    until(lambda: _sample(_raw(kube, "metrics/cadvisor"), throttled, labels) > 0)
    assert _sample(_raw(kube, "metrics/cadvisor"), "container_spec_cpu_quota", labels) == 20_000
    assert _sample(_raw(kube, "metrics/resource"), "container_cpu_usage_seconds_total", labels) > 0
    assert _sample(_raw(kube, "metrics"), "kubelet_running_pods", {}) >= 1


def _sample(text: str, name: str, labels: dict[str, str]) -> float:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"no sample {name} {labels}")


def test_what_the_node_counts(kube: Kubectl) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    kube("create", "-f", "-", stdin=pod("counted", shell("c", HANDLES_TERM, livenessProbe=probe)))
    running(kube, "counted")
    big = {"resources": {"requests": {"cpu": "100"}}}
    kube("create", "-f", "-", stdin=pod("too-big", shell("c", "sleep 1", **big), nodeName=NODE))
    until(lambda: status_of(kube, "too-big").get("phase") == "Failed")
    page = _raw(kube, "metrics")
    assert _sample(page, "kubelet_started_pods_total", {}) >= 1
    assert _sample(page, "kubelet_started_containers_total", {"container_type": "container"}) >= 1
    assert _sample(page, "kubelet_pod_start_duration_seconds_count", {}) >= 1
    assert _sample(page, "kubelet_admission_rejections_total", {"reason": "OutOfcpu"}) >= 1
    labels = {"probe_type": "Liveness", "result": "successful", "pod": "counted"}
    until(lambda: "counted" in _raw(kube, "metrics/probes"))
    assert _sample(_raw(kube, "metrics/probes"), "prober_probe_total", labels) >= 1


def test_how_the_node_is_configured(node: RealNode, kube: Kubectl) -> None:
    """As `explain --config` takes it: the allocatable computed from it is the Node's own."""
    shown = json.loads(_raw(kube, "configz"))["kubeletconfig"]
    config = reading(shown, profile_named(node.profile)).config
    described = json.loads(kube("get", "node", NODE, "-o", "json").out)
    machine = machine_from_capacity(from_document(described, Node).status.capacity or {})
    found = resolved(machine, config, profile_named(node.profile), cgroup_version=this_host().version)
    assert str(found.allocatable["memory"]) == described["status"]["allocatable"]["memory"]
    assert config.cgroup_root == node.cgroup_root


def test_asking_over_and_over_leaves_nothing_behind(node: RealNode, kube: Kubectl) -> None:
    """Fds of the agent, after logs, follows that were left, exec and scrapes."""
    _run(kube, "many", f"echo up; {HANDLES_TERM}")
    running(kube, "many")
    assert node.node
    directory = f"/proc/{node.node.pid}/fd"

    def round_trip() -> None:
        kube("exec", "many", "--", "true")
        kube("logs", "many")
        with kube.background("logs", "-f", "many") as log:
            log.wait_for(lambda lines: lines == ["up"])
        for page in ("metrics", "metrics/resource", "metrics/cadvisor", "stats/summary", "pods"):
            _raw(kube, page)

    round_trip()
    settled = until(lambda: _steady(directory))
    for _ in range(5):
        round_trip()
    until(lambda: len(_open_files(directory)[0]) <= settled + 2, lambda: f"{settled} before: {_open_files(directory)}")
    # Statistics, history and eviction keep the files of cgroups open, each of them once.
    assert max(Counter(_open_files(directory)[1]).values()) <= 3, _open_files(directory)


def _open_files(directory: str) -> tuple[list[str], list[str]]:
    """Those outside the cgroups, and those of cgroups."""
    found = []
    for path in Path(directory).iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(path.readlink()))
    of_cgroups = [name for name in found if name.startswith("/sys/fs/cgroup/")]
    return [name for name in found if name not in of_cgroups], of_cgroups


def _steady(directory: str) -> int:
    """How many there are; 0 while it changes."""
    before = len(_open_files(directory)[0])
    time.sleep(0.5)
    return before if len(_open_files(directory)[0]) == before else 0
