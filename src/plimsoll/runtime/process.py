"""The embedded runtime, as the agent sees it: a client of the supervisor (`host`) that keeps a copy of its table.

The supervisor tells of every change before it answers the call that made it, so `seen` is answered from the copy, at
no cost and never older than the last answer. When the connection is lost, calls under way fail, and it is made again; a
supervisor that does not answer is started. It is nobody's child: the agent may be killed, containers go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import plimsoll
from plimsoll.linux import capabilities
from plimsoll.runtime.host import images as bundled
from plimsoll.runtime.host import wire
from plimsoll.runtime.process_connection import LOST, Connection, Watcher
from plimsoll.runtime.process_session import End, PipeSession, TerminalSession
from plimsoll.runtime.runtime import (
    ContainerSeen,
    ContainerSpec,
    ExecResult,
    ExecSession,
    Image,
    ImageTrouble,
    Resources,
    RuntimeTrouble,
    SandboxSeen,
    SandboxSpec,
    Seen,
)

_CONNECT_PATIENCE_S = 10.0
_SLOWEST_RETRY_S = 2.0
_LOCKED = 3
_SANDBOX_FIELDS = (
    "pod_uid", "name", "namespace", "attempt", "hostname", "host_network", "host_pid", "host_ipc",
    "share_process_namespace", "log_directory", "cgroup_parent",
)  # fmt: skip


class ProcessRuntime:
    """`open_cgroup` opens the directories of a container's cgroup, one fd per hierarchy; they are closed here."""

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
        self._state = Path(os.path.abspath(state_dir))
        self._open_cgroup, self._images = open_cgroup, dict(images or {})
        self._hidden = tuple(hidden)
        self._log_limits = (log_max_bytes, log_max_files)
        self._open_own_cgroup = open_own_cgroup
        self.limitations: tuple[str, ...] = ()
        self.isolation = False
        self.supervisor_pid = 0
        self._sandboxes: dict[str, SandboxSeen] = {}
        self._containers: dict[str, ContainerSeen] = {}
        self._cgroups: dict[str, str] = {}  # container id → its cgroup
        self._snapshot: Seen | None = None
        self._watchers: list[Watcher] = []
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[wire.Message, list[int]]]] = {}
        self._ends: dict[int, asyncio.Future[tuple[int, bool]]] = {}
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    # -- the connection

    async def open(self) -> None:
        if self._keeper is not None:
            return
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._closing = False
        while True:
            try:
                await self._connect()
                break
            except RuntimeTrouble as trouble:
                if trouble.reason != LOST:  # one that was just ending had taken our call
                    raise
        self._keeper = asyncio.create_task(self._keep_connected(), name="embedded runtime")

    async def close(self) -> None:
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        self._drop()
        for watcher in self._watchers:
            watcher.end()

    async def shutdown(self) -> None:
        """Kill every container, end the supervisor, and let go."""
        self._closing = True
        try:
            await self._call("shutdown")
        except RuntimeTrouble:
            pass  # it went before it could answer: the same
        await self.close()

    async def _keep_connected(self) -> None:
        while True:
            connection = self._connection
            if connection is not None:
                await connection.lost.wait()
                self._drop()
            if self._closing:
                return
            pause_s = 0.05
            while True:
                try:
                    await self._connect()
                    break
                except RuntimeTrouble:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _SLOWEST_RETRY_S)

    async def _connect(self) -> None:
        """Reach the supervisor, starting it where there is none, and take over its table."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CONNECT_PATIENCE_S
        pause_s, started = 0.002, False
        while True:
            connected = self._reached()
            if connected is not None:
                break
            if not started:
                started = await asyncio.to_thread(self._start_supervisor)  # starts a program: too long for the loop
            if loop.time() > deadline:
                raise RuntimeTrouble("open", f"no supervisor answers; see {self._state / 'supervisor.log'}")
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.1)
        self._connection = Connection(connected, self._received, self._fail_waiting)
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE_S):
                hello, _ = await self._ask(self._connection, {"call": "hello", "follow": True}, ())
        except TimeoutError:
            self._drop()
            raise RuntimeTrouble("open", "the supervisor does not answer") from None
        except RuntimeTrouble:
            self._drop()
            raise
        if hello["protocol"] != wire.PROTOCOL:
            self._drop()
            raise RuntimeTrouble("open", "the supervisor is of another version of Plimsoll: end its pods and it first")
        self.isolation, self.limitations = hello["isolation"], tuple(hello["limitations"])
        self.supervisor_pid = hello["pid"]
        self._sandboxes, self._containers, self._cgroups = {}, {}, {}
        for record in hello["sandboxes"]:
            self._take_sandbox(record)
        for record in hello["containers"]:
            self._take_container(record)
        self._connected.set()
        self._tell("")

    def _reached(self) -> socket.socket | None:
        """By the directory's fd: an address has room for 107 bytes of path."""
        folder = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connecting.connect(f"/proc/self/fd/{folder}/socket")
        except (FileNotFoundError, ConnectionRefusedError):
            connecting.close()
            return None
        except OSError as problem:
            connecting.close()
            raise RuntimeTrouble("open", f"{self._state / 'socket'}: {problem.strerror}") from None
        finally:
            os.close(folder)
        connecting.setblocking(False)
        return connecting

    def _start_supervisor(self) -> bool:
        """False where another has the lock: it will answer, or was just killed and lets go of it in a moment."""
        package = str(Path(plimsoll.__file__).parent.parent)
        argv = [sys.executable, "-S", "-m", "plimsoll.runtime.host"]
        argv += ["--state", str(self._state), "--socket", str(self._state / "socket")]
        argv += [f"--log-max-bytes={self._log_limits[0]}", f"--log-max-files={self._log_limits[1]}"]
        argv += [f"--hide={path}" for path in self._hidden]
        own = tuple(self._open_own_cgroup()) if self._open_own_cgroup is not None else ()
        argv += [f"--cgroup-fd={fd}" for fd in own]
        environment = {"PYTHONPATH": package, "PATH": os.environ.get("PATH", os.defpath), "PYTHONMALLOC": "malloc"}
        environment["MALLOC_ARENA_MAX"] = "1"
        try:
            with open(self._state / "supervisor.log", "ab") as log:
                done = subprocess.run(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd="/",
                    pass_fds=own,
                    start_new_session=True,
                    check=False,
                )
        except OSError as problem:
            raise RuntimeTrouble("open", f"can't start the supervisor: {problem}") from None
        finally:
            for fd in own:
                os.close(fd)
        if done.returncode not in (0, _LOCKED):
            raise RuntimeTrouble("open", f"the supervisor ended at once; see {self._state / 'supervisor.log'}")
        return done.returncode == 0

    def _drop(self) -> None:
        """Forget the connection; whoever waits for it hears so."""
        self._connected.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _fail_waiting(self) -> None:
        answers, self._answers = self._answers, {}
        ends, self._ends = self._ends, {}
        waiting: list[asyncio.Future[Any]] = [*answers.values(), *ends.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(RuntimeTrouble("embedded runtime", LOST))
                future.exception()  # nobody need be waiting

    def _received(self, message: wire.Message, fds: list[int]) -> None:
        if "id" in message:
            waiting = self._answers.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result((message, fds))
                return
        elif "container" in message:
            self._take_container(message["container"])
            self._tell(message["container"]["pod_uid"])
        elif "sandbox" in message:
            self._take_sandbox(message["sandbox"])
            self._tell(message["sandbox"]["pod_uid"])
        elif "removed" in message:
            self._snapshot = None
            for table in (self._sandboxes, self._containers, self._cgroups):
                table.pop(message["removed"], None)
            self._tell(message["pod_uid"])
        elif "ended" in message:
            ending = self._ends.pop(message["ended"], None)
            if ending is not None and not ending.done():
                ending.set_result((message["code"], message["timed_out"]))
        for fd in fds:
            os.close(fd)

    def _take_sandbox(self, record: dict[str, Any]) -> None:
        self._snapshot = None
        self._sandboxes[record["id"]] = msgspec.convert(record, SandboxSeen)

    def _take_container(self, record: dict[str, Any]) -> None:
        self._snapshot = None
        self._cgroups[record["id"]] = record.pop("cgroup", "")
        self._containers[record["id"]] = msgspec.convert(record, ContainerSeen)

    async def _ask(
        self, connection: Connection, message: wire.Message, fds: Sequence[int]
    ) -> tuple[wire.Message, list[int]]:
        number = next(self._numbers)
        waiting: asyncio.Future[tuple[wire.Message, list[int]]] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        try:
            connection.send({**message, "id": number}, fds)
            answer, with_it = await waiting
        finally:
            self._answers.pop(number, None)
        if "error" in answer:
            for fd in with_it:
                os.close(fd)
            raise RuntimeTrouble(message["call"], answer["error"])
        return answer["result"], with_it

    async def _call(self, call: str, fds: Sequence[int] = (), /, **arguments: object) -> wire.Message:
        answer, with_it = await self._call_for_fds(call, fds, **arguments)
        for fd in with_it:
            os.close(fd)
        return answer

    async def _call_for_fds(
        self, call: str, fds: Sequence[int] = (), /, **arguments: object
    ) -> tuple[wire.Message, list[int]]:
        return await self._ask(await self._reachable(call), {"call": call, **arguments}, fds)

    async def _reachable(self, call: str) -> Connection:
        if self._keeper is None:
            raise RuntimeTrouble(call, "the runtime is not open")
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE_S):
                await self._connected.wait()
        except TimeoutError:
            raise RuntimeTrouble(call, "the supervisor does not answer") from None
        if self._connection is None:
            raise RuntimeTrouble(call, LOST)
        return self._connection

    # -- what there is

    async def seen(self) -> Seen:
        await self._reachable("seen")
        if self._snapshot is None:
            self._snapshot = Seen(tuple(self._sandboxes.values()), tuple(self._containers.values()))
        return self._snapshot

    async def changes(self) -> AsyncIterator[str]:
        watcher = Watcher()
        self._watchers.append(watcher)
        try:
            while (uids := await watcher.next()) is not None:
                for uid in uids:
                    yield uid
        finally:
            self._watchers.remove(watcher)

    def _tell(self, pod_uid: str) -> None:
        for watcher in self._watchers:
            watcher.add(pod_uid)

    async def image(self, name: str, *, has_command: bool, pull: bool) -> Image:
        try:
            found = bundled.resolved(name, self._images, has_command=has_command)
        except bundled.NoImage as problem:
            raise ImageTrouble(name, str(problem), "ErrImagePull" if pull else "ErrImageNeverPull") from None
        return Image(found.ref, 0, found.note, None, found.runs)

    # -- sandboxes

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        made = sandbox_id(spec)
        document = {name: getattr(spec, name) for name in _SANDBOX_FIELDS}
        await self._call("make_sandbox", sandbox={"id": made, **document})
        return made

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._call("stop_sandbox", sandbox=sandbox_id)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self._call("remove_sandbox", sandbox=sandbox_id)

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        _, fds = await self._call_for_fds("socket", sandbox=sandbox_id)
        if not fds:
            return None
        made = socket.socket(fileno=fds[0])
        made.setblocking(False)
        return made

    # -- containers

    def container_id(self, sandbox: SandboxSpec, name: str, attempt: int) -> str:
        return _digest("container", sandbox.pod_uid, str(sandbox.attempt), name, str(attempt))

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        made = self.container_id(sandbox, spec.name, spec.attempt)
        record = {
            "id": made,
            "sandbox_id": sandbox_id,
            "pod_uid": sandbox.pod_uid,
            "name": spec.name,
            "attempt": spec.attempt,
            "image": spec.image,
            "image_id": spec.image_ref,
            "log_file": os.path.join(sandbox.log_directory, spec.log_path) if spec.log_path else "",
            "cgroup": spec.cgroup,
            "annotations": dict(spec.annotations),
        }
        await self._call("make_container", container=record, plan=plan_document(spec))
        return made

    async def start_container(self, container_id: str) -> None:
        with self._cgroup_fds(container_id, "start_container") as fds:
            await self._call("start_container", fds, container=container_id)

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        await self._call("stop_container", container=container_id, grace_s=grace_s)

    async def remove_container(self, container_id: str) -> None:
        await self._call("remove_container", container=container_id)

    async def update_container(self, container_id: str, resources: Resources) -> None:
        """Nothing to do: the agent writes the cgroups itself."""

    async def reopen_log(self, container_id: str) -> None:
        await self._call("reopen_log", container=container_id)

    def log_file(self, container: ContainerSeen) -> Path:
        return Path(container.log_file)

    @contextlib.contextmanager
    def _cgroup_fds(self, container_id: str, call: str) -> Iterator[tuple[int, ...]]:
        path = self._cgroups.get(container_id, "")
        try:
            fds = tuple(self._open_cgroup(path)) if path else ()
        except OSError as problem:
            raise RuntimeTrouble(call, f"cgroup {path}: {problem}") from None
        try:
            yield fds
        finally:
            for fd in fds:
                os.close(fd)

    # -- processes beside a container

    async def run_in(
        self, container_id: str, command: tuple[str, ...], timeout_s: float, *, max_output_bytes: int = 16384
    ) -> ExecResult:
        number = next(self._numbers)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        output = End(reading)
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

    async def attach(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
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
        except RuntimeTrouble:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        session = PipeSession(ours[0], ours[1], ours[2], ending, kill)
        if not stdin:
            await session.close_stdin()
        return session

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
        except RuntimeTrouble:
            self._ends.pop(number, None)
            raise
        return fds

    async def _kill_run(self, number: int) -> None:
        """Where it still runs; no error where it does not, or where the supervisor is gone and with it the run."""
        if self._ends.pop(number, None) is not None and self._connection is not None:
            with contextlib.suppress(RuntimeTrouble):
                await self._call("kill_run", run=number)


def sandbox_id(spec: SandboxSpec) -> str:
    return _digest("sandbox", spec.pod_uid, str(spec.attempt))


def plan_document(spec: ContainerSpec) -> dict[str, object]:
    """The container as the supervisor's `plan.Plan` has it; RuntimeTrouble for what can't be honoured."""
    program = bundled.program(spec.image_ref)
    argv = program.argv(spec.command, spec.args)
    if not argv:
        raise RuntimeTrouble("make_container", f"container {spec.name}: neither it nor its image has a command")
    security = spec.security
    try:
        granted = capabilities.granted(
            security.add_capabilities, security.drop_capabilities, privileged=security.privileged
        )
    except capabilities.UnknownCapability as problem:
        raise RuntimeTrouble("make_container", f"container {spec.name}: {problem}") from None
    return {
        "argv": argv,
        "environment": dict(spec.environment),
        "working_dir": spec.working_dir,
        "root": program.root,
        "expose": program.expose,
        "binds": [(mount.host_path, mount.container_path, mount.read_only) for mount in spec.mounts],
        "identity": (
            security.user or 0,
            security.group or 0,
            security.groups,
            capabilities.mask(granted),
            security.no_new_privileges and not security.privileged,
        ),
        "privileged": security.privileged,
        "read_only_root": security.read_only_root,
        "stdin": spec.stdin,
        "stdin_once": spec.stdin_once,
        "tty": spec.tty,
        "oom_score_adj": spec.resources.oom_score_adj,
        "stop_signal": spec.stop_signal,
    }


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
