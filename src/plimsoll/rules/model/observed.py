"""A pod as the agent observes it (`ObservedPod`), what the agent keeps about it (`SyncState`), and `PodActions`.

These are the values that pass between the agent, which looks and acts, and the rules, which decide. Everything is
level-triggered: the agent converts what the runtime shows now, keeps the memory from turn to turn (parts of it survive
a restart in its checkpoint), and hands both to `rules.lifecycle.pod_actions`. Times are seconds since the epoch of one
wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from plimsoll.rules.model.objects import Resources
from plimsoll.rules.model.pod_status import RunStatus

ContainerPhase = Literal["created", "running", "exited", "unknown"]
KillReason = Literal["", "liveness", "startup", "resize", "definition", "unknown", "pod", "post-start"]


class ObservedSandbox(msgspec.Struct, frozen=True):
    id: str
    attempt: int = 0
    ready: bool = True
    created_s: float = 0.0
    ip: str = ""
    host_network: bool | None = None  # None: not known, never a reason to replace it


class ObservedContainer(msgspec.Struct, frozen=True):
    id: str
    name: str
    phase: ContainerPhase
    attempt: int = 0
    sandbox_id: str = ""  # "" where the runtime does not say
    image: str = ""
    image_id: str = ""
    created_s: float = 0.0
    started_s: float = 0.0
    finished_s: float = 0.0
    exit_code: int = 0
    reason: str = ""  # what the runtime itself knows: OOMKilled, StartError …
    message: str = ""  # the runtime's own and the termination message, see `container_status.termination_message`
    definition: str = ""  # `definition_of` the container when it was started; "" where that is not known
    resources: Resources | None = None  # for the status: `resize_status.status_resources`, filled in by the agent


class ObservedPod(msgspec.Struct, frozen=True):
    sandboxes: tuple[ObservedSandbox, ...] = ()
    containers: tuple[ObservedContainer, ...] = ()  # dead ones too, as long as they are kept

    def sandbox(self) -> ObservedSandbox | None:
        """The newest."""
        return max(self.sandboxes, key=lambda each: (each.attempt, each.created_s), default=None)

    def newest(self, name: str) -> ObservedContainer | None:
        return max(self.of(name), key=_age, default=None)

    def of(self, name: str) -> list[ObservedContainer]:
        """All of that name, the newest first."""
        return sorted((each for each in self.containers if each.name == name), key=_age, reverse=True)

    def live(self) -> tuple[ObservedContainer, ...]:
        """What may still run: created, running, unknown."""
        return tuple(each for each in self.containers if each.phase != "exited")


def _age(container: ObservedContainer) -> tuple[int, float]:
    return container.attempt, container.created_s


class Backoff(msgspec.Struct, frozen=True):
    """One entry: how long to wait now, and when that was decided."""

    delay_s: float
    updated_s: float


class StartFailure(msgspec.Struct, frozen=True):
    """Why the last attempt to start a container failed; shown as its waiting state until an attempt goes well."""

    reason: str
    message: str = ""


class ProbeResults(msgspec.Struct, frozen=True):
    """Of one container id: True and False as `rules.lifecycle.probes` decided; None while there is no verdict."""

    startup: bool | None = None
    liveness: bool | None = None
    readiness: bool | None = None


NO_RESULTS = ProbeResults()


class SyncState(msgspec.Struct, frozen=True):
    """What the agent keeps between turns. `backoffs` and `image_backoffs` belong in its checkpoint."""

    backoffs: Mapping[str, Backoff] = {}  # by `crash_backoff.backoff_key`
    image_backoffs: Mapping[str, Backoff] = {}  # by image
    trouble: Mapping[str, StartFailure] = {}  # by container name
    probes: Mapping[str, ProbeResults] = {}  # by container id
    restart_to_resize: frozenset[str] = frozenset()  # names of running containers whose accepted resize needs a restart
    status: RunStatus | None = None  # last computed here; None after a restart, the pod's own then stands for it


NO_MEMORY = SyncState()


class LifecycleEvent(msgspec.Struct, frozen=True):
    """`container` gives the event's fieldPath; "" means the pod as a whole."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    container: str = ""
    is_init: bool = False

    @property
    def field_path(self) -> str:
        if not self.container:
            return ""
        return f"spec.{'initContainers' if self.is_init else 'containers'}{{{self.container}}}"


class Kill(msgspec.Struct, frozen=True):
    id: str
    name: str
    message: str  # of the event `Killing`; "" for the usual one
    reason: KillReason
    grace_s: int


class Start(msgspec.Struct, frozen=True):
    """Make and start this container, after the kills and the sandbox."""

    name: str
    attempt: int
    is_init: bool = False
    is_sidecar: bool = False
    resume_id: str = ""  # a container of that attempt was made before and only has to be started


class Wait(msgspec.Struct, frozen=True):
    """A container that would be started if it were not for this. The agent remembers it as the container's trouble."""

    name: str
    reason: str
    message: str
    until_s: float


class PodActions(msgspec.Struct, frozen=True):
    """One turn's work, to be carried out in this order:

    1. `kill_pod`: stop every container in order (`termination.stops`) and all sandboxes; otherwise each of `kills`,
       side by side. All must have ended before anything is started.
    2. `forget`: dead containers whose records are to be removed.
    3. `sandbox_attempt`: make a sandbox with that number.
    4. `starts`, in order. A failing ordinary init container ends the turn; any other failure only itself.
    `backoffs` and `waits` go to the memory before the starts, `events` are told.
    """

    kill_pod: bool = False
    kills: tuple[Kill, ...] = ()
    forget: tuple[str, ...] = ()  # container ids
    sandbox_attempt: int | None = None
    sandbox_id: str = ""  # the one to use where none is to be made
    starts: tuple[Start, ...] = ()
    waits: tuple[Wait, ...] = ()
    backoffs: Mapping[str, Backoff] = {}  # entries to put into the memory
    events: tuple[LifecycleEvent, ...] = ()
    look_again_s: float | None = None  # when time alone changes the answer

    @property
    def is_idle(self) -> bool:
        return not (self.kill_pod or self.kills or self.forget or self.starts or self.sandbox_attempt is not None)

    def is_done(self, seen: ObservedPod) -> bool:
        """Nothing to do, or only an end that has come already."""
        if self.kill_pod and self.sandbox_attempt is None and not self.starts:
            return not seen.live() and not self.forget
        return self.is_idle
