"""Container statuses: state and last state, restarts, ready, started (04 §10–§12).

The newest container of a name determines the state, the one before it the last state. Three rules extend what the
runtime reports. A container that was never created shows why it waits. A container that failed to start, or that is in
back-off, shows that reason, and its end moves to the last state. A container that was reported as running and has
disappeared is terminated as *unknown* with exit code 137.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.rules.lifecycle.probes import is_ready, is_started
from plimsoll.rules.lifecycle.restarts import RESTARTING_ALL, may_restart
from plimsoll.rules.model.objects import Resources, is_sidecar
from plimsoll.rules.model.observed import NO_RESULTS, ContainerKind, ObservedContainer, ObservedPod, SyncState
from plimsoll.rules.model.pod_status import (
    NO_STATE,
    RunContainerStatus,
    Running,
    RunState,
    Terminated,
    VolumeMountStatus,
    Waiting,
)
from plimsoll.rules.model.runnable import FALLBACK_TO_LOGS, RunContainer, RunPod
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import rfc3339

CONTAINER_CREATING, POD_INITIALIZING = "ContainerCreating", "PodInitializing"
STATUS_UNKNOWN = "ContainerStatusUnknown"
UNKNOWN_EXIT_CODE = 137
NOT_LOCATED_AT_END = "The container could not be located when the pod was terminated"
NOT_LOCATED = "The container could not be located when the pod was deleted.  The container used to be Running"

REMOVED_TO_RESTART = "The container is removed because RestartAllContainers in place"

MAX_MESSAGE_BYTES = 4096
MAX_LOG_MESSAGE_BYTES = 2048
MAX_LOG_MESSAGE_LINES = 80
MAX_POD_MESSAGE_BYTES = 12 * 1024


def termination_message(
    container: RunContainer, exit_code: int, file_text: bytes | None, log_tail: bytes = b"", runtime_message: str = ""
) -> str:
    """From the file that the container wrote (None: no file) or the end of its log, after the runtime's message."""
    own = (file_text or b"")[-MAX_MESSAGE_BYTES:]
    if not own and exit_code != 0 and container.termination_message_policy == FALLBACK_TO_LOGS:
        lines = log_tail[-MAX_LOG_MESSAGE_BYTES:].splitlines(keepends=True)
        own = b"".join(lines[-MAX_LOG_MESSAGE_LINES:])
    text = own.decode(errors="replace")
    return f"{runtime_message}: {text}" if runtime_message and text else runtime_message or text


class StatusContext(msgspec.Struct, frozen=True):
    """What the statuses of one pod's containers have in common."""

    pod: RunPod
    seen: ObservedPod
    memory: SyncState
    profile: Profile
    runtime_name: str
    is_ending: bool  # being stopped: no container is ready or waits to be started
    allocated: Mapping[str, Resources]
    shows_resources: bool = True
    shows_allocated: bool = True
    shows_stop_signal: bool = True
    is_restarting_all: bool = False  # records are removed because a rule restarts all containers


def container_statuses(
    context: StatusContext,
    containers: tuple[RunContainer, ...],
    previous: tuple[RunContainerStatus, ...],
    kind: ContainerKind = "containers",
) -> tuple[RunContainerStatus, ...]:
    """Init containers in the pod's order, others by name."""
    before = {each.name: each for each in previous}
    shown = [_status(context, container, before.get(container.name), kind) for container in containers]
    return tuple(shown if kind == "initContainers" else sorted(shown, key=lambda each: each.name))


def _status(
    context: StatusContext, container: RunContainer, before: RunContainerStatus | None, kind: ContainerKind
) -> RunContainerStatus:
    runs = context.seen.of(container.name)
    if not runs:
        status = _without_runs(context, container, before)
    elif before is not None and _is_reported_lost(context, runs[0], before):
        status = before
    else:
        status = _from_run(context, container, runs[0], before)
        if len(runs) > 1:
            status = msgspec.structs.replace(status, last_state=_state(context, runs[1], None))
        elif before is not None and (last := before.last_state.terminated) and last.container_id != status.container_id:
            # The record of the previous run may be removed; what was reported of it stays.
            status = msgspec.structs.replace(status, last_state=before.last_state)
    newest = runs[0] if runs else None
    status = _with_start_failure(context, container, newest, status, kind)
    return _with_flags(context, container, newest, status, kind)


