"""Containers: created, started, stopped, reaped, removed; their output is written to their logs."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from plimsoll.linux import namespaces
from plimsoll.linux.masked_paths import masked_paths
from plimsoll.runtime.supervisor import child, host_mounts, host_view, rootfs, spawn
from plimsoll.runtime.supervisor.attach import MAX_READERS, OutputReaders
from plimsoll.runtime.supervisor.log_writer import LogFile, LogPace, LogStream, log_place
from plimsoll.runtime.supervisor.loop import EventLoop
from plimsoll.runtime.supervisor.plan import LaunchPlan, plan_from
from plimsoll.runtime.supervisor.sandboxes import Sandboxes
from plimsoll.runtime.supervisor.settings import Settings
from plimsoll.runtime.supervisor.spawn import Failure
from plimsoll.runtime.supervisor.state import ContainerRecord, JournalRecord, Register, Sandbox

_REAL_TIME_MOST = 15  # Kubernetes names SIGRTMIN+1 … SIGRTMIN+15 and SIGRTMAX-14 … SIGRTMAX-1
OOM_WANTED, OOM_HAVE = "plimsoll.io/oom-score-adj-wanted", "plimsoll.io/oom-score-adj-have"


class RequestError(Exception):
    """A call that can't be carried out; the message says why."""


