"""The PodResources API over its socket (07 §7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.codec.lean.lean import lean_pod
from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import GrpcError
from plimsoll.node.devices import messages as m
from plimsoll.node.devices.pod_resources import PodResourcesServer, Rate
from plimsoll.rules.memorymanager.blocks import Block
from plimsoll.rules.model.objects import Pod
from tests.unit.node.devices.example_plugin import registered
from tests.unit.node.devices.test_device_manager import node

LONG_S = 60.0


class Facts:
    def active_pods(self) -> list[Pod]:
        containers = [{"name": "c"}]
        inits = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
        spec = {"containers": containers, "initContainers": inits}
        return [lean_pod({"metadata": {"name": "a", "namespace": "d", "uid": "a"}, "spec": spec})]

    def cpu_ids(self, uid: str, container: str) -> list[int]:
        return [5, 1] if container == "c" else []

    def blocks(self, uid: str, container: str) -> list[Block]:
        return [Block((0, 1), "memory", 1 << 30)] if container == "c" else []

    def allocatable_cpus(self) -> list[int]:
        return [3, 2, 1]

    def allocatable_memory(self) -> list[Block]:
        return [Block((0,), "memory", 1 << 33)]


async def test_answers(tmp_path: Path) -> None:
    async with node(tmp_path) as here, registered(here.manager.directory):
        await here.sizes(4, 4)
        await here.give("a", 1)
        server = PodResourcesServer(Facts(), here.manager, rate=Rate(clock=lambda: 0.0))
        await server.listen(tmp_path / "r")
        client = GrpcClient(str(tmp_path / "r" / "kubelet.sock"))

        async def call(method: str, data: bytes = b"") -> bytes:
            return await client.unary(m.LISTER + method, data, LONG_S)

        try:
            (pod,) = decode(m.ListPodResourcesResponse, await call("List")).pod_resources
            assert [each.name for each in pod.containers] == ["s", "c"]
            sidecar, app = pod.containers
            assert sidecar == m.ContainerResources("s")
            assert app == m.ContainerResources(
                "c",
                (m.ContainerDevices("example.com/null", ("d0",), m.topology_of((0,))),),
                (1, 5),
                (m.ContainerMemory("memory", 1 << 30, m.topology_of((0, 1))),),  # type: ignore[arg-type]
            )
            request = encode(m.GetPodResourcesRequest("a", "d"))
            assert decode(m.GetPodResourcesResponse, await call("Get", request)).pod_resources == pod
            with pytest.raises(GrpcError, match="pod x in namespace d not found"):
                await call("Get", encode(m.GetPodResourcesRequest("x", "d")))
            every = decode(m.AllocatableResourcesResponse, await call("GetAllocatableResources"))
            assert (every.cpu_ids, len(every.devices), every.memory[0].size) == ((1, 2, 3), 4, 1 << 33)
            with pytest.raises(GrpcError, match="rejected by rate limit"):
                for _ in range(11):
                    await call("List")
        finally:
            client.close()
            await server.close()
