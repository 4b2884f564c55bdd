"""The PodResources API v1 on a unix socket: which pod has which devices, CPUs and memory (07 §7).

`facts` answers from the managers; this module speaks the protocol. Callers get at most 100 answers a second, with
bursts of 10, as from a kubelet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned, decode, encode
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.status import RESOURCE_EXHAUSTED, UNKNOWN, GrpcError
from plimsoll.node.devices import messages as m
from plimsoll.node.devices.manager import DeviceManager
from plimsoll.rules.devices.allocation import Ids
from plimsoll.rules.memorymanager.blocks import Block
from plimsoll.rules.model.objects import Pod, is_sidecar

SOCKET = "kubelet.sock"
PER_SECOND, BURST = 100.0, 10.0


class ResourceFacts(Protocol):
    """What the resource managers know."""

    def active_pods(self) -> Iterable[Pod]: ...
    def cpu_ids(self, uid: str, container: str) -> Iterable[int]: ...
    def blocks(self, uid: str, container: str) -> Iterable[Block]: ...
    def allocatable_cpus(self) -> Iterable[int]: ...
    def allocatable_memory(self) -> Iterable[Block]: ...


class Rate(msgspec.Struct):
    """A bucket of tokens."""

    clock: Callable[[], float] = time.monotonic
    tokens: float = BURST
    at_s: float = 0.0

    def take(self) -> None:
        """Raises GrpcError if there have been too many calls."""
        now = self.clock()
        self.tokens = min(BURST, self.tokens + (now - self.at_s) * PER_SECOND)
        self.at_s = now
        if self.tokens < 1:
            raise GrpcError(RESOURCE_EXHAUSTED, "rejected by rate limit")
        self.tokens -= 1


class PodResourcesServer:
    def __init__(self, facts: ResourceFacts, devices: DeviceManager, *, rate: Rate | None = None) -> None:
        self._facts, self._devices, self._rate = facts, devices, rate or Rate()
        self._server = GrpcServer(
            {
                m.LISTER + "List": self._limited(self._list),
                m.LISTER + "GetAllocatableResources": self._limited(self._allocatable),
                m.LISTER + "Get": self._limited(self._get),
            }
        )

    async def listen(self, directory: Path) -> None:
        """Raises OSError."""
        os.makedirs(directory, mode=0o750, exist_ok=True)
        await self._server.listen(directory / SOCKET)

    async def close(self) -> None:
        await self._server.close()

    def _limited(self, answer: Callable[[bytes], msgspec.Struct]) -> Callable[[bytes], Awaitable[bytes]]:
        async def limited(request: bytes) -> bytes:
            self._rate.take()
            return encode(answer(request))

        return limited

    def _list(self, _: bytes) -> m.ListPodResourcesResponse:
        return m.ListPodResourcesResponse(tuple(self._pod(pod) for pod in self._facts.active_pods()))

    def _get(self, data: bytes) -> m.GetPodResourcesResponse:
        asked = decode(m.GetPodResourcesRequest, data)
        for pod in self._facts.active_pods():
            if (pod.metadata.name, pod.metadata.namespace) == (asked.pod_name, asked.pod_namespace):
                return m.GetPodResourcesResponse(self._pod(pod))
        raise GrpcError(UNKNOWN, f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found")

    def _allocatable(self, _: bytes) -> m.AllocatableResourcesResponse:
        """Everything that pods can get, given or not (PR-3)."""
        devices = tuple(
            each for resource, pool in self._devices.pools().items() for each in self._listed(resource, pool.healthy)
        )
        memory = tuple(_memory(block) for block in self._facts.allocatable_memory())
        return m.AllocatableResourcesResponse(devices, tuple(sorted(self._facts.allocatable_cpus())), memory)

    def _pod(self, pod: Pod) -> m.PodResources:
        """Sidecars and containers; ordinary init containers are never listed (PR-2)."""
        lasting = [each for each in pod.spec.init_containers if is_sidecar(each)]
        names = [each.name for each in (*lasting, *pod.spec.containers)]
        containers = tuple(self._container(pod.metadata.uid, name) for name in names)
        return m.PodResources(pod.metadata.name, pod.metadata.namespace, containers)

    def _container(self, uid: str, name: str) -> m.ContainerResources:
        own = self._devices.devices_of(uid, name)
        devices = tuple(each for resource, ids in own.items() for each in self._listed(resource, ids))
        memory = tuple(_memory(block) for block in self._facts.blocks(uid, name))
        return m.ContainerResources(name, devices, tuple(sorted(self._facts.cpu_ids(uid, name))), memory)

    def _listed(self, resource: str, ids: Ids) -> Iterable[m.ContainerDevices]:
        """One entry per device and NUMA node."""
        for each in sorted(ids):
            nodes = self._devices.device(resource, each).nodes
            for topology in [m.topology_of((node,)) for node in nodes] if nodes else [None]:
                yield m.ContainerDevices(resource, (each,), topology)


def _memory(block: Block) -> m.ContainerMemory:
    return m.ContainerMemory(block.type, Unsigned(block.size), m.topology_of(block.nodes))