def _is_reported_lost(context: StatusContext, run: ObservedContainer, before: RunContainerStatus) -> bool:
    ended = before.state.terminated
    is_same = before.container_id == _full_id(context, run.id)
    return run.phase == "unknown" and is_same and ended is not None and ended.reason == STATUS_UNKNOWN


def _without_runs(
    context: StatusContext, container: RunContainer, before: RunContainerStatus | None
) -> RunContainerStatus:
    if before is not None and context.is_restarting_all and before.state.waiting is None:
        ended = Terminated(UNKNOWN_EXIT_CODE, 0, RESTARTING_ALL, REMOVED_TO_RESTART)
        return RunContainerStatus(
            name=container.name,
            image=container.image,
            state=RunState(waiting=Waiting(RESTARTING_ALL, REMOVED_TO_RESTART)),
            last_state=RunState(terminated=ended),
            restart_count=before.restart_count + 1,
            volume_mounts=_mounts(context, container),
        )
    if before is not None and before.state.terminated is not None:
        return before
    has_init = bool(context.pod.spec.init_containers)
    status = RunContainerStatus(
        name=container.name,
        image=container.image,
        state=RunState(waiting=Waiting(POD_INITIALIZING if has_init else CONTAINER_CREATING)),
        volume_mounts=_mounts(context, container),
    )
    if before is None:
        return status
    restarts, last_state = before.restart_count, before.last_state
    if before.state.running is not None:
        # It was running: report that it ended, so that the pod does not return to Pending.
        if last_state.terminated is None:
            last_state = RunState(terminated=Terminated(UNKNOWN_EXIT_CODE, 0, STATUS_UNKNOWN, NOT_LOCATED))
        if context.pod.metadata.deletion_timestamp is None:
            restarts += 1
    return msgspec.structs.replace(status, restart_count=restarts, last_state=last_state)


def _from_run(
    context: StatusContext, container: RunContainer, run: ObservedContainer, before: RunContainerStatus | None
) -> RunContainerStatus:
    allocated = context.allocated.get(container.name, container.resources)
    shown = run.resources if run.phase == "running" and run.resources is not None else allocated
    was_lost = run.phase == "unknown" and before is not None and before.state.running is not None
    return RunContainerStatus(
        name=container.name,
        state=_state(context, run, before),
        image=run.image or container.image,
        image_id=run.image_id,
        container_id=_full_id(context, run.id),
        restart_count=before.restart_count + 1 if before is not None and was_lost else run.attempt,
        resources=shown if context.shows_resources else None,
        allocated_resources=allocated.requests if context.shows_allocated else None,
        volume_mounts=_mounts(context, container),
        user=_user(run) if context.profile.runtime_features_reported else None,
        stop_signal=_stop_signal(context, run),
    )


def _stop_signal(context: StatusContext, run: ObservedContainer) -> str | None:
    shows = context.shows_stop_signal and context.profile.stop_signal_reported
    return run.stop_signal if shows and run.stop_signal else None


def _user(run: ObservedContainer) -> dict[str, object] | None:
    if run.user is None:
        return None
    linux = {"uid": run.user.uid, "gid": run.user.gid}
    groups = {"supplementalGroups": list(run.user.groups)} if run.user.groups else {}
    return {"linux": {**linux, **groups}}


def _state(context: StatusContext, run: ObservedContainer, before: RunContainerStatus | None) -> RunState:
    if run.phase == "running":
        return RunState(running=Running(rfc3339(run.started_s)))
    if run.phase == "exited":
        return RunState(terminated=_terminated(context, run))
    if run.phase == "unknown" and before is not None and before.state.running is not None:
        return RunState(terminated=Terminated(UNKNOWN_EXIT_CODE, 0, STATUS_UNKNOWN, NOT_LOCATED_AT_END))
    return RunState(waiting=Waiting())


