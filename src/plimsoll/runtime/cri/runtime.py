"""`CriRuntime`: containerd or CRI-O behind the `Runtime` protocol.

Creation is attempted first: a runtime that already has the pod's sandbox, or the container of that attempt, refuses the
name, and then the existing one is returned. Changes come from the runtime's events where it sends them; otherwise its
state is polled every second while something happens and every ten seconds while nothing does, and at once when a
process ends (`events`).
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from plimsoll.codec.protobuf.structs import decode
from plimsoll.linux.namespaces import NET, open_namespace, setns
from plimsoll.net.grpc.status import DEADLINE_EXCEEDED, NOT_FOUND, UNIMPLEMENTED
from plimsoll.rules.eviction.usage import FsUsage
from plimsoll.rules.model.cgroup_names import Driver
from plimsoll.runtime.cri import answers, calls, containerd_task, requests
from plimsoll.runtime.cri import exec_messages as em
from plimsoll.runtime.cri import image_messages as im
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.calls import CallRefusedError, CriCall, CriClient
from plimsoll.runtime.cri.events import Changes
from plimsoll.runtime.cri.snapshot import SnapshotReader
from plimsoll.runtime.interface import (
    ContainerSpec,
    CriResources,
    ExecResult,
    ExecSession,
    Image,
    ImageError,
    ObservedContainer,
    RegistryAuth,
    RuntimeCallError,
    RuntimeFeatures,
    RuntimeSnapshot,
    SandboxSpec,
)

KILLED = 137
_BEING_STARTED, _BEING_STARTED_S, _AGAIN_S = "in starting state", 30.0, 0.05  # containerd's message


class CriRuntime:
    makes_cgroups = True

    def __init__(
        self,
        socket_path: str,
        *,
        handler: str = "",
        patience_s: float = calls.PATIENCE_S,
        outlives_us: bool = False,
    ) -> None:
        """`handler`: of sandboxes without a RuntimeClass, "" for the runtime's default. `outlives_us`: the runtime
        completes pending calls even if this process is killed."""
        self.name, self.version = "", ""
        self.cgroup_driver: Driver | None = None  # as RuntimeConfig reports it; None before containerd 2.0
        self.configured_driver: Driver | None = None  # as its configuration shows it, if at all
        self.sandbox_image = ""
        self.features = RuntimeFeatures()
        self._handler = handler
        self._socket_path = socket_path.removeprefix("unix://")
        self._pid = 0
        self._known_at = 0  # the connection on which it reported its version
        self._no_updates_at = -1  # the connection on which UpdatePodSandboxResources was unimplemented
        self._client = CriClient(self._socket_path, patience_s, outlives_us=outlives_us)
        self._snapshots = SnapshotReader(self._client)
        self._changes = Changes(self._client, self._snapshots)

    async def open(self) -> None:
        await self._ask_version()
        try:
            self.cgroup_driver = answers.driver_from(await self._client.ask(calls.RUNTIME_CONFIG, m.Empty()))
        except CallRefusedError as refused:
            if refused.code != UNIMPLEMENTED:
                raise
        status = await self._client.ask(calls.STATUS, m.StatusRequest(verbose=True))
        self.configured_driver = self.cgroup_driver or answers.driver_configured(status.info, self._handler)
        self.sandbox_image = answers.sandbox_image_configured(status.info)
        self.features = answers.features_from(status, self.name, self.version)

    async def close(self) -> None:
        self._changes.close()
        self._client.close()

    @property
    def pid(self) -> int:
        """Of the runtime itself, from the kernel's list of sockets; 0 where none listens."""
        if not self._pid or not os.path.exists(f"/proc/{self._pid}"):
            self._pid = listener_pid(self._socket_path)
        return self._pid

    async def _ask_version(self) -> None:
        version = await self._client.ask(calls.VERSION, m.VersionRequest())
        self.name, self.version = version.runtime_name, version.runtime_version
        self._known_at = self._client.connections

    async def health(self) -> answers.Health:
        """Updates `version` and `features`, too: a runtime that was restarted may be newer, or have other handlers."""
        status = await self._client.ask(calls.STATUS, m.StatusRequest())
        if self._client.connections != self._known_at:
            await self._ask_version()
        self.features = answers.features_from(status, self.name, self.version)
        return answers.health_from(status)

    async def seen(self) -> RuntimeSnapshot:
        snapshot = await self._snapshots.read()
        self._changes.snapshot_taken()
        return snapshot

    def changes(self) -> AsyncIterator[str]:
        return self._changes.follow()

    # Images

    async def image(self, name: str, *, has_command: bool, pull: bool, auth: RegistryAuth | None = None) -> Image:
        """`pull` asks the registry even if the image exists."""
        spec = m.ImageSpec(image=name)
        if pull:
            try:
                known = im.AuthConfig(auth.username, auth.password) if auth is not None else None
                await self._client.ask(calls.PULL_IMAGE, im.PullImageRequest(image=spec, auth=known))
            except CallRefusedError as refused:
                raise ImageError(name, refused.reason) from refused
        answer = await self._client.ask(calls.IMAGE_STATUS, im.ImageStatusRequest(image=spec, verbose=True))
        if answer.image is None or not answer.image.id:
            raise ImageError(name, f'Container image "{name}" is not present on this node', "ErrImageNeverPull")
        return answers.image_found(answer.image, answer.info)

    async def images(self) -> tuple[answers.StoredImage, ...]:
        answer = await self._client.ask(calls.LIST_IMAGES, m.Empty())
        return tuple(
            answers.StoredImage(image.id, (*image.repo_tags, *image.repo_digests), image.size, image.pinned)
            for image in answer.images
        )

    async def remove_image(self, ref: str) -> None:
        await self._client.ask(calls.REMOVE_IMAGE, im.ImageRequest(image=m.ImageSpec(image=ref)))

    async def filesystems(self) -> answers.Filesystems:
        """Where images and writable layers are stored, if the runtime reports it."""
        return answers.filesystems_from(await self._client.ask(calls.IMAGE_FS_INFO, m.Empty()))

    async def writable_layers(self) -> dict[str, FsUsage]:
        """By container id: the use of its writable layer. Runtimes measure it about every ten seconds."""
        return answers.writable_layers_from(await self._client.ask(calls.LIST_CONTAINER_STATS, m.Empty()))

    # Sandboxes

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        handler = spec.runtime_handler or self._handler
        request = m.RunPodSandboxRequest(config=requests.sandbox_config(spec), runtime_handler=handler)
        try:
            sandbox_id = (await self._client.ask(calls.RUN_SANDBOX, request)).pod_sandbox_id
        except CallRefusedError:
            there = await self._sandbox_there(spec)
            if there is None:
                raise
            if there.state != m.SANDBOX_READY:
                # Left incomplete by a runtime that was ended: it is empty, and its name is needed.
                if (await self._client.ask(calls.LIST_CONTAINERS, _in_sandbox(there.id))).containers:
                    raise
                await self.remove_sandbox(there.id)
                return (await self._client.ask(calls.RUN_SANDBOX, request)).pod_sandbox_id
            sandbox_id = there.id
        return sandbox_id

    async def _sandbox_there(self, spec: SandboxSpec) -> m.PodSandbox | None:
        wanted = m.PodSandboxFilter(label_selector={requests.POD_UID: spec.pod_uid})
        answer = await self._client.ask(calls.LIST_SANDBOXES, m.ListPodSandboxRequest(filter=wanted))
        for sandbox in (decode(m.PodSandbox, data) for data in answer.items):
            if sandbox.metadata is not None and sandbox.metadata.attempt == spec.attempt:
                return sandbox
        return None

    async def stop_sandbox(self, sandbox_id: str) -> None:
        with _gone_is_fine():
            await self._client.ask(calls.STOP_SANDBOX, m.SandboxRequest(pod_sandbox_id=sandbox_id))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Stopped first: runtimes remove no sandbox that is ready."""
        await self.stop_sandbox(sandbox_id)
        with _gone_is_fine():
            await self._client.ask(calls.REMOVE_SANDBOX, m.SandboxRequest(pod_sandbox_id=sandbox_id))

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        """A runtime without this call (containerd 1.6) is not asked again over the same connection."""
        if self._client.connections == self._no_updates_at:
            return
        request = m.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=sandbox_id, resources=requests.linux_resources(resources)
        )
        try:
            await self._client.ask(calls.UPDATE_SANDBOX, request)
        except CallRefusedError as refused:
            if refused.code != UNIMPLEMENTED:
                raise
            self._no_updates_at = self._client.connections

    # Containers

    def container_id(self, sandbox: SandboxSpec, name: str, attempt: int) -> str:
        return ""

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        request = m.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=requests.container_config(sandbox, spec),
            sandbox_config=requests.sandbox_config(sandbox),
        )
        try:
            container_id = (await self._client.ask(calls.CREATE_CONTAINER, request)).container_id
        except CallRefusedError:
            there = await self._container_there(sandbox_id, spec)
            if there is None:
                raise
            if there.state == m.EXITED and answers.never_began(await self._status(there.id)):
                await self.remove_container(there.id)
                return (await self._client.ask(calls.CREATE_CONTAINER, request)).container_id
            container_id = there.id
        return container_id

    async def _container_there(self, sandbox_id: str, spec: ContainerSpec) -> m.Container | None:
        answer = await self._client.ask(calls.LIST_CONTAINERS, _in_sandbox(sandbox_id))
        wanted = m.ContainerMetadata(name=spec.name, attempt=spec.attempt)
        for container in (decode(m.Container, data) for data in answer.containers):
            if container.metadata == wanted:
                return container
        return None

    async def start_container(self, container_id: str) -> None:
        clock = asyncio.get_running_loop().time
        give_up = clock() + _BEING_STARTED_S
        while True:
            try:
                await self._client.ask(calls.START_CONTAINER, m.ContainerRequest(container_id=container_id))
            except CallRefusedError as refused:
                # Already started, by an agent or over a connection that ended before the answer.
                if refused.code == NOT_FOUND:
                    raise
                status = await self._status(container_id)
                if status.started_at and answers.PHASES.get(status.state) in ("running", "exited"):
                    return
                if _BEING_STARTED not in refused.description or clock() > give_up:
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        request = m.StopContainerRequest(container_id=container_id, timeout=math.ceil(grace_s))
        with _gone_is_fine():
            await self._client.ask(calls.STOP_CONTAINER, request, extra_s=grace_s)
            # StopContainer leaves a container that was created but never started, which could still be started.
            if self._snapshots.is_created(container_id) and (await self._status(container_id)).state == m.CREATED:
                await self.remove_container(container_id)

    async def remove_container(self, container_id: str) -> None:
        request = m.ContainerRequest(container_id=container_id)
        with _gone_is_fine():
            try:
                await self._client.ask(calls.REMOVE_CONTAINER, request)
            except CallRefusedError as refused:
                if containerd_task.REFUSAL not in refused.description:
                    raise
                await containerd_task.end(self._client, container_id)
                await self._client.ask(calls.REMOVE_CONTAINER, request)

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        request = m.UpdateContainerResourcesRequest(
            container_id=container_id, linux=requests.linux_resources(resources)
        )
        await self._client.ask(calls.UPDATE_RESOURCES, request)

    async def container_resources(self, container_id: str) -> CriResources | None:
        """The resources that the runtime reports; None where it does not."""
        return answers.resources_from(await self._status(container_id))

    async def _status(self, container_id: str) -> m.ContainerStatus:
        request = m.ContainerStatusRequest(container_id=container_id)
        answer = await self._client.ask(calls.CONTAINER_STATUS, request)
        return answer.status or m.ContainerStatus()

    async def run_in(
        self, container_id: str, command: tuple[str, ...], timeout_s: float, *, max_output_bytes: int = 16384
    ) -> ExecResult:
        """CRI counts whole seconds, so the timeout is rounded up."""
        whole_s = max(1, math.ceil(timeout_s))
        request = em.ExecSyncRequest(container_id=container_id, cmd=command, timeout=whole_s)
        try:
            done = await self._client.ask(calls.EXEC_SYNC, request, extra_s=whole_s)
        except CallRefusedError as refused:
            if refused.code == DEADLINE_EXCEEDED:
                return ExecResult(KILLED, refused.description.encode()[:max_output_bytes], timed_out=True)
            raise
        return ExecResult(done.exit_code, (done.stdout + done.stderr)[:max_output_bytes])

    async def exec(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
        request = em.ExecRequest(
            container_id=container_id, cmd=command, tty=tty, stdin=stdin, stdout=True, stderr=not tty
        )
        return await self._stream(calls.EXEC, request, stdin=stdin, tty=tty)

    async def attach(self, container_id: str, *, stdin: bool, tty: bool) -> ExecSession:
        request = em.AttachRequest(container_id=container_id, stdin=stdin, tty=tty, stdout=True, stderr=not tty)
        return await self._stream(calls.ATTACH, request, stdin=stdin, tty=tty)

    async def _stream(
        self, call: CriCall[em.StreamingResponse], request: msgspec.Struct, *, stdin: bool, tty: bool
    ) -> ExecSession:
        from plimsoll.runtime.cri.exec import ExecStream  # most agents never need it

        url = (await self._client.ask(call, request)).url
        return await ExecStream.connect(call.name, url, stdin=stdin, tty=tty)

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        """None if the pod has an address."""
        pid = self._snapshots.unreachable_pid(sandbox_id)
        return _socket_beside(pid, socket.AF_INET) if pid else None

    async def loopback_socket(self, sandbox_id: str, family: socket.AddressFamily) -> socket.socket:
        pid = self._snapshots.sandbox_pid(sandbox_id)
        if not pid:
            raise RuntimeCallError("loopback_socket", f"the runtime names no process of sandbox {sandbox_id}")
        return _socket_beside(pid, family) or socket.socket(family, socket.SOCK_STREAM)

    async def reopen_log(self, container_id: str) -> None:
        await self._client.ask(calls.REOPEN_LOG, m.ContainerRequest(container_id=container_id))

    def log_file(self, container: ObservedContainer) -> Path:
        return Path(container.log_file)


def _socket_beside(pid: int, family: socket.AddressFamily) -> socket.socket | None:
    """In the network namespace of a process; None if that is the host's. Only this thread switches, and nothing is
    awaited before it switches back."""
    own = open_namespace(NET)
    try:
        try:
            theirs = open_namespace(NET, pid)
        except OSError as error:
            raise RuntimeCallError("socket", f"the sandbox's process {pid} has ended: {error.strerror}") from error
        try:
            if os.path.samestat(os.fstat(own), os.fstat(theirs)):
                return None
            setns(theirs, NET)
            try:
                return socket.socket(family, socket.SOCK_STREAM)
            finally:
                setns(own, NET)
        finally:
            os.close(theirs)
    finally:
        os.close(own)


def listener_pid(socket_path: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(socket_path)
        except OSError:
            return 0
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _in_sandbox(sandbox_id: str) -> m.ListContainersRequest:
    return m.ListContainersRequest(filter=m.ContainerFilter(pod_sandbox_id=sandbox_id))


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except CallRefusedError as refused:
        if refused.code != NOT_FOUND:
            raise
