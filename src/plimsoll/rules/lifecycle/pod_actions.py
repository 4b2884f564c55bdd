"""The actions of one pod sync: the sandbox to create, the containers to kill, to start, to keep waiting (04 §10–§12).

They are computed again after every change and depend only on the pod, the observed state and the sync state, so an
agent that was killed at any point continues:

* Without a ready sandbox: kill what is there, create the next sandbox, start from the beginning. A pod with restart
  policy Never that has run before is killed instead.
* Init containers start one after the other: the next one when an ordinary one has succeeded, or when a sidecar has
  started. The last one with a record decides how far the pod got, because earlier records may be removed.
* After the last init container: start every container that is not running and may be started; restart sidecars that
  ended. A container that fails its liveness or startup probe, whose image changed, or whose resize requires a restart
  (03 §10), is killed and started again in the same sync.
* Ephemeral containers start as soon as there is a sandbox, whatever the others do, and never again.
* If no container runs or will run, kill the pod, sidecars and ephemeral containers included.
* If a restart rule says so, kill all containers, remove their records and start from the beginning (`restarts`).

Each start is subject to crash back-off and pull back-off; a container in back-off waits with the kubelet's message.

`after_sync` and the functions after it compute the next sync state: what a sync decided, and the results of starts.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.lifecycle.backoff import (
    CRASH_LOOP,
    DEFAULT_LIMITS,
    ERR_IMAGE_PULL,
    IMAGE_PULL_BACKOFF,
    BackoffLimits,
    backoff_key,
    crash_message,
    next_backoff,
    next_pull_backoff,
    pull_message,
    pull_waits_until_s,
    waits_until_s,
)
from plimsoll.rules.lifecycle.events import ContainerEvents, sandbox_replaced
from plimsoll.rules.lifecycle.restarts import (
    causes_of_restart_of_all,
    is_restarted,
    may_restart,
    restart_of_all,
    runs_once,
    survives_failure,
)
from plimsoll.rules.lifecycle.sandbox import sandbox_changed
from plimsoll.rules.lifecycle.termination import deadline_s, kill_grace_s
from plimsoll.rules.model.objects import Container, is_sidecar
from plimsoll.rules.model.observed import (
    NO_RESULTS,
    Backoff,
    Kill,
    KillReason,
    LifecycleEvent,
    ObservedContainer,
    ObservedPod,
    PodActions,
    ProbeResults,
    Start,
    StartFailure,
    SyncState,
    Wait,
)
from plimsoll.rules.model.pod_status import RunContainerStatus, RunStatus
from plimsoll.rules.model.runnable import ALWAYS, NEVER, RunContainer, RunPod, container_kind
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.resize.steps import restart_message


def definition_of(container: Container) -> str:
    """A change of this restarts the container. In a running pod only the image can change."""
    return f"{container.name}={container.image}"


def compute_pod_actions(
    pod: RunPod,
    seen: ObservedPod,
    memory: SyncState,
    now_s: float,
    *,
    limits: BackoffLimits = DEFAULT_LIMITS,
    profile: Profile = DEFAULT_PROFILE,
) -> PodActions:
    """For a pod that is not terminating (`termination.is_ending`)."""
    return _Sync(pod, seen, memory, now_s, limits, profile).actions()


def next_attempt(name: str, seen: ObservedPod, status: RunStatus) -> int:
    """The number of the next container of that name, which is its restartCount."""
    newest = seen.newest(name)
    if newest is not None:
        return newest.attempt + 1
    reported = (*status.container_statuses, *status.init_container_statuses)
    before = next((container for container in reported if container.name == name), None)
    if before is None:
        return 0
    # The runtime has lost its records. A container that was reported running or terminated had this number itself.
    had_run = before.state.running is not None or before.state.terminated is not None
    return before.restart_count + 1 if had_run else before.restart_count


class _Sync:
    """Collects the actions of one sync."""

    def __init__(
        self, pod: RunPod, seen: ObservedPod, memory: SyncState, now_s: float, limits: BackoffLimits, profile: Profile
    ) -> None:
        self.pod, self.seen, self.memory, self.now_s = pod, seen, memory, now_s
        self.limits, self.profile = limits, profile
        self.sandbox = seen.sandbox()
        self.status = memory.status if memory.status is not None else pod.status
        self.policy = pod.spec.restart_policy or ALWAYS
        self.kills: dict[str, Kill] = {}
        self.to_start: list[RunContainer] = []
        self.starts: list[Start] = []
        self.waits: list[Wait] = []
        self.events: list[LifecycleEvent] = []
        self.backoffs: dict[str, Backoff] = {}
        self.forget: list[str] = []

    def actions(self) -> PodActions:
        if self.pod.metadata.deletion_timestamp is not None:
            return self._end()
        if causes := causes_of_restart_of_all(self.pod, self.seen):
            return restart_of_all(self.pod, self.seen, causes, self._sandbox_id())
        if sandbox_changed(self.pod, self.seen):
            return self._new_sandbox()
        for container in self.seen.live():
            newest = self.seen.newest(container.name)
            if newest is None or newest.id == container.id:
                continue
            if container.phase == "created":
                self.forget.append(container.id)
            else:  # only the newest of a name may run
                self._kill(container, "", "unknown")
        self._ephemeral_containers()
        is_initialised, has_failed = self._init_containers()
        if has_failed or (is_initialised and not self._ordinary_containers()):
            return self._end()
        self._pass_backoffs()
        return self._complete(PodActions(sandbox_id=self._sandbox_id()))

    def _end(self) -> PodActions:
        is_there = any(sandbox.ready for sandbox in self.seen.sandboxes) or bool(self.seen.live())
        return PodActions(kill_pod=is_there, forget=self._old_records(), sandbox_id=self._sandbox_id())

    def _sandbox_id(self) -> str:
        return self.sandbox.id if self.sandbox is not None else ""

    def _new_sandbox(self) -> PodActions:
        """All containers are killed with the old sandbox and start from the beginning in the new one."""
        attempt = 0 if self.sandbox is None else self.sandbox.attempt + 1
        if self.policy == NEVER and attempt and self.seen.containers:
            return self._end()
        ordinary = [container for container in self.pod.spec.containers if not self._is_done(container)]
        if not ordinary and any(self.seen.newest(container.name) is not None for container in self.pod.spec.containers):
            return self._end()
        self.to_start = list(self.pod.spec.init_containers[:1]) or ordinary
        if self.sandbox is not None:
            self.events.append(sandbox_replaced())
        self._pass_backoffs(resumes=False)
        replaces = self.sandbox is not None or bool(self.seen.live())
        return self._complete(PodActions(kill_pod=replaces, sandbox_attempt=attempt))

    def _is_done(self, container: RunContainer) -> bool:
        newest = self.seen.newest(container.name)
        has_succeeded = newest is not None and newest.phase == "exited" and newest.exit_code == 0
        return has_succeeded and runs_once(container, self.policy)

    def _here(self, name: str) -> ObservedContainer | None:
        """The newest of that name, if it belongs to the current sandbox."""
        newest = self.seen.newest(name)
        if newest is None or newest.sandbox_id in ("", self._sandbox_id()):
            return newest
        return None

    # Init containers

    def _init_containers(self) -> tuple[bool, bool]:
        """Whether the pod is initialised, and whether it has failed."""
        containers = self.pod.spec.init_containers
        if not containers:
            return True, False
        is_initialised = any(
            newest is not None and newest.phase in ("created", "running")
            for newest in (self._here(each.name) for each in self.pod.spec.containers)
        )
        passed = is_initialised  # a later container has started
        wanted: set[int] = set()
        for index in reversed(range(len(containers))):
            container = containers[index]
            newest = self._here(container.name)
            if newest is None:
                if passed and is_sidecar(container):
                    wanted.add(index)
                continue
            if passed and not is_sidecar(container):
                continue
            is_through, again, failed = self._init_step(container, newest)
            if failed:
                return False, True
            if again:
                wanted.add(index)
            if is_through and not passed:
                if index == len(containers) - 1:
                    is_initialised = True
                else:
                    wanted.add(index + 1)
            passed = True
        if not passed:
            wanted.add(0)
        self.to_start.extend(containers[index] for index in sorted(wanted))
        return is_initialised, False

    def _init_step(self, container: RunContainer, newest: ObservedContainer) -> tuple[bool, bool, bool]:
        """Whether the next one may start, whether this one must be started, and whether the pod has failed."""
        sidecar = is_sidecar(container)
        if newest.phase == "created":
            return False, True, False
        if newest.phase == "running":
            return self._running_sidecar(container, newest) if sidecar else (False, False, False)
        if newest.phase == "exited":
            if sidecar:
                return False, True, False
            if newest.exit_code == 0:
                return True, False, False
            again = is_restarted(container, self.policy, newest.exit_code)
            return False, again, not again
        if not sidecar and not survives_failure(container, self.policy):
            return False, False, True
        self._kill(newest, 'Init container is in "unknown" state, try killing it before restart', "unknown")
        return False, True, False

    def _running_sidecar(self, container: RunContainer, newest: ObservedContainer) -> tuple[bool, bool, bool]:
        startup = self._results(newest).startup
        if container.startup_probe is not None and startup is not True:
            if startup is False:
                self._kill(newest, f"Init container {container.name} failed startup probe", "startup")
            return False, startup is False, False
        why = self._why_end(container, newest, "Init container")
        if why is not None:
            reason, message = why
            self._kill(newest, message, reason)
        return True, why is not None, False

    # Ephemeral containers

    def _ephemeral_containers(self) -> None:
        """The runtime's record may be removed; then the status says that it has run."""
        reported = {each.name for each in self.status.ephemeral_container_statuses if _has_run(each)}
        for container in self.pod.spec.ephemeral_containers:
            newest = self.seen.newest(container.name)
            if container.name not in reported if newest is None else newest.phase == "created":
                self.to_start.append(container)

    # Ordinary containers

    def _ordinary_containers(self) -> bool:
        """Whether any container runs or will run."""
        keeps = False
        for container in self.pod.spec.containers:
            newest = self.seen.newest(container.name)
            if newest is None or newest.phase != "running":
                if may_restart(container, self.pod, newest):
                    keeps = True
                    self.to_start.append(container)
                    if newest is not None and newest.phase == "unknown":
                        message = 'Container is in "unknown" state, try killing it before restart'
                        self._kill(newest, message, "unknown")
                continue
            if self._here(container.name) is None:
                keeps = True
                self.to_start.append(container)
                self._kill(newest, "", "unknown")  # of a sandbox that was replaced
                continue
            why = self._why_end(container, newest, "Container")
            if why is None:
                keeps = True
                continue
            reason, message = why
            if reason in ("resize", "definition") or survives_failure(container, self.policy):
                keeps = True
                self.to_start.append(container)
                message = message if reason == "resize" else f"{message}, will be restarted"
            self._kill(newest, message, reason)
        return keeps

    def _why_end(self, container: RunContainer, newest: ObservedContainer, title: str) -> tuple[KillReason, str] | None:
        results = self._results(newest)
        name = container.name
        if _is_changed(container, newest):
            return "definition", f"{title} {name} definition changed"
        if container.liveness_probe is not None and results.liveness is False:
            return "liveness", f"{title} {name} failed liveness probe"
        if container.startup_probe is not None and results.startup is False:
            return "startup", f"{title} {name} failed startup probe"
        if name in self.memory.restart_to_resize:
            return "resize", restart_message(name)
        return None

    def _results(self, newest: ObservedContainer) -> ProbeResults:
        return self.memory.probes.get(newest.id, NO_RESULTS)

    def _kill(self, container: ObservedContainer, message: str, reason: KillReason) -> None:
        grace_s = kill_grace_s(self.pod, container.name, reason)
        self.kills[container.id] = Kill(container.id, container.name, message, reason, grace_s)

    # Starting

    def _pass_backoffs(self, *, resumes: bool = True) -> None:
        for container in self.to_start:
            name = container.name
            newest = self.seen.newest(name)
            if newest is not None and newest.phase == "created":
                if resumes and self._here(name) is not None and not _is_changed(container, newest):
                    self._start(container, newest.attempt, newest.id)
                    continue
                self.forget.append(newest.id)
            wait = self._wait(container)
            if wait is None:
                self._start(container, next_attempt(name, self.seen, self.status))
            else:
                self.waits.append(wait)

    def _start(self, container: RunContainer, attempt: int, resume_id: str = "") -> None:
        kind = container_kind(self.pod, container.name)
        is_init, is_ephemeral = kind == "initContainers", kind == "ephemeralContainers"
        self.starts.append(Start(container.name, attempt, is_init, is_sidecar(container), resume_id, is_ephemeral))

    def _wait(self, container: RunContainer) -> Wait | None:
        events = ContainerEvents(container.name, self.profile, container_kind(self.pod, container.name))
        last_run = next((each for each in self.seen.of(container.name) if each.phase == "exited"), None)
        key = backoff_key(container)
        entry = self.memory.backoffs.get(key)
        if last_run is not None:
            until_s = waits_until_s(entry, last_run.finished_s, self.limits)
            if entry is not None and until_s > self.now_s:
                message = crash_message(container.name, self.pod.metadata, entry.delay_s)
                self._record(container.name, CRASH_LOOP, message, events.back_off(self.pod.metadata))
                return Wait(container.name, CRASH_LOOP, message, until_s)
        until_s = pull_waits_until_s(self.memory.image_backoffs.get(container.image), self.now_s)
        if until_s > self.now_s:
            message = self._pull_message(container)
            waiting = (events.pull_back_off(container.image), events.start_failed(IMAGE_PULL_BACKOFF))
            self._record(container.name, IMAGE_PULL_BACKOFF, message, *waiting)
            return Wait(container.name, IMAGE_PULL_BACKOFF, message, until_s)
        if last_run is not None:
            self.backoffs[key] = next_backoff(entry, last_run.finished_s, self.now_s, self.limits)
        return None

    def _pull_message(self, container: RunContainer) -> str:
        failure = self.memory.failures.get(container.name)
        if failure is None:
            return pull_message(container.image, profile=self.profile)
        if failure.reason == IMAGE_PULL_BACKOFF:
            return failure.message
        return pull_message(container.image, f"{failure.reason}: {failure.message}", self.profile)

    def _record(self, name: str, reason: str, message: str, *events: LifecycleEvent) -> None:
        """Record events once per wait, which may last for many syncs."""
        if self.memory.failures.get(name) != StartFailure(reason, message):
            self.events.extend(events)

    def _old_records(self) -> tuple[str, ...]:
        """Exited containers older than the two newest of their name (04 §11)."""
        old = list(self.forget)
        for name in {container.name for container in self.seen.containers}:
            dead = [each.id for each in self.seen.of(name)[2:] if each.phase == "exited"]
            old.extend(each for each in dead if each not in old)
        return tuple(sorted(old))

    def _complete(self, actions: PodActions) -> PodActions:
        times_s = [wait.until_s for wait in self.waits]
        active_deadline_s = deadline_s(self.pod, self.status)
        if active_deadline_s is not None:
            times_s.append(active_deadline_s)
        return msgspec.structs.replace(
            actions,
            kills=tuple(self.kills.values()),
            forget=self._old_records(),
            starts=tuple(self.starts),
            waits=tuple(self.waits),
            backoffs=self.backoffs,
            events=tuple(self.events),
            requeue_s=min(times_s, default=None),
        )


