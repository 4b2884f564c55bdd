"""Sandboxes and containers as the supervisor keeps them, and how they look to the agent and to the journal."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from plimsoll.runtime.host.log_writer import LogFile, Stream
from plimsoll.runtime.host.loop import Timer
from plimsoll.runtime.host.spawn import Child, Failure

Record = dict[str, Any]

UNKNOWN_REASON = "ContainerStatusUnknown"
UNKNOWN_MESSAGE = "The container could not be located when the supervisor was started again"
KILLED_CODE = 137

_SANDBOX_SEEN = ("id", "pod_uid", "name", "namespace", "attempt", "ready", "created_s", "cgroup_parent")
_CONTAINER_SEEN = (
    "id", "sandbox_id", "pod_uid", "name", "attempt", "phase", "image", "image_id", "created_s", "started_s",
    "finished_s", "exit_code", "reason", "message", "pid", "log_file", "annotations",
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
    )

    def __init__(self, record: Record) -> None:
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
        self.namespaces: dict[int, int] = {}  # kind → fd
        self.shm = -1  # a mount namespace whose root is the pod's /dev/shm
        self.pids = -1  # the pod's pid namespace, where it is shared
        self.init: Child | None = None  # its PID 1

    def seen(self) -> Record:
        return {name: getattr(self, name) for name in _SANDBOX_SEEN}

    def record(self) -> Record:
        """For the journal."""
        return self.seen()

    def let_go(self) -> None:
        """The namespaces end with the last process in them."""
        for fd in (*self.namespaces.values(), self.shm, self.pids):
            if fd >= 0:
                os.close(fd)
        self.namespaces, self.shm, self.pids = {}, -1, -1


class Container:
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
        "start_ticks",
        "stdin",
        "stop_signal",
        "stop_timer",
        "streams",
    )

    def __init__(self, record: Record) -> None:
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
        self.start_ticks: int = record.get("start_ticks", 0)
        self.cgroup: str = record.get("cgroup", "")
        self.plan = b""  # JSON as it came: parsed at start and for each exec, kept small in between
        self.child: Child | None = None
        self.failure: Failure | None = None
        self.streams: list[Stream] = []
        self.log: LogFile | None = None
        self.stdin = -1
        self.cgroup_fd = -1  # only where there is no pid namespace whose end kills what is left
        self.stop_timer: Timer | None = None
        self.stop_signal = 15
        self.on_start: list[Callable[[str], None]] = []
        self.on_end: list[Callable[[], None]] = []

    @property
    def alive(self) -> bool:
        return self.child is not None

    def seen(self) -> Record:
        record = {name: getattr(self, name) for name in _CONTAINER_SEEN}
        return record | {"cgroup": self.cgroup}

    def record(self) -> Record:
        """For the journal: nothing of the environment or the command, which may hold secrets."""
        return self.seen() | {"start_ticks": self.start_ticks}