class Containers:
    def __init__(self, loop: EventLoop, settings: Settings, register: Register, start: spawn.Spawner) -> None:
        self._loop, self._settings, self._register, self._spawn = loop, settings, register, start
        self._by_pid: dict[int, ContainerRecord] = {}
        self._supervisor = os.getpid()
        self._v1 = host_mounts.V1Hierarchies()
        self._flooding: set[LogStream] = set()  # not read for now
        self.sandboxes: Sandboxes  # set by the supervisor: the two refer to each other

    def get(self, container_id: str) -> ContainerRecord:
        container = self._register.containers.get(container_id)
        if container is None:
            raise RequestError(f"no container {container_id}")
        return container

    def running(self, container_id: str) -> ContainerRecord:
        container = self.get(container_id)
        if container.phase != "running" or container.child is None:
            raise RequestError(f"container {container_id} is not running")
        return container

    def make(self, record: JournalRecord, plan: JournalRecord) -> None:
        if record["id"] in self._register.containers:
            return
        sandbox = self._register.sandboxes.get(record["sandbox_id"])
        if sandbox is None or not sandbox.ready:
            raise RequestError(f"sandbox {record['sandbox_id']} is not there, or was stopped")
        container = ContainerRecord(record | {"created_s": time.time(), "phase": "created"})
        container.stop_signal = plan_from(plan).stop_signal or "SIGTERM"  # also checks that it is a plan
        signal_number(container.stop_signal)
        if container.log_file:
            log_place(*_log_place(container, sandbox))
        container.plan = json.dumps(plan, separators=(",", ":")).encode()
        self._register.containers[container.id] = container
        self._register.changed(container)

    def start(self, container_id: str, cgroups: Sequence[int], done: Callable[[str], None]) -> None:
        """`done` gets "" when the program runs, or the reason why it does not."""
        container = self.get(container_id)
        if container.phase == "running":
            done("")
            return
        if container.phase != "created":
            raise RequestError(f"container {container_id} has ended already")
        container.on_start.append(done)
        if container.alive:
            return
        sandbox = self._register.sandboxes.get(container.sandbox_id)
        if sandbox is None or not sandbox.ready:
            container.on_start.remove(done)
            raise RequestError("its sandbox was stopped")
        try:
            self._start(container, sandbox, tuple(cgroups))
        except OSError as problem:
            container.on_start.remove(done)
            self._clear(container)
            raise RequestError(f"can't start: {problem}") from None

    def stop(self, container_id: str, grace_s: float, done: Callable[[], None]) -> None:
        """TERM (or the image's signal), KILL after the grace period; `done` when it has ended. A shorter grace wins."""
        container = self._register.containers.get(container_id)
        if container is None or not container.alive:
            if container is not None and container.phase == "created":
                self._ended(container, 128, "ContainerCannotRun", "stopped before it was started")
                self._register.when_synced(done)
            else:
                done()
            return
        container.on_end.append(done)
        if grace_s <= 0:
            self.kill(container)
            return
        self._signal(container, signal_number(container.stop_signal))
        at_s = time.monotonic() + grace_s
        if container.stop_timer is not None:
            at_s = min(at_s, container.stop_timer.at_s)
            container.stop_timer.cancel()
        container.stop_timer = self._loop.after(at_s - time.monotonic(), lambda: self.kill(container))

    def kill(self, container: ContainerRecord) -> None:
        if container.child is not None:
            spawn.kill(container.child.pid)
            if container.cgroup_fd >= 0:
                spawn.kill_members(container.cgroup_fd)

    def remove(self, container_id: str, done: Callable[[], None]) -> None:
        def gone() -> None:
            container = self._register.containers.get(container_id)
            if container is not None:
                self._register.forget(container)
            done()

        container = self._register.containers.get(container_id)
        if container is not None and container.alive:
            self.stop(container_id, 0, gone)
        else:
            gone()

    def attach(
        self, container_id: str, outputs: Mapping[str, int], give: Callable[[int, bool], None], *, stdin: bool
    ) -> None:
        """Copy its output to these pipes from now on. `give` gets its terminal or, for input, where its stdin is
        written (−1 for neither), and whether that ends with this client (`stdinOnce`): then no other gets it."""
        container = self.running(container_id)
        if any(len(readers) >= MAX_READERS for readers in container.readers.values()):
            raise RequestError(f"{MAX_READERS} clients are attached to container {container_id} already")
        for name, fd in outputs.items():
            if name in container.readers:
                container.readers[name].add(os.dup(fd))
        child = container.child
        if child is not None and child.terminal >= 0:
            give(child.terminal, False)
            return
        is_once = plan_from(json.loads(container.plan)).stdin_once
        give(container.stdin if stdin else -1, is_once)
        if stdin and is_once and container.stdin >= 0:
            os.close(container.stdin)
            container.stdin = -1

    def first_user(self, container: ContainerRecord) -> int:
        """Of the host: who is root in it; 0 where its users are the host's."""
        sandbox = self._register.sandboxes.get(container.sandbox_id)
        return sandbox.users.first if sandbox is not None and sandbox.users is not None else 0

    def reopen_log(self, container_id: str) -> None:
        container = self.get(container_id)
        if container.log is not None:
            container.log.reopen()

    def alive(self) -> list[ContainerRecord]:
        return list(self._by_pid.values())

    def child_ended(self, pid: int, status: int) -> bool:
        container = self._by_pid.pop(pid, None)
        if container is None:
            return False
        child = container.child
        if child is not None:
            child.listen()  # its last note, if it was not read yet
        if container.cgroup_fd >= 0:
            spawn.kill_members(container.cgroup_fd)
        elif not self._has_own_pids(container):
            spawn.kill_session(pid)
        self._clear(container)
        if container.failure is not None:
            failure = container.failure
            self._ended(container, failure.code, failure.reason, failure.message)
        else:
            self._ended(container, spawn.exit_code(status), "", "")
        return True

    def _start(self, container: ContainerRecord, sandbox: Sandbox, cgroups: tuple[int, ...]) -> None:
        plan = plan_from(json.loads(container.plan))
        streams, target = self._open_streams(container, sandbox, plan), -1
        try:
            view = self._view(plan, cgroups) if self._settings.isolation else None
            target = self._target_pids(container, sandbox)
            pids = self._pids_for(sandbox) if target < 0 else target
            if pids != spawn.NEW_PIDS and cgroups:
                container.cgroup_fd = os.dup(cgroups[0])

            def ready(failure: Failure | None) -> None:
                self._is_ready(container, plan, failure)

            place = self.sandboxes.place(sandbox, cgroups, view)
            container.child = self._spawn(plan, place, streams, ready, pids)
        finally:
            for fd in {fd for fd in (*streams, target) if fd >= 0}:
                os.close(fd)
        container.pid = container.child.pid
        container.start_ticks = spawn.start_ticks(container.pid)
        self._by_pid[container.pid] = container
        self._register.remember(container)

    def _pids_for(self, sandbox: Sandbox) -> int:
        if not self._settings.isolation or sandbox.host_pid:
            return spawn.OUR_PIDS
        return sandbox.pids if sandbox.share_pids else spawn.NEW_PIDS

    def _target_pids(self, container: ContainerRecord, sandbox: Sandbox) -> int:
        """The pid namespace of the container whose processes this one sees; −1 where the sandbox decides."""
        if not container.target_id or self._pids_for(sandbox) != spawn.NEW_PIDS:
            return -1
        return namespaces.open_namespace(namespaces.PID, self.running(container.target_id).pid)

    def _has_own_pids(self, container: ContainerRecord) -> bool:
        sandbox = self._register.sandboxes.get(container.sandbox_id)
        return not container.target_id and sandbox is not None and self._pids_for(sandbox) == spawn.NEW_PIDS

    def _view(self, plan: LaunchPlan, cgroups: tuple[int, ...]) -> rootfs.RootView:
        is_unified = self._settings.unified
        return rootfs.RootView(
            self._settings.stage,
            plan.root,
            "" if plan.root else host_view.directory(self._settings.state),
            self._settings.secret,
            plan.expose,
            plan.binds,
            plan.working_dir,
            plan.read_only_root,
            plan.privileged,
            self._settings.overlay,
            outside=self._supervisor,
            cgroups=bool(cgroups) and is_unified,
            hierarchies=() if is_unified else self._v1.of(cgroups),
            masked=masked_paths(),
            unmasked=plan.unmasked,
        )

    def _open_streams(self, container: ContainerRecord, sandbox: Sandbox, plan: LaunchPlan) -> child.Streams:
        """Set up the log and our ends of the streams; the caller closes the child's ends, which are returned."""
        if container.log_file and sandbox.log_directory:
            limits = self._settings.log_max_bytes, self._settings.log_max_files
            container.log = LogFile(*_log_place(container, sandbox), *limits)
        if plan.tty:
            return child.Streams()
        theirs_in = -1
        if plan.stdin:
            theirs_in, container.stdin = os.pipe2(os.O_CLOEXEC)
        if container.log is None:
            return child.Streams(theirs_in)
        ends = []
        for name in ("stdout", "stderr"):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ours, False)
            self._follow(container, LogStream(ours, name, container.log))
            ends.append(theirs)
        return child.Streams(theirs_in, *ends)

    def _follow(self, container: ContainerRecord, stream: LogStream) -> None:
        pace = container.log_pace = container.log_pace or LogPace(time.monotonic())

        def readable() -> None:
            began_s = time.monotonic()
            if not stream.read():
                self._loop.watch(stream.fd, None)
                stream.close()
                readers.end()
                return
            now_s = time.monotonic()
            pause_s = pace.pause_s(now_s - began_s, now_s, len(self._flooding) + 1)
            if pause_s > 0:
                self._loop.watch(stream.fd, None)
                self._flooding.add(stream)
                self._loop.after(pause_s, resume)

        def resume() -> None:
            self._flooding.discard(stream)
            listen()

        def listen() -> None:
            """Read again, unless it is paused for another reason, or its container has ended."""
            if stream.fd >= 0 and stream not in self._flooding and not readers.are_full:
                self._loop.watch(stream.fd, readable)

        readers = OutputReaders(self._loop, lambda: self._loop.watch(stream.fd, None), listen)
        stream.copy, container.readers[stream.name] = readers.take, readers
        container.streams.append(stream)
        self._loop.watch(stream.fd, readable)

    def _is_ready(self, container: ContainerRecord, plan: LaunchPlan, failure: Failure | None) -> None:
        container.failure = failure
        child = container.child
        if child is None or failure is not None:
            return  # a failure is reported when the child is reaped, which is at once
        if child.terminal >= 0 and container.log is not None:
            os.set_blocking(child.terminal, False)
            self._follow(container, LogStream(os.dup(child.terminal), "stdout", container.log))
        container.phase, container.started_s = "running", time.time()
        if child.oom_score_adj is not None:
            container.annotations = {
                **container.annotations,
                OOM_WANTED: str(plan.oom_score_adj),
                OOM_HAVE: str(child.oom_score_adj),
            }
        self._register.changed(container)
        waiting, container.on_start = container.on_start, []
        for done in waiting:
            done("")

    def _ended(self, container: ContainerRecord, code: int, reason: str, message: str) -> None:
        container.phase, container.exit_code, container.finished_s, container.pid = "exited", code, time.time(), 0
        container.reason, container.message = reason, message
        self._register.changed(container, durable=True)
        started, container.on_start = container.on_start, []
        ended, container.on_end = container.on_end, []
        why = message or f"it ended at once with exit code {code}"
        for start_done in started:
            self._register.when_synced(lambda done=start_done: done(why))  # type: ignore[misc]
        for end_done in ended:
            self._register.when_synced(end_done)

    def _clear(self, container: ContainerRecord) -> None:
        """Release everything that only a running container needs."""
        if container.stop_timer is not None:
            container.stop_timer.cancel()
            container.stop_timer = None
        for stream in container.streams:
            if stream.fd >= 0:
                self._loop.watch(stream.fd, None)
                stream.drain()
        for readers in container.readers.values():
            readers.end()
        container.streams, container.readers, container.log_pace = [], {}, None
        if container.log is not None:
            container.log.close()
            container.log = None
        if container.child is not None:
            container.child.close_terminal()
            container.child = None
        for fd in (container.stdin, container.cgroup_fd):
            if fd >= 0:
                os.close(fd)
        container.stdin = container.cgroup_fd = -1
        container.plan = b""

    def _signal(self, container: ContainerRecord, number: int) -> None:
        if container.child is None:
            return
        try:
            os.kill(container.child.pid, number)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EPERM):
                raise


