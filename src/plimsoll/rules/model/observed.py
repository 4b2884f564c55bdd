"""A pod as the agent observes it (`ObservedPod`), what the agent keeps about it (`SyncState`), and `PodActions`.

These values pass between the agent, which observes and acts, and the rules, which decide. Everything is
level-triggered: the agent takes what the runtime reports now, keeps `SyncState` from sync to sync (parts of it survive
a restart in its checkpoint), and passes both to `rules.lifecycle.pod_actions`. Times are seconds since the epoch of one
wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from plimsoll.rules.model.objects import Resources
from plimsoll.rules.model.pod_status import RunStatus

ContainerKind = Literal["initContainers", "containers", "ephemeralContainers"]  # the list of the spec
ContainerPhase = Literal["created", "running", "exited", "unknown"]
KillReason = Literal["", "liveness", "startup", "resize", "definition", "unknown", "pod", "post-start"]


class CriResources(msgspec.Struct, frozen=True):
    """CRI's LinuxContainerResources, for runtimes that write container cgroups; made by `rules.resources.cri`."""

    cpu_shares: int = 0
    cpu_quota_us: int = 0
    cpu_period_us: int = 0
    memory_limit_bytes: int = 0
    memory_swap_limit_bytes: int = 0
    oom_score_adj: int = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    hugepage_limits: Mapping[str, int] = {}  # `2MB` → bytes
    unified: Mapping[str, str] = {}  # cgroup v2 file → text


class ObservedSandbox(msgspec.Struct, frozen=True):
    id: str
    attempt: int = 0
    ready: bool = True
    created_s: float = 0.0
    ip: str = ""
    lacks_ip: bool = False  # the runtime reports a network without an address
    host_network: bool | None = None  # None: not known, never a reason to replace it
    pod_uid: str = ""
    name: str = ""
    namespace: str = ""
    cgroup_parent: str = ""


class ContainerUser(msgspec.Struct, frozen=True):
    """Who the first process of a container started as."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


class ObservedContainer(msgspec.Struct, frozen=True):
    """As the runtime reports it. The agent fills in `definition` and `resources`, and completes `reason` and
    `message`."""

    id: str
    name: str
    phase: ContainerPhase
    attempt: int = 0
    sandbox_id: str = ""  # "" if the runtime does not report it
    image: str = ""
    image_id: str = ""
    created_s: float = 0.0
    started_s: float = 0.0
    finished_s: float = 0.0
    exit_code: int = 0  # 128 + signal for a killed container
    reason: str = ""  # what the runtime itself knows: OOMKilled, ContainerCannotRun …
    message: str = ""  # the runtime's own and the termination message, see `container_status.termination_message`
    definition: str = ""  # `definition_of` the container when it was started; "" if unknown
    resources: Resources | None = None  # for the status: `rules.resize.status.status_resources`
    pod_uid: str = ""
    pid: int = 0  # in the host's pid namespace, while the container runs
    log_file: str = ""
    annotations: Mapping[str, str] = {}
    cri_resources: CriResources | None = None  # when first observed in this phase, if the runtime reports them
    user: ContainerUser | None = None  # if the runtime reports it
    stop_signal: str = ""  # that asks it to end, such as SIGTERM; "" if the runtime does not report it


class ObservedPod(msgspec.Struct, frozen=True):
    sandboxes: tuple[ObservedSandbox, ...] = ()
    containers: tuple[ObservedContainer, ...] = ()  # ended ones too, as long as their records exist

    def sandbox(self) -> ObservedSandbox | None:
        """The newest."""
        return max(self.sandboxes, key=lambda sandbox: (sandbox.attempt, sandbox.created_s), default=None)

    def newest(self, name: str) -> ObservedContainer | None:
        return max(self.of(name), key=_age, default=None)

    def of(self, name: str) -> list[ObservedContainer]:
        """All of that name, the newest first."""
        return sorted((container for container in self.containers if container.name == name), key=_age, reverse=True)

    def live(self) -> tuple[ObservedContainer, ...]:
        """Containers that may still run: created, running, unknown."""
        return tuple(container for container in self.containers if container.phase != "exited")


def _age(container: ObservedContainer) -> tuple[int, float]:
    return container.attempt, container.created_s


class Backoff(msgspec.Struct, frozen=True):
    """How long to wait, and since when."""

    delay_s: float
    updated_s: float


class StartFailure(msgspec.Struct, frozen=True):
    """Why the last attempt to start a container failed; shown as its waiting state until an attempt succeeds."""

    reason: str
    message: str = ""


class ProbeResults(msgspec.Struct, frozen=True):
    """Of one container id, as `rules.lifecycle.probes` decided; None while there is no result."""

    startup: bool | None = None
    liveness: bool | None = None
    readiness: bool | None = None


NO_RESULTS = ProbeResults()


class SyncState(msgspec.Struct, frozen=True):
    """What the agent keeps between syncs. `backoffs` and `image_backoffs` belong in its checkpoint."""

    backoffs: Mapping[str, Backoff] = {}  # by `crash_backoff.backoff_key`
    image_backoffs: Mapping[str, Backoff] = {}  # by image
    failures: Mapping[str, StartFailure] = {}  # by container name
    probes: Mapping[str, ProbeResults] = {}  # by container id
    restart_to_resize: frozenset[str] = frozenset()  # names of running containers whose accepted resize needs a restart
    status: RunStatus | None = None  # last computed here; None after a restart: then the pod's own is used


NO_MEMORY = SyncState()


class LifecycleEvent(msgspec.Struct, frozen=True):
    """`container` gives the event's fieldPath; "" means the pod as a whole."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    container: str = ""
    kind: ContainerKind = "containers"

    @property
    def field_path(self) -> str:
        return f"spec.{self.kind}{{{self.container}}}" if self.container else ""


