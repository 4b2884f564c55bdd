"""A device plugin for tests: counted devices on two NUMA nodes, each a /dev/null in the container.

As a program, `python -m tests.unit.node.devices.example_plugin DIRECTORY` registers and serves until it is killed; it
registers again whenever the node's socket is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.status import GrpcError
from plimsoll.node.devices import messages as m

RESOURCE = "example.com/null"
LONG_S = 60.0
Handler = Callable[[bytes], Awaitable[bytes]]


def devices(count: int, unhealthy: frozenset[str] = frozenset()) -> tuple[m.PluginDevice, ...]:
    """d0 … on NUMA node 0, the second half on node 1."""
    return tuple(
        m.PluginDevice(
            f"d{number}",
            "Unhealthy" if f"d{number}" in unhealthy else "Healthy",
            m.topology_of((number * 2 // count,)),
        )
        for number in range(count)
    )


class ExamplePlugin:
    def __init__(self, directory: Path, count: int = 4, *, name: str = "null.sock", resource: str = RESOURCE) -> None:
        self.directory, self.name, self.resource = directory, name, resource
        self.devices = devices(count)
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.prefers: tuple[str, ...] | None = None  # with an answer the plugin has GetPreferredAllocation
        self.pre_start = False
        self.fails: GrpcError | None = None
        self.answers_nothing = False
        self.cdi_kind = ""  # its devices have CDI names of this kind
        self.hangs = asyncio.Event()
        self.hangs.set()  # cleared: Allocate waits
        self._changed = asyncio.Event()
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        self._server = GrpcServer(
            {
                m.PLUGIN + "GetDevicePluginOptions": self._options,
                m.PLUGIN + "Allocate": self._allocate,
                m.PLUGIN + "GetPreferredAllocation": self._preferred,
                m.PLUGIN + "PreStartContainer": self._pre_start,
            },
            {m.PLUGIN + "ListAndWatch": self._list},
        )
        await self._server.listen(self.directory / self.name)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()

    async def register(self, version: str = "v1beta1", *, endpoint: str | None = None) -> None:
        client = GrpcClient(str(self.directory / "kubelet.sock"))
        request = m.RegisterRequest(version, self.name if endpoint is None else endpoint, self.resource)
        try:
            await client.unary(m.REGISTER, encode(request), LONG_S)
        finally:
            client.close()

    def show(self, listed: tuple[m.PluginDevice, ...]) -> None:
        self.devices = listed
        self._changed.set()

    async def _options(self, _: bytes) -> bytes:
        return encode(m.DevicePluginOptions(self.pre_start, self.prefers is not None))

    async def _list(self, _: bytes) -> AsyncIterator[bytes]:
        while True:
            self._changed.clear()
            yield encode(m.ListAndWatchResponse(self.devices))
            await self._changed.wait()

    async def _allocate(self, data: bytes) -> bytes:
        (asked,) = decode(m.AllocateRequest, data).container_requests
        self.calls.append(("Allocate", asked.devices_ids))
        await self.hangs.wait()
        if self.fails is not None:
            raise self.fails
        if self.answers_nothing:
            return b""
        answer = m.ContainerAllocateResponse(
            envs={"NULL_DEVICES": ",".join(asked.devices_ids)},
            mounts=(m.PluginMount("/null/info", "/etc/hostname", True),),
            devices=tuple(m.DeviceSpec(f"/dev/{name}", "/dev/null", "rw") for name in asked.devices_ids),
            annotations={"example.com/given": "yes"},
            cdi_devices=tuple(m.CDIDevice(f"{self.cdi_kind}={name}") for name in asked.devices_ids if self.cdi_kind),
        )
        return encode(m.AllocateResponse((encode(answer),)))

    async def _preferred(self, data: bytes) -> bytes:
        (asked,) = decode(m.PreferredAllocationRequest, data).container_requests
        self.calls.append(("Preferred", asked.available_deviceIDs))
        preferred = m.ContainerPreferredAllocationResponse(self.prefers or ())
        return encode(m.PreferredAllocationResponse((preferred,)))

    async def _pre_start(self, data: bytes) -> bytes:
        self.calls.append(("PreStart", decode(m.PreStartContainerRequest, data).devices_ids))
        return b""


@contextlib.asynccontextmanager
async def registered(directory: Path, count: int = 4, **fields: object) -> AsyncIterator[ExamplePlugin]:
    plugin = ExamplePlugin(directory, count)
    for name, value in fields.items():
        setattr(plugin, name, value)
    await plugin.start()
    await plugin.register()
    try:
        yield plugin
    finally:
        await plugin.stop()


async def _serve(directory: Path, count: int, cdi_kind: str) -> None:
    plugin = ExamplePlugin(directory, count)
    plugin.cdi_kind = cdi_kind
    known = (0, 0)
    while True:
        with contextlib.suppress(OSError, GrpcError):
            found = os.stat(directory / "kubelet.sock")
            now = found.st_ino, found.st_ctime_ns  # a number alone may be used again
            if now != known:
                await plugin.stop()
                await plugin.start()
                await plugin.register()
                known = now
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    asyncio.run(_serve(Path(sys.argv[1]), int(given.get(2, 4)), given.get(3, "")))
