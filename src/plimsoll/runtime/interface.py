"""The container runtime as the agent uses it: the embedded runtime (`runtime.embedded`) and CRI (`runtime.cri`).

A runtime has no policy. It gets exactly what to run and where (`SandboxSpec`, `ContainerSpec`), reports what exists
(`RuntimeSnapshot`), and wakes the agent when that may have changed (`changes`). The agent decides about names,
restarts, back-off, reasons and cgroups. Every call may be repeated: creating what exists, stopping what has stopped and
removing what is gone are no errors, because a restarted agent repeats its last call.

A sandbox is what the containers of a pod share: network, ipc and uts namespaces. A stop has a grace period in seconds;
0 kills at once.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.rules.lifecycle.host_files import Dns as Dns  # noqa: PLC0414
from plimsoll.rules.lifecycle.registry_auth import RegistryAuth as RegistryAuth  # noqa: PLC0414

# Part of this contract: the rules and the runtimes share these types.
from plimsoll.rules.model.observed import ContainerPhase as ContainerPhase  # noqa: PLC0414
from plimsoll.rules.model.observed import ContainerUser as ContainerUser  # noqa: PLC0414
from plimsoll.rules.model.observed import CriResources as CriResources  # noqa: PLC0414
from plimsoll.rules.model.observed import ObservedContainer as ObservedContainer  # noqa: PLC0414
from plimsoll.rules.model.observed import ObservedSandbox as ObservedSandbox  # noqa: PLC0414
from plimsoll.rules.model.runnable import SeLinuxOptions as SeLinuxOptions  # noqa: PLC0414


class RuntimeCallError(StructuredError):
    """A call that the runtime refused or could not finish: the call, and the reason. It may be retried."""

    call: str
    reason: str
    template = "{call}: {reason}"

    @property
    def description(self) -> str:
        """The reason alone, without the code that a remote runtime answers: for events and statuses of containers."""
        return self.reason


class ImageError(StructuredError):
    """The image cannot be used: `reason` as the kubelet names it, `message` with the next step."""

    image: str
    message: str
    reason: str = "ErrImagePull"


Propagation = Literal["None", "HostToContainer", "Bidirectional"]


class ContainerMount(msgspec.Struct, frozen=True):
    """`host_path`, or the files of `image`, mounted at `container_path`. No path is taken from a manifest unchecked."""

    host_path: str
    container_path: str
    read_only: bool = False
    propagation: Propagation = "None"
    recursive_read_only: bool = False  # also what is mounted below it
    image: str = ""  # what `image` resolved the reference to
    image_sub_path: str = ""


class ContainerDevice(msgspec.Struct, frozen=True):
    """A device file of the host. `permissions`: `r`, `w` and `m`, as a CRI runtime takes them."""

    host_path: str
    container_path: str
    permissions: str = "rw"


class Security(msgspec.Struct, frozen=True):
    user: int | None = None  # None: the image's, or root
    group: int | None = None
    groups: tuple[int, ...] = ()
    groups_policy: str = "Merge"  # or Strict: without the groups that the image has for the user
    add_capabilities: tuple[str, ...] = ()  # as manifests spell them: NET_ADMIN, ALL
    drop_capabilities: tuple[str, ...] = ()
    privileged: bool = False
    no_new_privileges: bool = False
    read_only_root: bool = False
    unmasked_proc: bool = False
    seccomp: str = "RuntimeDefault"  # or Unconfined, or localhost/<absolute path of a profile>
    app_armor: str = ""  # RuntimeDefault, Unconfined, localhost/<name of a loaded profile>; "": the runtime's default
    se_linux: SeLinuxOptions | None = None


class UserRange(msgspec.Struct, frozen=True):
    """A user namespace: users and groups 0 … length − 1 of the pod are those from `first` on of the host."""

    first: int
    length: int


class PortMapping(msgspec.Struct, frozen=True):
    """A port of the machine that the pod's network forwards to the pod."""

    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


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
    security: Security = Security()  # of the sandbox itself: the pod's own settings
    sysctls: Mapping[str, str] = {}  # of the pod's namespaces, names with dots
    users: UserRange | None = None  # its user namespace; None: the host's
    dns: Dns = Dns()  # empty: as the machine's
    ports: tuple[PortMapping, ...] = ()
    runtime_handler: str = ""  # of the pod's RuntimeClass; "" is the runtime's default


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
    devices: tuple[ContainerDevice, ...] = ()
    cdi_devices: tuple[str, ...] = ()  # names of the Container Device Interface
    security: Security = Security()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    log_path: str = ""  # below the sandbox's log directory
    termination_message_path: str = ""
    stop_signal: str = ""
    resources: CriResources = CriResources()
    cgroup: str = ""  # path of the container's own cgroup if the agent creates it (embedded runtime)
    target_id: str = ""  # a container whose processes it sees, instead of its own
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class RuntimeFeatures(msgspec.Struct, frozen=True):
    """What differs between runtimes, and between their versions."""

    strict_groups: bool = True  # supplementalGroupsPolicy: Strict
    handlers: tuple[str, ...] = ()  # of RuntimeClasses; "" is the default
    user_namespaces: frozenset[str] = frozenset()  # the handlers that support them
    recursive_read_only: frozenset[str] = frozenset()
    image_volumes: bool = False
    profiles: bool = True  # AppArmor profiles and SELinux labels


