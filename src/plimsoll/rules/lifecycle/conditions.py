"""The pod conditions that a node reports, with the kubelet's reasons and messages."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.errors import quoted
from plimsoll.rules.lifecycle.sandbox import sandbox_changed
from plimsoll.rules.model.objects import is_sidecar
from plimsoll.rules.model.observed import ObservedPod
from plimsoll.rules.model.pod_status import FAILED, SUCCEEDED, RunCondition, RunContainerStatus
from plimsoll.rules.model.runnable import RunPod

DISRUPTION_TARGET = "DisruptionTarget"
READY_TO_START, INITIALIZED, READY = "PodReadyToStartContainers", "Initialized", "Ready"
CONTAINERS_READY, SCHEDULED = "ContainersReady", "PodScheduled"
ALL_RESTARTING = "AllContainersRestarting"
OWN_CONDITIONS = frozenset({READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED, ALL_RESTARTING})
# The agent reports these only while they are true.
PASSING_CONDITIONS = frozenset({"PodResizePending", "PodResizeInProgress", "Enforced"})

BY_NODE = "TerminationByKubelet"  # the reason of DisruptionTarget if the node has set it

POD_COMPLETED, POD_FAILED = "PodCompleted", "PodFailed"


def is_of_node(type_: str, reason: str) -> bool:
    """Whether a node writes this condition. All others belong to other controllers, such as readiness gates."""
    return type_ in OWN_CONDITIONS or type_ in PASSING_CONDITIONS or (type_ == DISRUPTION_TARGET and reason == BY_NODE)


class ConditionInputs(msgspec.Struct, frozen=True):
    """The values that conditions are computed from."""

    pod: RunPod
    statuses: tuple[RunContainerStatus, ...]
    phase: str
    generation: int = 0

    def of(self, name: str) -> RunContainerStatus | None:
        return next((status for status in self.statuses if status.name == name), None)

    def condition(self, type_: str, is_true: bool, reason: str = "", message: str = "") -> RunCondition:
        return RunCondition(type_, "True" if is_true else "False", reason, message, observed_generation=self.generation)


def ready_to_start(inputs: ConditionInputs, seen: ObservedPod, *, with_reason: bool) -> RunCondition:
    """The sandbox exists, with its network."""
    message = sandbox_changed(inputs.pod, seen)
    if message and with_reason:
        return inputs.condition(READY_TO_START, False, "PodSandboxNotReady", message)
    return inputs.condition(READY_TO_START, not message)


def initialized(inputs: ConditionInputs) -> RunCondition:
    unknown, incomplete = [], []
    for container in inputs.pod.spec.init_containers:
        status = inputs.of(container.name)
        if status is None:
            unknown.append(container.name)
        elif not (status.started if is_sidecar(container) else status.ready):
            incomplete.append(container.name)
    if inputs.phase == SUCCEEDED and not unknown:
        return inputs.condition(INITIALIZED, True, POD_COMPLETED)
    ordinary = (inputs.of(container.name) for container in inputs.pod.spec.containers)
    if any(each is not None and (each.state.running or each.state.terminated) is not None for each in ordinary):
        # A sidecar that restarts later does not change this.
        return inputs.condition(INITIALIZED, True)
    message = _messages(("unknown", unknown), ("incomplete", incomplete))
    return inputs.condition(INITIALIZED, not message, "ContainersNotInitialized" if message else "", message)


def pod_ready(inputs: ConditionInputs, others: Iterable[RunCondition]) -> RunCondition:
    """All containers are ready, and all readiness gates, which other controllers set."""
    containers = containers_ready(inputs, READY)
    if containers.status != "True":
        return containers
    known = {other.type: other.status for other in others}
    unready = []
    for gate in inputs.pod.spec.readiness_gates:
        status = known.get(gate.condition_type)
        name = quoted(gate.condition_type)
        if status is None:
            unready.append(f"corresponding condition of pod readiness gate {name} does not exist.")
        elif status != "True":
            unready.append(f'the status of pod readiness gate {name} is not "True", but {status}')
    return inputs.condition(READY, False, "ReadinessGatesNotReady", ", ".join(unready)) if unready else containers


def all_restarting(inputs: ConditionInputs, *, is_restarting: bool) -> RunCondition:
    """Of a pod with a rule that restarts all containers (1.36)."""
    reason = {SUCCEEDED: POD_COMPLETED, FAILED: POD_FAILED}.get(inputs.phase, "")
    if reason or not is_restarting:
        return inputs.condition(ALL_RESTARTING, False, reason)
    message = "container exited with restart policy rule"
    return inputs.condition(ALL_RESTARTING, True, "RestartAllContainersStarted", message)


def containers_ready(inputs: ConditionInputs, type_: str = CONTAINERS_READY) -> RunCondition:
    unknown, unready = [], []
    sidecars = (each for each in inputs.pod.spec.init_containers if is_sidecar(each))
    for container in (*sidecars, *inputs.pod.spec.containers):
        status = inputs.of(container.name)
        if status is None:
            unknown.append(container.name)
        elif not status.ready:
            unready.append(container.name)
    if inputs.phase == FAILED:
        return inputs.condition(type_, False, POD_FAILED)
    if inputs.phase == SUCCEEDED and not unknown:
        return inputs.condition(type_, False, POD_COMPLETED)
    message = _messages(("unknown", unknown), ("unready", unready))
    return inputs.condition(type_, not message, "ContainersNotReady" if message else "", message)


def _messages(*lists: tuple[str, list[str]]) -> str:
    return ", ".join(f"containers with {what} status: [{' '.join(names)}]" for what, names in lists if names)
