"""What every container runtime can do for the agent: the embedded runtime (`runtime.embedded`) and CRI (`runtime.cri`).

A runtime has no policy. It is told exactly what to run and where (`SandboxSpec`, `ContainerSpec`), says what there is
(`RuntimeSnapshot`), and wakes the agent when that may have changed (`changes`). Names, restarts, back-off, reasons and
cgroups are the agent's. Every call may be repeated: making what is there, stopping what has stopped and removing what
is gone are no errors, because an agent that was killed in the middle asks again.

A sandbox is what the containers of a pod share: network, ipc and uts namespaces. Stopping is told in seconds of grace;
0 kills at once.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.rules.resources.cri import CriResources as CriResources  # noqa: PLC0414  # a part of this contract

ContainerPhase = Literal["created", "running", "exited", "unknown"]


class RuntimeCallError(PlimsollError):
    """A call that the runtime refused or could not finish: what was asked, and why not. Worth another try later."""

    def __init__(self, call: str, reason: str) -> None:
        super().__init__(call, reason)
        self.call, self.reason = call, reason

    def __str__(self) -> str:
        return f"{self.call}: {self.reason}"


class ImageError(PlimsollError):
    """No image by that name can be run: `reason` as the kubelet names it, `message` with the next step."""

    def __init__(self, image: str, message: str, reason: str = "ErrImagePull") -> None:
        super().__init__(image, message, reason)
        self.image, self.message, self.reason = image, message, reason

    def __str__(self) -> str:
        return self.message


class ContainerMount(msgspec.Struct, frozen=True):
    """`host_path` seen as `container_path`. Neither is ever taken from a manifest unchecked."""

    host_path: str
    container_path: str
    read_only: bool = False


class Security(msgspec.Struct, frozen=True):
    user: int | None = None  # None: the image's, or root
    group: int | None = None
    groups: tuple[int, ...] = ()
    add_capabilities: tuple[str, ...] = ()  # as manifests spell them: NET_ADMIN, ALL
    drop_capabilities: tuple[str, ...] = ()
    privileged: bool = False
    no_new_privileges: bool = True
    read_only_root: bool = False


class SandboxSpec(msgspec.Struct, frozen=True):
    pod_uid: str
    name: str
    namespace: str
    attempt: int = 0
    hostname: str = ""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_process_namespace: bool = False
    log_directory: str = ""  # of the pod; container logs are `<container>/<attempt>.log` below it
    cgroup_parent: str = ""  # path of the pod's cgroup, as `rules.model.cgroup_names` spells it
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    privileged: bool = False  # some container of the pod will be


class ContainerSpec(msgspec.Struct, frozen=True):
    name: str
    attempt: int
    image: str  # as the manifest names it
    image_ref: str  # what `image` resolved it to
    command: tuple[str, ...] = ()  # empty: the image's own
    args: tuple[str, ...] = ()
    working_dir: str = ""
    environment: Mapping[str, str] = {}
    mounts: tuple[ContainerMount, ...] = ()
    security: Security = Security()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    log_path: str = ""  # below the sandbox's log directory
    termination_message_path: str = ""
    stop_signal: str = ""
    resources: CriResources = CriResources()
    cgroup: str = ""  # path of the container's own cgroup where the agent makes it (embedded runtime)
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class SandboxStateSeen(msgspec.Struct, frozen=True):
    id: str
    pod_uid: str
    name: str
    namespace: str
    attempt: int = 0
    ready: bool = True
    created_s: float = 0.0  # wall clock, seconds since the epoch
    ip: str = ""
    cgroup_parent: str = ""


class ContainerStateSeen(msgspec.Struct, frozen=True):
    id: str
    sandbox_id: str
    pod_uid: str
    name: str
    attempt: int
    phase: ContainerPhase
    image: str = ""
    image_id: str = ""
    created_s: float = 0.0
    started_s: float = 0.0
    finished_s: float = 0.0
    exit_code: int = 0  # 128 + signal where it was killed
    reason: str = ""  # only what the runtime itself knows: OOMKilled, ContainerCannotRun …
    message: str = ""
    pid: int = 0  # in the host's pid namespace, while it runs
    log_file: str = ""
    annotations: Mapping[str, str] = {}
    told: CriResources | None = None  # its numbers when it was first seen in this phase, where the runtime says


class RuntimeSnapshot(msgspec.Struct, frozen=True):
    sandboxes: tuple[SandboxStateSeen, ...] = ()
    containers: tuple[ContainerStateSeen, ...] = ()


class Image(msgspec.Struct, frozen=True):
    """An image that is there. `runs` is what will run where the manifest gives no command, for people."""

    ref: str
    size_bytes: int = 0
    note: str = ""  # what the user should know once: the embedded runtime ignores images of containers with a command
    user: int | None = None
    runs: str = ""


class ExecResult(msgspec.Struct, frozen=True):
    exit_code: int
    output: bytes = b""  # stdout and stderr, together, cut at `max_output_bytes`
    timed_out: bool = False


class ExecSession(Protocol):
    """A process started beside a container, with live streams. `stdout` and `stderr` end with b""."""

    async def write(self, data: bytes) -> None: ...
    async def close_stdin(self) -> None: ...
    async def resize(self, columns: int, rows: int) -> None: ...
    def stdout(self) -> AsyncIterator[bytes]: ...
    def stderr(self) -> AsyncIterator[bytes]: ...
    async def wait(self) -> int:
        """The exit code; to be asked after the streams have ended, or to leave early."""

    async def close(self) -> None:
        """The client is gone: kill it, free everything. May be called at any time, more than once."""


class ContainerRuntime(Protocol):
    """`name` and `version` make the Node's containerRuntimeVersion."""

    name: str
    version: str
    makes_cgroups: bool  # True: the runtime makes and writes container cgroups (CRI); False: the agent does

    async def open(self) -> None:
        """Reach the runtime (start the supervisor where there is none). RuntimeTrouble where that fails."""

    async def close(self) -> None:
        """Let go of it; containers go on."""

    async def seen(self) -> RuntimeSnapshot:
        """Everything there is, also what has ended and was not removed."""

    def changes(self) -> AsyncIterator[str]:
        """Pod uids to look at again; "" means all of them. Ends when the runtime is closed; survives its restarts."""

    async def image(self, name: str, *, has_command: bool, pull: bool) -> Image:
        """The image if it is there, after pulling it where `pull`; ImageTrouble otherwise."""

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        """Its id; the one that is there where uid and attempt are the same."""

    async def stop_sandbox(self, sandbox_id: str) -> None: ...
    async def remove_sandbox(self, sandbox_id: str) -> None: ...

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        """What the pod as a whole is given, for runtimes to whom that means something; only where `makes_cgroups`."""

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        """Its id, the container not running yet. Where the agent makes cgroups, `spec.cgroup` is there already."""

    def container_id(self, sandbox: SandboxSpec, name: str, attempt: int) -> str:
        """The id it will have, so that its cgroup can be made before; "" where the runtime chooses (CRI)."""

    async def start_container(self, container_id: str) -> None: ...
    async def stop_container(self, container_id: str, grace_s: float) -> None:
        """TERM, then KILL after `grace_s`; returns when it has ended."""

    async def remove_container(self, container_id: str) -> None:
        """Forget it and its exit code; its log stays. Kills it where it still runs."""

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        """New numbers for a running container; only where `makes_cgroups`."""

    async def run_in(
        self, container_id: str, command: tuple[str, ...], timeout_s: float, *, max_output_bytes: int = 16384
    ) -> ExecResult:
        """A probe or hook: run, wait, kill at the timeout. Joins all cgroups and namespaces of the container."""

    async def attach(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
        """`kubectl exec`: the same with live streams."""

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        """A new TCP socket inside the pod's network, not connected; None where the pod's network is the host's or can
        be reached from it at the sandbox's ip."""

    async def reopen_log(self, container_id: str) -> None:
        """After its log was moved away."""

    def log_file(self, container: ContainerStateSeen) -> Path:
        """Where its current log is."""
