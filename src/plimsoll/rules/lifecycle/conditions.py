"""The conditions a node reports of a pod, with the kubelet's reasons and sentences."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.gotext import quoted
from plimsoll.rules.model.objects import is_sidecar
from plimsoll.rules.model.observed import ObservedPod
from plimsoll.rules.model.pod_status import FAILED, SUCCEEDED, RunCondition, RunContainerStatus
from plimsoll.rules.model.runnable import RunPod

DISRUPTION_TARGET = "DisruptionTarget"
READY_TO_START, INITIALIZED, READY = "PodReadyToStartContainers", "Initialized", "Ready"
CONTAINERS_READY, SCHEDULED = "ContainersReady", "PodScheduled"
OWN_CONDITIONS = frozenset({READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED})
# Ours as well, but only while they hold: then they are given anew.
PASSING_CONDITIONS = frozenset({"PodResizePending", "PodResizeInProgress", "Enforced"})

POD_COMPLETED, POD_FAILED = "PodCompleted", "PodFailed"


class ConditionInputs(msgspec.Struct, frozen=True):
    """What conditions are made of."""

    pod: RunPod
    statuses: tuple[RunContainerStatus, ...]
    phase: str
    generation: int = 0

    def of(self, name: str) -> RunContainerStatus | None:
        return next((each for each in self.statuses if each.name == name), None)

    def condition(self, type_: str, is_true: bool, reason: str = "", message: str = "") -> RunCondition:
        return RunCondition(type_, "True" if is_true else "False", reason, message, observed_generation=self.generation)


def scheduled(by: ConditionInputs) -> RunCondition:
    return by.condition(SCHEDULED, True)


def ready_to_start(by: ConditionInputs, seen: ObservedPod) -> RunCondition:
    """There is a sandbox, with its network."""
    sandbox = seen.sandbox()
    return by.condition(READY_TO_START, sandbox is not None and sandbox.ready)


def initialized(by: ConditionInputs) -> RunCondition:
    unknown, incomplete = [], []
    for container in by.pod.spec.init_containers:
        status = by.of(container.name)
        if status is None:
            unknown.append(container.name)
        elif not (status.started if is_sidecar(container) else status.ready):
            incomplete.append(container.name)
    if by.phase == SUCCEEDED and not unknown:
        return by.condition(INITIALIZED, True, POD_COMPLETED)
    ordinary = (by.of(container.name) for container in by.pod.spec.containers)
    if any(each is not None and (each.state.running or each.state.terminated) is not None for each in ordinary):
        # Sidecars may start again later; that does not undo it.
        return by.condition(INITIALIZED, True)
    message = _sentences(("unknown", unknown), ("incomplete", incomplete))
    return by.condition(INITIALIZED, not message, "ContainersNotInitialized" if message else "", message)


def containers_ready(by: ConditionInputs) -> RunCondition:
    return _containers(by, CONTAINERS_READY)


def pod_ready(by: ConditionInputs, others: Iterable[RunCondition]) -> RunCondition:
    """The containers, and then the readiness gates that somebody else sets."""
    containers = _containers(by, READY)
    if containers.status != "True":
        return containers
    known = {each.type: each.status for each in others}
    unready = []
    for gate in by.pod.spec.readiness_gates:
        status = known.get(gate.condition_type)
        name = quoted(gate.condition_type)
        if status is None:
            unready.append(f"corresponding condition of pod readiness gate {name} does not exist.")
        elif status != "True":
            unready.append(f'the status of pod readiness gate {name} is not "True", but {status}')
    return by.condition(READY, False, "ReadinessGatesNotReady", ", ".join(unready)) if unready else containers


def _containers(by: ConditionInputs, type_: str) -> RunCondition:
    unknown, unready = [], []
    sidecars = (each for each in by.pod.spec.init_containers if is_sidecar(each))
    for container in (*sidecars, *by.pod.spec.containers):
        status = by.of(container.name)
        if status is None:
            unknown.append(container.name)
        elif not status.ready:
            unready.append(container.name)
    if by.phase == FAILED:
        return by.condition(type_, False, POD_FAILED)
    if by.phase == SUCCEEDED and not unknown:
        return by.condition(type_, False, POD_COMPLETED)
    message = _sentences(("unknown", unknown), ("unready", unready))
    return by.condition(type_, not message, "ContainersNotReady" if message else "", message)


def _sentences(*lists: tuple[str, list[str]]) -> str:
    return ", ".join(f"containers with {what} status: [{' '.join(names)}]" for what, names in lists if names)
