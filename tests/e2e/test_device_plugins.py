"""Devices of a plugin on a real node, with the embedded runtime and with containerd: all that the plugin says arrives.

The plugin is a process of its own. It and the node are killed, apart and together; the pod keeps its devices, and
none is given twice.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import pytest

from plimsoll.runtime.cri.calls import CriCall, CriClient
from plimsoll.runtime.cri.message_parts import Message
from plimsoll.runtime.cri.messages import ContainerStatusRequest
from tests.e2e.containerd_node import containerd_node
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, RealNode, kubectl_for, real_node, running, status_of
from tests.e2e.waiting import until
from tests.unit.console import run
from tests.unit.node.devices.example_plugin import RESOURCE

RUNTIMES = ("embedded", "containerd")
LOOKS = (
    "test -c /dev/d0 && test -c /dev/d1 && ! test -e /dev/d2 && echo gone > /dev/d1 && echo $NULL_DEVICES"
    " && cat /null/info && if echo x > /null/info; then echo writable; fi"
)


class _Annotations(Message, frozen=True):
    annotations: Annotated[dict[str, str], 13] = {}


class _Status(Message, frozen=True):
    """The part of CRI's ContainerStatusResponse that is read here."""

    status: Annotated[_Annotations | None, 1] = None


@pytest.fixture(params=RUNTIMES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[tuple[RealNode, str]]:
    """The node, and the socket of its containerd."""
    directory = tmp_path_factory.mktemp("devices") / "cluster"
    options = ("--capacity", "cpu=2,memory=2Gi,pods=110")
    with ExitStack() as stack:
        socket = ""
        if request.param == "embedded":
            made = stack.enter_context(real_node(directory, options=options))
        else:
            made, daemon = stack.enter_context(containerd_node(directory, options=options))
            socket = daemon.endpoint.removeprefix("unix://")
        exercised("device plugins", f"this machine, {request.param}")
        yield made, socket


@pytest.fixture
def kube(node: tuple[RealNode, str], tmp_path: Path) -> Iterator[Kubectl]:
    with kubectl_for(node[0], tmp_path) as made:
        yield made


class Plugin:
    def __init__(self, node: RealNode) -> None:
        self._words = ["-m", "tests.unit.node.devices.example_plugin", str(node.state / "node" / "device-plugins")]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, *self._words])

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def pod(name: str, count: int) -> str:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"],
        "resources": {"limits": {RESOURCE: str(count)}},
    }
    whole = {"nodeName": NODE, "terminationGracePeriodSeconds": 2, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole})


def allocatable(kube: Kubectl) -> str:
    status = kube.api("GET", f"/api/v1/nodes/{NODE}")["status"]
    return str(status["allocatable"].get(RESOURCE, "none"))


def annotations(socket: str, container_id: str) -> dict[str, str]:
    async def ask() -> dict[str, str]:
        client = CriClient(socket)
        call = CriCall("RuntimeService/ContainerStatus", _Status, 10)
        found = await client.ask(call, ContainerStatusRequest(container_id=container_id))
        return {} if found.status is None else found.status.annotations

    return asyncio.run(ask())


def test_devices_mounts_variables_and_annotations(node: tuple[RealNode, str], kube: Kubectl) -> None:
    made, socket = node
    plugin = Plugin(made)
    try:
        until(lambda: allocatable(kube) == "4")
        kube("create", "-f", "-", stdin=pod("first", 2))
        running(kube, "first")
        host = Path("/etc/hostname").read_text()
        assert kube("exec", "first", "--", "sh", "-c", f"({LOOKS}) 2>/dev/null").out == f"d0,d1\n{host}"
        before = status_of(kube, "first", "c")
        if socket:
            ident = before["containerID"].rpartition("/")[2]
            assert annotations(socket, ident)["example.com/given"] == "yes"
        described = run("describe", "node", NODE, "--kubeconfig", str(made.kubeconfig)).out
        assert re.search(rf"Exclusive resources:\n.*\n  \S+/first +c +{RESOURCE} d0 d1\n", described), described

        for who in ("node", "plugin", "both"):
            if who != "node":
                plugin.kill()
            if who != "plugin":
                made.kill_node()
                made.start_node()
            if who != "node":
                until(lambda: allocatable(kube) == "0")
                plugin.start()
            until(lambda: allocatable(kube) == "4")
            assert running(kube, "first")["containerStatuses"][0] == before, who
        kube("create", "-f", "-", stdin=pod("second", 3))
        refused = until(lambda: found if (found := status_of(kube, "second")).get("phase") == "Failed" else {})
        assert refused["reason"] == "UnexpectedAdmissionError"
        assert "Requested: 3, Available: 2" in refused["message"]
        kube("create", "-f", "-", stdin=pod("third", 2))
        running(kube, "third")
        assert kube("exec", "third", "--", "sh", "-c", "echo $NULL_DEVICES").out == "d2,d3\n"
    finally:
        plugin.kill()
