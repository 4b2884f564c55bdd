"""One device plugin: the connection to its socket, the devices that it lists, and the calls to it.

Every call has a deadline, other than in a kubelet: a plugin that hangs holds up pods that request its devices, and
nothing else. A list that is not plausible (too many devices, no or too long ids) is refused as a whole, with a log
line; the devices of the last good list are unhealthy then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.errors import StructuredError
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import GrpcError
from plimsoll.node.devices import messages as m
from plimsoll.rules.devices.allocation import HEALTHY, Device, Ids

log = logging.getLogger(__name__)

CONNECT_S = 10.0  # as the kubelet
ALLOCATE_S = 30.0
PRE_START_S = 30.0  # as the kubelet
MAX_DEVICES, MAX_ID = 100_000, 4096
MAX_NODES = 64

Changed = Callable[["Plugin"], None]


class PluginError(StructuredError):
    """`why`: as the kubelet says it."""

    resource: str
    why: str
    template = "{why}"


class Plugin:
    def __init__(self, resource: str, socket_path: Path, changed: Changed) -> None:
        """`changed` is called after every list, and when the plugin is gone."""
        self.resource, self.socket_path, self._changed = resource, socket_path, changed
        self._client = GrpcClient(str(socket_path))
        self.options = m.DevicePluginOptions()
        self.devices: dict[str, Device] = {}
        self.stopped = False
        self.complaint = ""  # what is wrong with the plugin, for people

    async def connect(self) -> None:
        """Raises PluginError."""
        try:
            answer = await self._client.unary(m.PLUGIN + "GetDevicePluginOptions", b"", CONNECT_S)
            self.options = decode(m.DevicePluginOptions, answer)
        except (GrpcError, ProtobufError) as error:
            self.close()
            raise PluginError(self.resource, f"failed to get device plugin options: {error}") from None

    async def follow(self) -> None:
        """Take every list until the plugin goes away. Never raises for what the plugin does."""
        try:
            async for answer in self._client.stream(m.PLUGIN + "ListAndWatch", b""):
                self._take(decode(m.ListAndWatchResponse, answer).devices)
                self._changed(self)
            self.complaint = "the plugin has ended its list of devices"
        except (GrpcError, ProtobufError) as error:
            self.complaint = f"the connection to the plugin failed: {error}"
        finally:
            self.close()
            self._changed(self)

    def _take(self, listed: tuple[m.PluginDevice, ...]) -> None:
        wrong = _implausible(listed)
        self.complaint = wrong
        if wrong:
            log.error(
                "device plugin of %s: %s; none of its devices is used until it sends a valid list", self.resource, wrong
            )
            self.devices = {key: Device(key, healthy=False, nodes=each.nodes) for key, each in self.devices.items()}
            return
        self.devices = {each.ID: _device(each) for each in listed}

    def close(self) -> None:
        self.stopped = True
        self._client.close()

    # --- calls ---

    async def preferred(self, available: Ids, must: Ids, size: int) -> tuple[str, ...]:
        """Raises PluginError."""
        wanted = m.ContainerPreferredAllocationRequest(tuple(sorted(available)), tuple(sorted(must)), size)
        request = encode(m.PreferredAllocationRequest((wanted,)))
        answer = await self._call("GetPreferredAllocation", request, ALLOCATE_S)
        responses = decode(m.PreferredAllocationResponse, answer).container_responses
        return responses[0].deviceIDs if responses else ()

    async def allocate(self, ids: Ids) -> bytes:
        """The bytes of a ContainerAllocateResponse. Raises PluginError."""
        request = encode(m.AllocateRequest((m.ContainerAllocateRequest(tuple(sorted(ids))),)))
        answer = await self._call("Allocate", request, ALLOCATE_S)
        responses = decode(m.AllocateResponse, answer).container_responses
        if not responses:
            raise PluginError(
                self.resource, f"no containers return in allocation response {m.AllocateResponse.__name__}{{}}"
            )
        decode(m.ContainerAllocateResponse, responses[0])  # raises for garbage
        return responses[0]

    async def pre_start(self, ids: Ids) -> None:
        """Raises PluginError."""
        await self._call("PreStartContainer", encode(m.PreStartContainerRequest(tuple(sorted(ids)))), PRE_START_S)

    async def _call(self, method: str, request: bytes, deadline_s: float) -> bytes:
        if self.stopped:
            raise PluginError(self.resource, f"endpoint {self.socket_path} has been stopped")
        try:
            return await self._client.unary(m.PLUGIN + method, request, deadline_s)
        except GrpcError as error:
            prefix = "" if method == "Allocate" else f"device plugin {method} rpc failed with err: "
            raise PluginError(self.resource, f"{prefix}{error}") from None
        except ProtobufError as error:
            raise PluginError(self.resource, f"{method}: {error}") from None


def _device(listed: m.PluginDevice) -> Device:
    nodes = None
    if listed.topology is not None:
        nodes = tuple(node.ID for node in listed.topology.nodes if 0 <= node.ID < MAX_NODES)
    return Device(listed.ID, listed.health == HEALTHY, nodes)


def _implausible(listed: tuple[m.PluginDevice, ...]) -> str:
    if len(listed) > MAX_DEVICES:
        return f"it lists {len(listed)} devices, more than {MAX_DEVICES}"
    if any(not each.ID or len(each.ID) > MAX_ID for each in listed):
        return f"it lists a device without an id, or with one longer than {MAX_ID}"
    return ""


async def followed(plugin: Plugin) -> None:
    """`follow`, cancelled without leaving the plugin open."""
    try:
        await plugin.follow()
    except asyncio.CancelledError:
        plugin.close()
        raise
