"""The device manager: plugins by resource, which pod has which devices, and the checkpoint of both.

A plugin registers on `kubelet.sock` in the plugin directory; the agent then connects to the plugin's own socket and
follows its list. Choosing devices is immediate (`rules.devices`); the calls to the plugin are not, so a pod that
requests devices is prepared first (`prepare`): devices are reserved, the plugin is asked, and its answer is saved. Then
the pod is admitted like any other one. A pod that was prepared keeps its devices over every restart.

Kubernetes: pkg/kubelet/cm/devicemanager.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from plimsoll.codec.kernel.device_state import (
    NO_NODE,
    DeviceEntry,
    DeviceState,
    device_state_from_json,
    device_state_json,
)
from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError
from plimsoll.codec.protobuf.structs import decode
from plimsoll.linux.files.atomic_file import replace_whole
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.status import UNKNOWN, GrpcError
from plimsoll.node.devices import messages as m
from plimsoll.node.devices.plugin import Plugin, PluginError, followed
from plimsoll.rules.devices.allocation import (
    NO_IDS,
    Device,
    DeviceAllocation,
    DeviceError,
    Ids,
    Pool,
    device_limits,
)
from plimsoll.rules.model.names import is_extended
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import AdmissionRefusal

log = logging.getLogger(__name__)

SOCKET, CHECKPOINT = "kubelet.sock", "kubelet_internal_checkpoint"
FORGET_S = 300.0  # a resource whose plugin is gone
MAX_RESOURCES = 100

Report = Callable[[str, str], None]  # reason, message: an event about the node
Records = dict[str, dict[str, dict[str, Ids]]]


class PreferenceNeededError(Exception):
    """The plugin must be asked which devices it prefers, before they can be chosen."""

    def __init__(self, resource: str, available: Ids, must: Ids, size: int) -> None:
        super().__init__(resource)
        self.key = resource, available, must, size


class DeviceManager:
    def __init__(
        self,
        directory: Path,
        numa_nodes: tuple[int, ...],
        *,
        narrow: bool = True,
        changed: Callable[[], None] = lambda: None,
        report: Report = lambda _reason, _message: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`directory`: of the plugins' sockets. `changed` is called when capacity or allocatable may have changed;
        `narrow` as in `rules.devices.allocation.device_hints`."""
        self.directory, self._nodes, self._narrow = directory, numa_nodes, narrow
        self.changed, self.report, self._clock = changed, report, clock
        self.plugins: dict[str, Plugin] = {}
        self._stopped_at: dict[str, float] = {}
        self.records: Records = {}
        self._responses: dict[tuple[str, str, str], bytes] = {}
        self._failed: dict[str, AdmissionRefusal] = {}
        self._preferences: dict[tuple[str, Ids, Ids, int], tuple[str, ...]] = {}
        self._tasks: dict[Plugin, asyncio.Task[None]] = {}
        self._server = GrpcServer({m.REGISTER: self._register})

    # --- plugins ---

    async def open(self) -> None:
        """Remove old sockets, read the checkpoint, listen. Raises OSError if the directory cannot be used."""
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        for entry in os.scandir(self.directory):
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                os.unlink(entry.path)  # plugins notice it and register again
        self._load()
        await self._server.listen(self.directory / SOCKET)

    async def close(self) -> None:
        await self._server.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _register(self, data: bytes) -> bytes:
        request = decode(m.RegisterRequest, data)
        if request.version != m.VERSION:
            raise GrpcError(
                UNKNOWN,
                f'requested API version "{request.version}" is not supported by kubelet. Supported version is '
                f'["{m.VERSION}"]',
            )
        resource, endpoint = request.resource_name, request.endpoint
        if not is_extended(resource):
            raise GrpcError(UNKNOWN, f'the ResourceName "{resource}" is invalid')
        if not endpoint or "/" in endpoint or endpoint in (".", "..", SOCKET) or "\0" in endpoint:
            raise GrpcError(UNKNOWN, f"the endpoint {endpoint!r} is not the name of a socket in {self.directory}")
        if resource not in self.plugins and len(self.plugins) >= MAX_RESOURCES:
            raise GrpcError(UNKNOWN, f"more than {MAX_RESOURCES} resources are registered")
        plugin = Plugin(resource, self.directory / endpoint, self._listed)
        try:
            await plugin.connect()
        except PluginError as error:
            raise GrpcError(UNKNOWN, str(error)) from None
        before = self.plugins.get(resource)
        self.plugins[resource] = plugin
        self._stopped_at.pop(resource, None)
        if before is not None:
            before.close()
        task = asyncio.create_task(followed(plugin), name=f"device plugin {resource}")
        self._tasks[plugin] = task
        task.add_done_callback(lambda _: self._tasks.pop(plugin, None))
        log.info("device plugin of %s has registered", resource)
        return b""

    def _listed(self, plugin: Plugin) -> None:
        """A list has arrived, or the plugin is gone."""
        if self.plugins.get(plugin.resource) is not plugin:
            return  # replaced by a later registration
        if plugin.complaint:
            self.report("DevicePlugin", f"{plugin.resource}: {plugin.complaint}")
        if plugin.stopped:
            self._stopped_at[plugin.resource] = self._clock()
        self._preferences.clear()
        self._save()
        self.changed()

    def forget_stopped(self) -> None:
        """Resources whose plugin has been gone for five minutes are no longer reported (DM-5)."""
        gone = [name for name, since in self._stopped_at.items() if self._clock() - since > FORGET_S]
        for name in gone:
            del self._stopped_at[name]
            self.plugins.pop(name, None)
        if gone:
            self._save()
            self.changed()

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Resource → capacity and allocatable; zero for a resource of an earlier run whose plugin is not back."""
        self.forget_stopped()
        found = dict.fromkeys(self._known(), (0, 0))
        for name, pool in self.pools().items():
            found[name] = pool.capacity, len(pool.healthy)
        return found

    def pools(self) -> dict[str, Pool]:
        return {
            name: Pool(plugin.devices, stopped=plugin.stopped, asks=plugin.options.get_preferred_allocation_available)
            for name, plugin in self.plugins.items()
        }

    def _known(self) -> set[str]:
        recorded = {
            name for containers in self.records.values() for resources in containers.values() for name in resources
        }
        return {*self.plugins, *recorded}

    # --- pods ---

    def concerns(self, pod: Pod) -> bool:
        """Whether the pod requests devices of a known resource."""
        known = self._known()
        return bool(known) and any(
            device_limits(each, known) for each in (*pod.spec.init_containers, *pod.spec.containers)
        )

    def is_prepared(self, pod: Pod) -> bool:
        """Whether all devices of a pod are chosen and known to their plugin, or it cannot have them."""
        uid, known = pod.metadata.uid, self._known()
        return uid in self._failed or all(
            (uid, each.name, resource) in self._responses
            for each in (*pod.spec.init_containers, *pod.spec.containers)
            for resource in device_limits(each, known)
        )

    def failure(self, uid: str) -> AdmissionRefusal | None:
        return self._failed.get(uid)

    def allocation(self, pod: Pod, *, trusts: bool = False) -> DeviceAllocation:
        """`trusts`: devices that the pod has are kept, whatever became of them."""
        return DeviceAllocation(
            pod, self.pools(), self.records, self._nodes, self._preferred, narrow=self._narrow, trusts=trusts
        )

    def _preferred(self, resource: str, available: Ids, must: Ids, size: int) -> tuple[str, ...]:
        key = resource, available, must, size
        if key not in self._preferences:
            raise PreferenceNeededError(*key)
        return self._preferences[key]

    def commit(self, uid: str, allocation: DeviceAllocation) -> None:
        if allocation.new:
            self.records[uid] = {name: dict(ids) for name, ids in allocation.result.items()}

    async def prepare(self, pod: Pod, choose: Callable[[], AdmissionRefusal | None]) -> None:
        """Reserve devices and ask the plugin for them. `choose` decides and reserves (through `commit`); it is called
        again after the plugin was asked for its preference. Failures are kept for `failure`."""
        uid = pod.metadata.uid
        try:
            refusal = await self._reserved(choose)
            if refusal is not None:
                self._failed[uid] = refusal
                return
            for container, resources in self.records.get(uid, {}).items():
                for resource, ids in resources.items():
                    key = uid, container, resource
                    if key not in self._responses:
                        self._responses[key] = await self._plugin(resource).allocate(ids)
        except PluginError as error:
            log.error("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            self.release(uid)
            refusal_error = DeviceError(error.resource, str(error))
            self._failed[uid] = AdmissionRefusal(refusal_error.reason, str(refusal_error))
        self._save()

    async def _reserved(self, choose: Callable[[], AdmissionRefusal | None]) -> AdmissionRefusal | None:
        while True:
            try:
                return choose()
            except PreferenceNeededError as needed:
                resource, available, must, size = needed.key
                self._preferences[needed.key] = await self._plugin(resource).preferred(available, must, size)

    def _plugin(self, resource: str) -> Plugin:
        plugin = self.plugins.get(resource)
        if plugin is None:
            raise PluginError(resource, f"cannot allocate unregistered device {resource}")
        return plugin

    def release(self, uid: str) -> None:
        self.records.pop(uid, None)
        for key in [key for key in self._responses if key[0] == uid]:
            del self._responses[key]

    def retain(self, uids: Collection[str]) -> bool:
        """Release the devices of all other pods. True if there were some."""
        gone = [uid for uid in self.records if uid not in uids]
        for uid in gone:
            self.release(uid)
        for uid in [uid for uid in self._failed if uid not in uids]:
            del self._failed[uid]
        if gone:
            self._save()
        return bool(gone)

    # --- containers ---

    async def run_options(self, pod: Pod, container: str) -> m.ContainerAllocateResponse:
        """What the plugins add to a container, merged: the first one wins (DM-14). Raises PluginError."""
        uid = pod.metadata.uid
        merged = m.ContainerAllocateResponse()
        for resource, ids in sorted(self.records.get(uid, {}).get(container, {}).items()):
            plugin = self.plugins.get(resource)
            if plugin is not None and plugin.options.pre_start_required:
                await plugin.pre_start(ids)
            data = self._responses.get((uid, container, resource))
            if data is None:
                data = self._responses[uid, container, resource] = await self._plugin(resource).allocate(ids)
                self._save()
            merged = _merged(merged, decode(m.ContainerAllocateResponse, data), resource)
        return merged

    def devices_of(self, uid: str, container: str) -> Mapping[str, Ids]:
        return self.records.get(uid, {}).get(container, {})

    def device(self, resource: str, device_id: str) -> Device:
        plugin = self.plugins.get(resource)
        return Device(device_id) if plugin is None else plugin.devices.get(device_id, Device(device_id))

    # --- the checkpoint ---

    def _load(self) -> None:
        try:
            state = device_state_from_json((self.directory / CHECKPOINT).read_bytes())
        except FileNotFoundError:
            return
        except (CorruptCheckpointError, OSError) as error:
            log.error("%s: %s; devices of running pods are not known", self.directory / CHECKPOINT, error)
            self.report("DevicePlugin", f"the checkpoint of devices cannot be read: {error}")
            return
        for each in state.entries:
            ids = NO_IDS.union(*each.ids.values())
            self.records.setdefault(each.pod_uid, {}).setdefault(each.container, {})[each.resource] = ids
            self._responses[each.pod_uid, each.container, each.resource] = each.response

    def _save(self) -> None:
        entries = tuple(
            DeviceEntry(uid, container, resource, self._by_node(resource, ids), response)
            for uid, containers in self.records.items()
            for container, resources in containers.items()
            for resource, ids in resources.items()
            if (response := self._responses.get((uid, container, resource))) is not None
        )
        registered = {name: tuple(sorted(pool.healthy)) for name, pool in self.pools().items()}
        try:
            replace_whole(self.directory / CHECKPOINT, device_state_json(DeviceState(entries, registered)))
        except OSError as error:
            log.error("%s cannot be written: %s", self.directory / CHECKPOINT, error.strerror or error)

    def _by_node(self, resource: str, ids: Ids) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = {}
        for each in sorted(ids):
            for node in self.device(resource, each).nodes or (NO_NODE,):
                found.setdefault(node, []).append(each)
        return {node: tuple(names) for node, names in found.items()}


def _merged(
    first: m.ContainerAllocateResponse, second: m.ContainerAllocateResponse, resource: str
) -> m.ContainerAllocateResponse:
    for what, ours, theirs in (
        ("environment", first.envs, second.envs),
        ("annotation", first.annotations, second.annotations),
    ):
        for name in ours.keys() & theirs.keys():
            if ours[name] != theirs[name]:
                log.error("device plugin of %s: %s %s is set by another plugin already", resource, what, name)
    mounts = {each.container_path: each for each in (*second.mounts, *first.mounts)}
    devices = {each.container_path: each for each in (*second.devices, *first.devices)}
    cdi = {each.name: each for each in (*first.cdi_devices, *second.cdi_devices)}
    return msgspec.structs.replace(
        first,
        envs={**second.envs, **first.envs},
        annotations={**second.annotations, **first.annotations},
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        cdi_devices=tuple(cdi.values()),
    )
