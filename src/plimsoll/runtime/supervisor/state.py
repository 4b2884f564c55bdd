"""Sandboxes and containers as the supervisor keeps them, and their form for the agent and for the journal.

A change is made here first, then written to the journal, then sent to the agents that follow. An exit is sent only when
the journal is on disk: once per iteration of the loop, for all that ended in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from plimsoll.runtime.supervisor import spawn, wire
from plimsoll.runtime.supervisor.attach import OutputReaders
from plimsoll.runtime.supervisor.journal import SupervisorJournal
from plimsoll.runtime.supervisor.log_writer import LogFile, LogPace, LogStream
from plimsoll.runtime.supervisor.loop import EventLoop, Timer
from plimsoll.runtime.supervisor.spawn import ChildProcess, Failure
from plimsoll.runtime.supervisor.user_namespaces import Users

JournalRecord = dict[str, Any]

UNKNOWN_REASON = "ContainerStatusUnknown"
UNKNOWN_MESSAGE = "The container could not be located when the supervisor was started again"
KILLED_CODE = 137

_SANDBOX_SEEN = ("id", "pod_uid", "name", "namespace", "attempt", "ready", "created_s", "cgroup_parent")
_CONTAINER_SEEN = (
    "id", "sandbox_id", "pod_uid", "name", "attempt", "phase", "image", "image_id", "created_s", "started_s",
    "finished_s", "exit_code", "reason", "message", "pid", "log_file", "annotations",
    "stop_signal",
)  # fmt: skip


class Sandbox:
    __slots__ = (
        *_SANDBOX_SEEN,
        "host_ipc",
        "host_network",
        "host_pid",
        "hostname",
        "init",
        "log_directory",
        "namespaces",
        "pids",
        "share_pids",
        "shm",
        "sysctls",
        "user_namespace",
        "users",
    )

    def __init__(self, record: JournalRecord) -> None:
        self.id: str = record["id"]
        self.pod_uid: str = record["pod_uid"]
        self.name: str = record["name"]
        self.namespace: str = record["namespace"]
        self.attempt: int = record.get("attempt", 0)
        self.ready: bool = record.get("ready", False)
        self.created_s: float = record.get("created_s", 0.0)
        self.cgroup_parent: str = record.get("cgroup_parent", "")
        self.hostname: str = record.get("hostname", "")
        self.log_directory: str = record.get("log_directory", "")
        self.host_network: bool = record.get("host_network", False)
        self.host_pid: bool = record.get("host_pid", False)
        self.host_ipc: bool = record.get("host_ipc", False)
        self.share_pids: bool = record.get("share_process_namespace", False)
        self.sysctls: dict[str, str] = record.get("sysctls", {})
        self.users: Users | None = Users(*record["users"]) if record.get("users") else None
        self.user_namespace = -1  # that of the users
        self.namespaces: dict[int, int] = {}  # kind → fd
        self.shm = -1  # a mount namespace that has the pod's /dev/shm
        self.pids = -1  # the pod's pid namespace, where it is shared
        self.init: ChildProcess | None = None  # its PID 1

    def seen(self) -> JournalRecord:
        return {name: getattr(self, name) for name in _SANDBOX_SEEN}

    def record(self) -> JournalRecord:
        """For the journal."""
        return self.seen()

    def close(self) -> None:
        """The namespaces end with the last process in them."""
        for fd in (*self.namespaces.values(), self.shm, self.pids, self.user_namespace):
            if fd >= 0:
                os.close(fd)
        self.namespaces, self.shm, self.pids, self.user_namespace = {}, -1, -1, -1


class ContainerRecord:
    __slots__ = (
        *_CONTAINER_SEEN,
        "cgroup",
        "cgroup_fd",
        "child",
        "failure",
        "log",
        "on_end",
        "on_start",
        "plan",
        "readers",
        "start_ticks",
        "stdin",
        "stop_timer",
        "log_pace",
        "streams",
        "target_id",
    )

    def __init__(self, record: JournalRecord) -> None:
        self.id: str = record["id"]
        self.sandbox_id: str = record["sandbox_id"]
        self.pod_uid: str = record["pod_uid"]
        self.name: str = record["name"]
        self.attempt: int = record["attempt"]
        self.phase: str = record.get("phase", "created")
        self.image: str = record.get("image", "")
        self.image_id: str = record.get("image_id", "")
        self.created_s: float = record.get("created_s", 0.0)
        self.started_s: float = record.get("started_s", 0.0)
        self.finished_s: float = record.get("finished_s", 0.0)
        self.exit_code: int = record.get("exit_code", 0)
        self.reason: str = record.get("reason", "")
        self.message: str = record.get("message", "")
        self.pid: int = record.get("pid", 0)
        self.log_file: str = record.get("log_file", "")
        self.annotations: dict[str, str] = record.get("annotations", {})
        self.stop_signal: str = record.get("stop_signal", "")
        self.start_ticks: int = record.get("start_ticks", 0)
        self.cgroup: str = record.get("cgroup", "")
        self.target_id: str = record.get("target_id", "")  # whose pid namespace it is in; not needed once it runs
        self.plan = b""  # JSON as received: parsed at the start and for each exec, small in between
        self.child: ChildProcess | None = None
        self.failure: Failure | None = None
        self.streams: list[LogStream] = []
        self.readers: dict[str, OutputReaders] = {}  # attached clients, by stream
        self.log_pace: LogPace | None = None  # while it runs
        self.log: LogFile | None = None
        self.stdin = -1
        self.cgroup_fd = -1  # only where there is no pid namespace whose end kills what is left
        self.stop_timer: Timer | None = None
        self.on_start: list[Callable[[str], None]] = []
        self.on_end: list[Callable[[], None]] = []

    @property
    def alive(self) -> bool:
        return self.child is not None

    def seen(self) -> JournalRecord:
        record = {name: getattr(self, name) for name in _CONTAINER_SEEN}
        return record | {"cgroup": self.cgroup}

    def record(self) -> JournalRecord:
        """For the journal: nothing of the environment or the command, which may hold secrets."""
        return self.seen() | {"start_ticks": self.start_ticks}


class Register:
    def __init__(self, loop: EventLoop, journal: SupervisorJournal, emit: Callable[[wire.Message], None]) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, ContainerRecord] = {}
        self._loop, self._journal, self._emit = loop, journal, emit
        self._after_sync: list[Callable[[], None]] = []
        self._boot = boot_id()
        self._behind = False  # the journal is incomplete: the disk was full

    def recover(self) -> None:
        """Take over from an earlier supervisor: its containers ended with it, or are killed now."""
        for record in self._journal.read().values():
            if record.get("kind") == "sandbox":
                self.sandboxes[record["id"]] = Sandbox(record | {"ready": False})
            elif record.get("kind") == "container":
                container = ContainerRecord(record)
                if record.get("boot") == self._boot:
                    kill_left_behind(container.pid, container.start_ticks)
                if container.phase == "created":  # no start was reported: the agent creates it again
                    continue
                if container.phase == "running":
                    container.phase, container.exit_code, container.pid = "exited", KILLED_CODE, 0
                    container.reason, container.message = UNKNOWN_REASON, UNKNOWN_MESSAGE
                    container.finished_s = time.time()
                self.containers[container.id] = container
        self._journal.begin(self._everything())

    def of_sandbox(self, sandbox_id: str) -> list[ContainerRecord]:
        return [container for container in self.containers.values() if container.sandbox_id == sandbox_id]

    def changed(self, what: Sandbox | ContainerRecord, *, durable: bool = False) -> None:
        self._write(self._journal_record(what), durable=durable)
        kind = "sandbox" if isinstance(what, Sandbox) else "container"
        news = {kind: what.seen()}
        if durable:
            self.when_synced(lambda: self._emit(news))
        else:
            self._emit(news)

    def remember(self, what: ContainerRecord) -> None:
        """Journal the pid for the next supervisor; agents are not notified yet."""
        self._write(self._journal_record(what))

    def forget(self, what: Sandbox | ContainerRecord) -> None:
        if isinstance(what, Sandbox):
            self.sandboxes.pop(what.id, None)
        else:
            self.containers.pop(what.id, None)
        self._write({"id": what.id, "gone": True})
        self._emit({"removed": what.id, "pod_uid": what.pod_uid})

    def when_synced(self, action: Callable[[], None]) -> None:
        if not self._after_sync:
            self._loop.soon(self._sync)
        self._after_sync.append(action)

    def _write(self, record: JournalRecord, *, durable: bool = False) -> None:
        """A full disk must not end the containers: the whole journal is written again later."""
        try:
            if self._behind or self._journal.is_stale(len(self.sandboxes) + len(self.containers)):
                self._journal.begin(self._everything())
                self._behind = False
            else:
                self._journal.append(record, durable=durable)
        except OSError:
            self._behind = True

    def _sync(self) -> None:
        try:
            self._journal.sync()
        except OSError:
            self._behind = True
        waiting, self._after_sync = self._after_sync, []
        for action in waiting:
            action()

    def _everything(self) -> list[JournalRecord]:
        there: list[Sandbox | ContainerRecord] = [*self.sandboxes.values(), *self.containers.values()]
        return [self._journal_record(what) for what in there]

    def _journal_record(self, what: Sandbox | ContainerRecord) -> JournalRecord:
        kind = "sandbox" if isinstance(what, Sandbox) else "container"
        return what.record() | {"kind": kind, "boot": self._boot}


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def kill_left_behind(pid: int, ticks: int) -> None:
    """Kill a container that outlived its supervisor (it can undo PR_SET_PDEATHSIG): all of it ends with its PID 1."""
    if pid <= 0 or not ticks:
        return
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if spawn.start_ticks(pid) == ticks:  # the pidfd refers to this process even if the pid is reused
            spawn.kill_pidfd(pidfd)
    finally:
        os.close(pidfd)