def _terminated(context: StatusContext, run: ObservedContainer) -> Terminated:
    return Terminated(
        exit_code=run.exit_code,
        reason=run.reason or ("Completed" if run.exit_code == 0 else "Error"),
        message=run.message,
        started_at=rfc3339(run.started_s),  # 1970 for one that never started, as the kubelet shows it
        finished_at=rfc3339(run.finished_s),
        container_id=_full_id(context, run.id),
    )


def _full_id(context: StatusContext, container_id: str) -> str:
    return f"{context.runtime_name}://{container_id}"


def _mounts(context: StatusContext, container: RunContainer) -> tuple[VolumeMountStatus, ...] | None:
    if not context.profile.volume_mounts_reported or not container.volume_mounts:
        return None
    return tuple(
        VolumeMountStatus(
            mount.name,
            mount.mount_path,
            mount.read_only,
            recursive_read_only="Disabled" if mount.read_only else None,
        )
        for mount in container.volume_mounts
    )


def _with_start_failure(
    context: StatusContext,
    container: RunContainer,
    newest: ObservedContainer | None,
    status: RunContainerStatus,
    kind: ContainerKind,
) -> RunContainerStatus:
    failure = context.memory.failures.get(container.name)
    if failure is None or context.is_ending or not may_restart(container, context.pod, newest):
        return status
    if kind == "ephemeralContainers" and newest is not None and newest.phase != "created":
        return status
    if (
        kind == "initContainers"
        and not is_sidecar(container)
        and newest is not None
        and newest.phase == "exited"
        and not newest.exit_code
    ):
        return status
    last_state = status.state if status.state.terminated is not None else status.last_state
    waiting = RunState(waiting=Waiting(failure.reason, failure.message))
    return msgspec.structs.replace(status, state=waiting, last_state=last_state)


def _with_flags(
    context: StatusContext,
    container: RunContainer,
    newest: ObservedContainer | None,
    status: RunContainerStatus,
    kind: ContainerKind,
) -> RunContainerStatus:
    results = context.memory.probes.get(newest.id, NO_RESULTS) if newest is not None else NO_RESULTS
    runs_on = status.state.running is not None
    started: bool | None = runs_on and is_started(container, newest, results)
    if kind == "ephemeralContainers":  # a kubelet sets neither
        ready, started = False, None
    elif kind == "initContainers" and not is_sidecar(container):
        ended = status.state.terminated
        ready = ended is not None and ended.exit_code == 0
        if not context.profile.init_started_reported:
            started = None
    else:
        ready = runs_on and not context.is_ending and is_ready(container, newest, results)
    return msgspec.structs.replace(status, ready=ready, started=started)


def ended_unknown(status: RunContainerStatus) -> RunContainerStatus:
    """The final status of a pod: a container whose end was not observed is terminated with an error."""
    if status.state.terminated is not None:
        return status
    ended = RunState(terminated=Terminated(UNKNOWN_EXIT_CODE, 0, STATUS_UNKNOWN, NOT_LOCATED_AT_END))
    return msgspec.structs.replace(status, state=ended, ready=False, started=False)


def with_short_messages(statuses: Iterable[RunContainerStatus], container_count: int) -> tuple[RunContainerStatus, ...]:
    """Limit all termination messages of a pod to 12 KiB together."""
    limit = MAX_POD_MESSAGE_BYTES // max(container_count, 1)
    return tuple(
        msgspec.structs.replace(
            status, state=_shortened(status.state, limit), last_state=_shortened(status.last_state, limit)
        )
        for status in statuses
    )


def _shortened(state: RunState, limit: int) -> RunState:
    ended = state.terminated
    if ended is None or len(ended.message.encode()) <= limit:
        return state
    message = ended.message.encode()[:limit].decode(errors="ignore")
    return RunState(terminated=msgspec.structs.replace(ended, message=message))


def has_started(status: RunContainerStatus) -> bool:
    """Whether the status shows that a container of that name was started."""
    return status.last_state != NO_STATE or status.state.running is not None or status.state.terminated is not None
