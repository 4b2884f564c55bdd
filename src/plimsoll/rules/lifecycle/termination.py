"""How a pod or a container is brought to its end: how much time it gets, and in which order (04 §7, §12).

A pod ends because it was deleted, because the node decided so (a `TerminationVerdict`: evicted, past its deadline), or
because its phase is final. All its containers are stopped side by side, except that a sidecar waits until the ordinary
containers and the sidecars after it are gone. The hook before the stop, and the waiting, are paid from the grace
period; what is left, but at least two seconds, is what the runtime gives between TERM and KILL.

Grace only ever shrinks: a second deletion or an eviction may shorten it, nothing prolongs it.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.lifecycle.events import DEADLINE_MESSAGE
from plimsoll.rules.model.objects import is_sidecar
from plimsoll.rules.model.observed import KillReason, ObservedPod
from plimsoll.rules.model.pod_status import FAILED, SUCCEEDED, RunStatus
from plimsoll.rules.model.runnable import Hook, Probe, RunPod, container_named, grace_period_s
from plimsoll.rules.timestamps import epoch_seconds

MIN_POD_GRACE_S = 1
MIN_STOP_GRACE_S = 2
DEADLINE_EXCEEDED = "DeadlineExceeded"
FINAL_PHASES = (SUCCEEDED, FAILED)


class TerminationVerdict(msgspec.Struct, frozen=True):
    """The node itself ends a pod: it will be Failed with this reason and message."""

    reason: str
    message: str
    grace_s: int | None = None  # shorter than the pod's own, for evictions
    is_disruption: bool = False  # sets the condition DisruptionTarget (evictions, preemption)
    condition_message: str = ""  # of that condition, where it is another one (preemption, 04 §9)


class Stop(msgspec.Struct, frozen=True):
    """One container of a pod that ends."""

    id: str
    name: str
    grace_s: int
    pre_stop: Hook | None = None  # to be run first, at most `grace_s` long, the time it takes off the grace
    after: tuple[str, ...] = ()  # names of containers that must be gone, or the grace used up, before it is stopped


def has_ended(pod: RunPod, status: RunStatus | None = None) -> bool:
    """A final phase, here or at the API server; nothing leads out of it."""
    return pod.status.phase in FINAL_PHASES or (status is not None and status.phase in FINAL_PHASES)


def is_ending(pod: RunPod, status: RunStatus | None = None, verdict: TerminationVerdict | None = None) -> bool:
    """No longer meant to run: to be stopped instead of given work."""
    return pod.metadata.deletion_timestamp is not None or verdict is not None or has_ended(pod, status)


def deadline_s(pod: RunPod, status: RunStatus) -> float | None:
    """When the pod has been active for longer than it may."""
    started_s = epoch_seconds(status.start_time)
    if pod.spec.active_deadline_seconds is None or started_s is None:
        return None
    return started_s + pod.spec.active_deadline_seconds


def deadline_verdict(pod: RunPod, status: RunStatus, now_s: float) -> TerminationVerdict | None:
    at_s = deadline_s(pod, status)
    return TerminationVerdict(DEADLINE_EXCEEDED, DEADLINE_MESSAGE) if at_s is not None and now_s >= at_s else None


def pod_grace_s(pod: RunPod, verdict: TerminationVerdict | None = None, before_s: int = 0) -> int:
    """The grace of the whole pod; `before_s` is what was decided earlier, 0 the first time."""
    asked = (before_s or None, pod.metadata.deletion_grace_period_seconds, verdict.grace_s if verdict else None)
    return max(min((each for each in asked if each is not None), default=grace_period_s(pod)), MIN_POD_GRACE_S)


def kill_grace_s(pod: RunPod, name: str, reason: KillReason) -> int:
    """Of one container that is ended while its pod lives on; a probe may have its own."""
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    container = container_named(pod, name)
    if container is not None and reason in ("liveness", "startup"):
        probe: Probe | None = container.liveness_probe if reason == "liveness" else container.startup_probe
        if probe is not None and probe.termination_grace_period_seconds is not None:
            return probe.termination_grace_period_seconds
    return grace_period_s(pod)


def stop_grace_s(grace_s: float, spent_s: float) -> int:
    """What is left for the runtime after hooks and waiting took `spent_s`."""
    return max(int(grace_s) - int(spent_s), MIN_STOP_GRACE_S)


def stops(pod: RunPod, seen: ObservedPod, grace_s: int | None = None) -> tuple[Stop, ...]:
    """Every container that may still run. `grace_s` is `pod_grace_s`; None where a pod ends by itself."""
    live = seen.live()
    names = {each.name for each in live}
    given_s = kill_grace_s(pod, "", "pod") if grace_s is None else grace_s
    later = _waits_for(pod, names)
    return tuple(
        Stop(each.id, each.name, given_s, _pre_stop(pod, each.name, given_s), later.get(each.name, ()))
        for each in sorted(live, key=lambda each: (each.name, each.attempt))
    )


def _pre_stop(pod: RunPod, name: str, grace_s: int) -> Hook | None:
    container = container_named(pod, name)
    if container is None or container.lifecycle is None or grace_s <= 0:
        return None
    return container.lifecycle.pre_stop


def _waits_for(pod: RunPod, names: set[str]) -> dict[str, tuple[str, ...]]:
    """For each sidecar: the ordinary containers, and the sidecars after it."""
    before = [each.name for each in pod.spec.containers if each.name in names]
    waits: dict[str, tuple[str, ...]] = {}
    for container in reversed(pod.spec.init_containers):
        if is_sidecar(container) and container.name in names:
            waits[container.name] = tuple(before)
            before.append(container.name)
    return waits
