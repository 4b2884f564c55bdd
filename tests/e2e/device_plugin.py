"""A device plugin as a process that can be killed, and what a runtime was given for a container."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import Annotated

from plimsoll.runtime.cri.calls import CriCall, CriClient
from plimsoll.runtime.cri.message_parts import Message
from plimsoll.runtime.cri.messages import ContainerStatusRequest
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, RealNode
from tests.unit.node.devices.example_plugin import RESOURCE


class _Annotations(Message, frozen=True):
    annotations: Annotated[dict[str, str], 13] = {}


class _Status(Message, frozen=True):
    """The part of CRI's ContainerStatusResponse that is read here."""

    status: Annotated[_Annotations | None, 1] = None


class Plugin:
    def __init__(self, node: RealNode, cdi_kind: str = "") -> None:
        directory = str(node.state / "node" / "device-plugins")
        self._words = ["-m", "tests.unit.node.devices.example_plugin", directory, "4", cdi_kind]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, *self._words])

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def device_pod(name: str, count: int) -> str:
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
