"""Termination of pods and containers: grace periods and order (04 §7, §12).

A pod terminates because it was deleted, because the node decided so (a `TerminationVerdict`: evicted, past its
deadline), or because its phase is final. Its containers are stopped in parallel, except that a sidecar is stopped after
the ordinary containers and the later sidecars. The preStop hook and this waiting count against the grace period; the
rest, but at least two seconds, is the runtime's time between SIGTERM and SIGKILL.

A grace period never grows: a second deletion or an eviction may shorten it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.lifecycle.events import DEADLINE_MESSAGE
from plimsoll.rules.model.objects import is_sidecar
from plimsoll.rules.model.observed import KillReason, ObservedPod
from plimsoll.rules.model.pod_status import FAILED, SUCCEEDED, RunStatus, Terminated
from plimsoll.rules.model.runnable import Hook, Probe, RunPod, container_named, grace_period_s
from plimsoll.rules.timestamps import epoch_seconds

MIN_POD_GRACE_S = 1
MIN_STOP_GRACE_S = 2
DEADLINE_EXCEEDED = "DeadlineExceeded"
FINAL_PHASES = (SUCCEEDED, FAILED)


class TerminationVerdict(msgspec.Struct, frozen=True):
    """The node terminates a pod: it becomes Failed with this reason and message."""

    reason: str
    message: str
    grace_s: int | None = None  # shorter than the pod's own, for evictions
    is_disruption: bool = False  # sets the condition DisruptionTarget (evictions, preemption)
    condition_message: str = ""  # of that condition, if it differs (preemption, 04 §9)


class Stop(msgspec.Struct, frozen=True):
    """One container of a terminating pod."""

    id: str
    name: str
    grace_s: int
    pre_stop: Hook | None = None  # runs first, for at most `grace_s`, which it reduces
    after: tuple[str, ...] = ()  # containers that must be stopped before it, unless the grace period is over


def new_ends(before: RunStatus, now: RunStatus) -> Iterator[tuple[str, Terminated]]:
    """The containers that have ended between two statuses of a pod, with their types as metrics name them."""
    for kind, were, are in (
        ("init_container", before.init_container_statuses, now.init_container_statuses),
        ("container", before.container_statuses, now.container_statuses),
        ("ephemeral_container", before.ephemeral_container_statuses, now.ephemeral_container_statuses),
    ):
        had_ended = {each.name for each in were if each.state.terminated is not None}
        for each in are:
            if each.state.terminated is not None and each.name not in had_ended:
                yield kind, each.state.terminated


def has_ended(pod: RunPod, status: RunStatus | None = None) -> bool:
    """A final phase, on the node or at the API server."""
    return pod.status.phase in FINAL_PHASES or (status is not None and status.phase in FINAL_PHASES)


def is_ending(pod: RunPod, status: RunStatus | None = None, verdict: TerminationVerdict | None = None) -> bool:
    """The pod terminates: its containers are stopped and not started."""
    return pod.metadata.deletion_timestamp is not None or verdict is not None or has_ended(pod, status)


def deadline_s(pod: RunPod, status: RunStatus) -> float | None:
    """When activeDeadlineSeconds is over."""
    started_s = epoch_seconds(status.start_time)
    if pod.spec.active_deadline_seconds is None or started_s is None:
        return None
    return started_s + pod.spec.active_deadline_seconds


def deadline_verdict(pod: RunPod, status: RunStatus, now_s: float) -> TerminationVerdict | None:
    at_s = deadline_s(pod, status)
    return TerminationVerdict(DEADLINE_EXCEEDED, DEADLINE_MESSAGE) if at_s is not None and now_s >= at_s else None


def pod_grace_s(pod: RunPod, verdict: TerminationVerdict | None = None, before_s: int = 0) -> int:
    """The grace period of the pod; `before_s` is the earlier decision, 0 the first time."""
    asked = (before_s or None, pod.metadata.deletion_grace_period_seconds, verdict.grace_s if verdict else None)
    return max(min((each for each in asked if each is not None), default=grace_period_s(pod)), MIN_POD_GRACE_S)


def kill_grace_s(pod: RunPod, name: str, reason: KillReason) -> int:
    """Of one container that is killed while its pod continues; a probe may have its own grace period."""
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    container = container_named(pod, name)
    if container is not None and reason in ("liveness", "startup"):
        probe: Probe | None = container.liveness_probe if reason == "liveness" else container.startup_probe
        if probe is not None and probe.termination_grace_period_seconds is not None:
            return probe.termination_grace_period_seconds
    return grace_period_s(pod)


def stop_grace_s(grace_s: float, spent_s: float) -> int:
    """The rest for the runtime after hooks and waiting took `spent_s`."""
    return max(int(grace_s) - int(spent_s), MIN_STOP_GRACE_S)


def stops(pod: RunPod, seen: ObservedPod, grace_s: int | None = None) -> tuple[Stop, ...]:
    """Every container that may still run. `grace_s`: `pod_grace_s`, or None if the pod terminates by itself."""
    live = seen.live()
    names = {container.name for container in live}
    period_s = kill_grace_s(pod, "", "pod") if grace_s is None else grace_s
    later = _waits_for(pod, names)
    return tuple(
        Stop(each.id, each.name, period_s, _pre_stop(pod, each.name, period_s), later.get(each.name, ()))
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