def _log_place(container: ContainerRecord, sandbox: Sandbox) -> tuple[str, str]:
    directory = sandbox.log_directory
    return directory, container.log_file.removeprefix(directory.rstrip("/") + "/")


def signal_number(name: str) -> int:
    """`SIGQUIT`, `QUIT`, `SIGRTMIN+3`, `SIGRTMAX-1`, `3`; TERM without one."""
    if not name:
        return signal.SIGTERM
    if name.isdigit():
        return int(signal.Signals(int(name)))
    short = name.upper().removeprefix("SIG")
    for base, sign, number in (("RTMIN+", 1, signal.SIGRTMIN), ("RTMAX-", -1, signal.SIGRTMAX)):
        away = short.removeprefix(base)
        if away != short and away.isdecimal() and int(away) <= _REAL_TIME_MOST:
            return int(number + sign * int(away))
    try:
        return int(signal.Signals[f"SIG{short}"])
    except KeyError:
        raise RequestError(f"unknown signal {name!r}") from None


def joined(container: ContainerRecord) -> tuple[tuple[int, int], ...]:
    """A running container's namespaces except its pids (`spawn` enters those). The caller closes the fds."""
    kinds = (namespaces.UTS, namespaces.IPC, namespaces.NET, namespaces.CGROUP, namespaces.MOUNT)
    fds: list[tuple[int, int]] = []
    try:
        for kind in kinds:
            fds.append((namespaces.open_namespace(kind, container.pid), kind))
    except OSError:
        for fd, _ in fds:
            os.close(fd)
        raise
    return tuple(fds)