def _has_run(status: RunContainerStatus) -> bool:
    return status.state.running is not None or status.state.terminated is not None


def _is_changed(container: RunContainer, newest: ObservedContainer) -> bool:
    return newest.definition not in ("", definition_of(container))


def after_sync(memory: SyncState, actions: PodActions) -> SyncState:
    if not (actions.waits or actions.backoffs):
        return memory
    failures = {wait.name: StartFailure(wait.reason, wait.message) for wait in actions.waits}
    return msgspec.structs.replace(
        memory, failures={**memory.failures, **failures}, backoffs={**memory.backoffs, **actions.backoffs}
    )


def started(memory: SyncState, name: str) -> SyncState:
    """The sync state after a container was started: its start failure is removed."""
    if name not in memory.failures:
        return memory
    failures = {other: failure for other, failure in memory.failures.items() if other != name}
    return msgspec.structs.replace(memory, failures=failures)


def start_failed(memory: SyncState, name: str, failure: StartFailure) -> SyncState:
    return msgspec.structs.replace(memory, failures={**memory.failures, name: failure})


def pull_failed(
    memory: SyncState, container: Container, message: str, now_s: float, reason: str = ERR_IMAGE_PULL
) -> SyncState:
    """The sync state after a failed pull: the failure, and the back-off of the image."""
    entry = next_pull_backoff(memory.image_backoffs.get(container.image), now_s)
    changed = start_failed(memory, container.name, StartFailure(reason, message))
    return msgspec.structs.replace(changed, image_backoffs={**memory.image_backoffs, container.image: entry})


def without_stale_probes(memory: SyncState, seen: ObservedPod) -> SyncState:
    """The sync state without probe results of containers that no longer exist."""
    ids = {container.id for container in seen.containers}
    if memory.probes.keys() <= ids:
        return memory
    return msgspec.structs.replace(memory, probes={each: memory.probes[each] for each in memory.probes if each in ids})
