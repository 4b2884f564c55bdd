"""The embedded runtime: the calls of `interface.Runtime`, made to the supervisor.

The supervisor is detached: if the agent is killed, containers keep running. Ids are derived from the pod, so they are
known beforehand. `limitations` says in whole sentences what this machine does not allow.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import plimsoll
from plimsoll.codec.seccomp.bpf import compiled
from plimsoll.codec.seccomp.profiles import InvalidProfileError, default_profile, read_profile
from plimsoll.linux import capabilities
from plimsoll.linux.machine import kernel_version
from plimsoll.rules.lifecycle.security_context import LOCALHOST
from plimsoll.runtime.embedded.client import SupervisorClient
from plimsoll.runtime.embedded.exec import AttachSession, PipeSession, StreamEnd, TerminalSession
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
    SandboxSpec,
)
from plimsoll.runtime.supervisor import images as bundled
from plimsoll.runtime.supervisor import wire


def sandbox_id(spec: SandboxSpec) -> str:
    return _digest("sandbox", spec.pod_uid, str(spec.attempt))


def container_id(sandbox: SandboxSpec, name: str, attempt: int) -> str:
    return _digest("container", sandbox.pod_uid, str(sandbox.attempt), name, str(attempt))


def plan_document(spec: ContainerSpec) -> dict[str, object]:
    """The supervisor's `plan.LaunchPlan` of a container; RuntimeCallError for what can't be honoured."""
    program = bundled.program(spec.image_ref)
    argv = program.argv(spec.command, spec.args)
    if not argv:
        raise RuntimeCallError("make_container", f"container {spec.name}: neither it nor its image has a command")
    security = spec.security
    try:
        granted = capabilities.granted(
            security.add_capabilities, security.drop_capabilities, privileged=security.privileged
        )
    except capabilities.UnknownCapabilityError as problem:
        raise RuntimeCallError("make_container", f"container {spec.name}: {problem}") from None
    return {
        "argv": argv,
        "environment": dict(spec.environment),
        "working_dir": spec.working_dir,
        "root": program.root,
        "expose": program.expose,
        "binds": [
            *((mount.host_path, mount.container_path, mount.read_only, mount.propagation) for mount in spec.mounts),
            *((each.host_path, each.container_path, False, "None", True) for each in spec.devices),
        ],
        "identity": (
            security.user or 0,
            security.group,
            security.groups,
            capabilities.mask(granted),
            security.no_new_privileges and not security.privileged,
            security.groups_policy != "Strict",
        ),
        "seccomp": _seccomp_program(spec, granted),
        "privileged": security.privileged,
        "read_only_root": security.read_only_root,
        "unmasked": security.unmasked_proc,
        "stdin": spec.stdin,
        "stdin_once": spec.stdin_once,
        "tty": spec.tty,
        "oom_score_adj": spec.resources.oom_score_adj,
        "stop_signal": spec.stop_signal,
    }


def _seccomp_program(spec: ContainerSpec, granted: Collection[str]) -> str:
    """The BPF program in base64; empty for a container without a filter."""
    profile, machine = spec.security.seccomp, os.uname().machine
    if spec.security.privileged or profile == "Unconfined":
        return ""
    try:
        if profile.startswith(LOCALHOST):
            program = compiled(read_profile(Path(profile.removeprefix(LOCALHOST)).read_bytes()), machine)
        else:
            program = _default_program(frozenset(granted), machine)
    except (OSError, InvalidProfileError) as error:
        raise RuntimeCallError("make_container", f"container {spec.name}: seccomp profile: {error}") from None
    if not program:
        reason = f"no seccomp filter for {machine} machines: set seccompProfile.type: Unconfined"
        raise RuntimeCallError("make_container", f"container {spec.name}: {reason}")
    return base64.b64encode(program).decode()


@lru_cache(maxsize=32)
def _default_program(granted: frozenset[str], machine: str) -> bytes:
    return compiled(default_profile(granted, machine), machine)


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


# Names under which classes commonly refer to the default runtime.
_HANDLERS = ("", "plimsoll", "runc")
_SANDBOX_FIELDS = (
    "pod_uid", "name", "namespace", "attempt", "hostname", "host_network", "host_pid", "host_ipc",
    "share_process_namespace", "log_directory", "cgroup_parent", "sysctls",
)  # fmt: skip


class ProcessRuntime(SupervisorClient):
    """`open_cgroup` opens the directories of a container's cgroup, one fd per hierarchy; they are closed here.

    No container sees `state_dir` nor what else is in `hidden`. `open_own_cgroup` is for the supervisor itself.
    """

    name = "plimsoll"
    version = plimsoll.__version__
    makes_cgroups = False

    def __init__(
        self,
        state_dir: Path,
        open_cgroup: Callable[[str], Sequence[int]],
        images: Mapping[str, str] | None = None,
        *,
        hidden: Sequence[Path] = (),
        log_max_bytes: int = 10 << 20,
        log_max_files: int = 5,
        open_own_cgroup: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        state = Path(os.path.abspath(state_dir))
        super().__init__(state, hidden, (log_max_bytes, log_max_files), open_own_cgroup)
        self._open_cgroup, self._images = open_cgroup, dict(images or {})

    @property
    def features(self) -> RuntimeFeatures:
        """A tmpfs shows the users of a user namespace since Linux 6.3, other file systems before."""
        handlers = frozenset(_HANDLERS)
        has_users = self.isolation and kernel_version() >= (6, 3) and os.path.exists("/proc/self/ns/user")
        return RuntimeFeatures(
            handlers=_HANDLERS,
            user_namespaces=handlers if has_users else frozenset(),
            recursive_read_only=handlers,
            profiles=False,
        )

    async def image(self, name: str, *, has_command: bool, pull: bool, auth: RegistryAuth | None = None) -> Image:
        try:
            resolved = bundled.resolved(name, self._images, has_command=has_command)
        except bundled.NoImageError as problem:
            raise ImageError(name, str(problem), "ErrImagePull" if pull else "ErrImageNeverPull") from None
        return Image(resolved.ref, 0, resolved.note, None, resolved.runs)

    # -- sandboxes

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        if spec.runtime_handler not in _HANDLERS:
            known = " and ".join(filter(None, _HANDLERS))
            reason = f'no runtime for "{spec.runtime_handler}" is configured; the embedded runtime has {known}'
            raise RuntimeCallError("make_sandbox", reason)
        new_id = sandbox_id(spec)
        document: dict[str, object] = {name: getattr(spec, name) for name in _SANDBOX_FIELDS}
        if spec.users is not None:
            document["users"] = (spec.users.first, spec.users.length)
        await self._call("make_sandbox", sandbox={"id": new_id, **document})
        return new_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._call("stop_sandbox", sandbox=sandbox_id)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self._call("remove_sandbox", sandbox=sandbox_id)

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        _, fds = await self._call_for_fds("socket", sandbox=sandbox_id)
        if not fds:
            return None
        connecting = socket.socket(fileno=fds[0])
        connecting.setblocking(False)
        return connecting

    async def loopback_socket(self, sandbox_id: str, family: socket.AddressFamily) -> socket.socket:
        _, fds = await self._call_for_fds("socket", sandbox=sandbox_id, ipv6=family == socket.AF_INET6)
        return socket.socket(fileno=fds[0]) if fds else socket.socket(family, socket.SOCK_STREAM)

    # -- containers

    def container_id(self, sandbox: SandboxSpec, name: str, attempt: int) -> str:
        return container_id(sandbox, name, attempt)

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        new_id = self.container_id(sandbox, spec.name, spec.attempt)
        record = {
            "id": new_id,
            "sandbox_id": sandbox_id,
            "pod_uid": sandbox.pod_uid,
            "name": spec.name,
            "attempt": spec.attempt,
            "image": spec.image,
            "image_id": spec.image_ref,
            "log_file": os.path.join(sandbox.log_directory, spec.log_path) if spec.log_path else "",
            "cgroup": spec.cgroup,
            "target_id": spec.target_id,
            "annotations": dict(spec.annotations),
        }
        await self._call("make_container", container=record, plan=plan_document(spec))
        return new_id

    async def start_container(self, container_id: str) -> None:
        with self._cgroup_fds(container_id, "start_container") as fds:
            await self._call("start_container", fds, container=container_id)

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        await self._call("stop_container", container=container_id, grace_s=grace_s)

    async def remove_container(self, container_id: str) -> None:
        await self._call("remove_container", container=container_id)

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        """Nothing to do: the agent writes the cgroups itself."""

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        """Nothing to do either."""

    async def reopen_log(self, container_id: str) -> None:
        await self._call("reopen_log", container=container_id)

    def log_file(self, container: ObservedContainer) -> Path:
        return Path(container.log_file)

    @contextlib.contextmanager
    def _cgroup_fds(self, container_id: str, call: str) -> Iterator[tuple[int, ...]]:
        path = self._cgroups.get(container_id, "")
        try:
            fds = tuple(self._open_cgroup(path)) if path else ()
        except OSError as problem:
            raise RuntimeCallError(call, f"cgroup {path}: {problem}") from None
        try:
            yield fds
        finally:
            wire.close_fds(fds)

    # -- processes beside a container

    async def run_in(
        self, container_id: str, command: tuple[str, ...], timeout_s: float, *, max_output_bytes: int = 16384
    ) -> ExecResult:
        number = next(self._numbers)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        output = StreamEnd(reading)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        ending: asyncio.Future[tuple[int, bool]] = asyncio.get_running_loop().create_future()
        self._ends[number] = ending
        try:
            try:
                await self._run(number, container_id, command, [nothing, writing, writing], timeout_s=timeout_s)
            finally:
                os.close(writing)
                os.close(nothing)
            said = await output.collected(max_output_bytes, ending)
            code, timed_out = await ending
        finally:
            output.close()
            await self._kill_run(number)
        return ExecResult(code, said, timed_out)

    async def exec(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
        number = next(self._numbers)
        ending: asyncio.Future[tuple[int, bool]] = asyncio.get_running_loop().create_future()
        self._ends[number] = ending

        async def kill() -> None:
            await self._kill_run(number)

        if tty:
            fds = await self._run(number, container_id, command, [], tty=True)
            return TerminalSession(fds[0], ending, kill, stdin=stdin)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        try:
            await self._run(number, container_id, command, theirs)
        except RuntimeCallError:
            wire.close_fds(ours)
            raise
        finally:
            wire.close_fds(theirs)
        session = PipeSession(ours[0], ours[1], ours[2], ending, kill)
        if not stdin:
            await session.close_stdin()
        return session

    async def attach(self, container_id: str, *, stdin: bool, tty: bool) -> ExecSession:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        try:
            answer, entry = await self._call_for_fds(
                "attach", [pipe[1] for pipe in pipes], container=container_id, stdin=stdin
            )
        except RuntimeCallError:
            wire.close_fds(pipe[0] for pipe in pipes)
            raise
        finally:
            wire.close_fds(pipe[1] for pipe in pipes)
        inward, is_once = entry[0] if entry else -1, bool(answer["stdin_once"])
        return AttachSession(inward, pipes[0][0], pipes[1][0], stdin=stdin, stdin_once=is_once, tty=tty)

    async def _run(
        self, number: int, container_id: str, command: tuple[str, ...], streams: list[int], **how: object
    ) -> list[int]:
        try:
            with self._cgroup_fds(container_id, "exec") as cgroups:
                _, fds = await self._call_for_fds(
                    "run",
                    (*streams, *cgroups),
                    run=number,
                    container=container_id,
                    argv=list(command),
                    streams=len(streams),
                    **how,
                )
        except RuntimeCallError:
            self._ends.pop(number, None)
            raise
        return fds

    async def _kill_run(self, number: int) -> None:
        """If it still runs; no error if it has ended, or if the supervisor is gone."""
        if self._ends.pop(number, None) is not None and self._connection is not None:
            with contextlib.suppress(RuntimeCallError):
                await self._call("kill_run", run=number)