class RuntimeSnapshot(msgspec.Struct, frozen=True):
    sandboxes: tuple[ObservedSandbox, ...] = ()
    containers: tuple[ObservedContainer, ...] = ()


class Image(msgspec.Struct, frozen=True):
    """A present image. `runs`: what runs if the manifest has no command, for people."""

    ref: str
    size_bytes: int = 0
    note: str = ""  # to be reported once: the embedded runtime ignores images of containers with a command
    user: int | None = None
    runs: str = ""


class ExecResult(msgspec.Struct, frozen=True):
    exit_code: int
    output: bytes = b""  # stdout and stderr, together, cut at `max_output_bytes`
    timed_out: bool = False


class ExecSession(Protocol):
    """A process in a container, of exec or attached to, with live streams. `stdout` and `stderr` end with b""."""

    async def write(self, data: bytes) -> None: ...
    async def close_stdin(self) -> None: ...
    async def resize(self, columns: int, rows: int) -> None: ...
    def stdout(self) -> AsyncIterator[bytes]: ...
    def stderr(self) -> AsyncIterator[bytes]: ...
    async def wait(self) -> int:
        """The exit code; call it after the streams have ended, or to leave early."""

    async def close(self) -> None:
        """Kill the process of an exec and free everything. May be called at any time, more than once."""


class ImageService(Protocol):
    """Images of containers."""

    async def image(self, name: str, *, has_command: bool, pull: bool, auth: RegistryAuth | None = None) -> Image:
        """The image, pulled first if `pull`, with `auth` at its registry. Raises ImageError if it is not present."""


class ExecService(Protocol):
    """Processes and connections inside what runs."""

    async def run_in(
        self, container_id: str, command: tuple[str, ...], timeout_s: float, *, max_output_bytes: int = 16384
    ) -> ExecResult:
        """A probe or hook: run, wait, kill at the timeout. Joins all cgroups and namespaces of the container."""

    async def exec(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
        """`kubectl exec`: the same with live streams."""

    async def attach(self, container_id: str, *, stdin: bool, tty: bool) -> ExecSession:
        """The streams of the container's own process, from now on. Closing the session leaves it running, and its exit
        code is 0 whatever the container's is. `tty`: whether the container has a terminal."""

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        """A new TCP socket inside the pod's network, not connected; None if the pod uses the host's network or can be
        reached from it at the sandbox's ip."""

    async def loopback_socket(self, sandbox_id: str, family: socket.AddressFamily) -> socket.socket:
        """A new TCP socket in the pod's network, the host's included, for connections to its loopback address."""


class ContainerRuntime(Protocol):
    """Sandboxes and containers. `name` and `version` make the Node's containerRuntimeVersion."""

    name: str
    version: str
    makes_cgroups: bool  # True: the runtime creates and writes container cgroups (CRI); False: the agent does

    @property
    def features(self) -> RuntimeFeatures:
        """Known when it is open."""

    async def open(self) -> None:
        """Connect (and start the supervisor if there is none). Raises RuntimeCallError if that fails."""

    async def close(self) -> None:
        """Disconnect; containers keep running."""

    async def seen(self) -> RuntimeSnapshot:
        """Everything that exists, including ended containers that were not removed."""

    def changes(self) -> AsyncIterator[str]:
        """Uids of pods that may have changed; "" means all. Ends when the runtime is closed; survives its restarts."""

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        """Its id; that of the existing one if uid and attempt are the same."""

    async def stop_sandbox(self, sandbox_id: str) -> None: ...
    async def remove_sandbox(self, sandbox_id: str) -> None: ...

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        """New resources of the pod as a whole, for runtimes that use them; only with `makes_cgroups`."""

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        """Its id; the container does not run yet. If the agent creates cgroups, `spec.cgroup` exists already."""

    def container_id(self, sandbox: SandboxSpec, name: str, attempt: int) -> str:
        """The id it will have, so that its cgroup can be created before; "" if the runtime chooses it (CRI)."""

    async def start_container(self, container_id: str) -> None: ...
    async def stop_container(self, container_id: str, grace_s: float) -> None:
        """TERM, then KILL after `grace_s`; returns when it has ended."""

    async def remove_container(self, container_id: str) -> None:
        """Remove its record and exit code; its log stays. Kills it if it still runs."""

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        """New resources for a running container; only with `makes_cgroups`."""

    async def reopen_log(self, container_id: str) -> None:
        """After its log was renamed."""

    def log_file(self, container: ObservedContainer) -> Path:
        """Its current log."""


class Runtime(ContainerRuntime, ImageService, ExecService, Protocol):
    """Everything that an agent needs of a runtime. The parts of the agent take the service that they use."""