class Kill(msgspec.Struct, frozen=True):
    id: str
    name: str
    message: str  # of the event `Killing`; "" for the usual one
    reason: KillReason
    grace_s: int


class Start(msgspec.Struct, frozen=True):
    """Create and start this container, after the kills and the sandbox."""

    name: str
    attempt: int
    is_init: bool = False
    is_sidecar: bool = False
    resume_id: str = ""  # a container of that attempt exists and only has to be started
    is_ephemeral: bool = False

    @property
    def kind(self) -> ContainerKind:
        return "initContainers" if self.is_init else "ephemeralContainers" if self.is_ephemeral else "containers"


class Wait(msgspec.Struct, frozen=True):
    """Why a container is not started yet. The agent keeps it as the container's `StartFailure`."""

    name: str
    reason: str
    message: str
    until_s: float


class PodActions(msgspec.Struct, frozen=True):
    """The actions of one sync, in this order:

    1. `kill_pod`: stop every container in order (`termination.stops`) and all sandboxes; otherwise each of `kills`,
       side by side. All must have ended before anything is started.
    2. `forget`: remove the records of these ended containers.
    3. `sandbox_attempt`: create a sandbox with that number.
    4. `starts`, in order. A failing ordinary init container ends the sync; any other failure concerns only itself.
    `backoffs` and `waits` are put into the state before the starts, `events` are emitted.
    """

    kill_pod: bool = False
    kills: tuple[Kill, ...] = ()
    forget: tuple[str, ...] = ()  # container ids
    sandbox_attempt: int | None = None
    sandbox_id: str = ""  # the one to use if none is to be created
    starts: tuple[Start, ...] = ()
    waits: tuple[Wait, ...] = ()
    backoffs: Mapping[str, Backoff] = {}  # entries to put into the state
    events: tuple[LifecycleEvent, ...] = ()
    requeue_s: float | None = None  # when time alone changes the result
    restarts_all: bool = False  # a restart rule ends all containers; the status must show it

    @property
    def is_idle(self) -> bool:
        return not (self.kill_pod or self.kills or self.forget or self.starts or self.sandbox_attempt is not None)

    def is_done(self, observed: ObservedPod) -> bool:
        """Nothing to do, or only a termination that is complete."""
        if self.kill_pod and self.sandbox_attempt is None and not self.starts:
            return not observed.live() and not self.forget
        return self.is_idle
