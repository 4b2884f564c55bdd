"""The forecast of a resize before it is requested: the API's answer, the node's verdict, and what would help.

    old, new ──resize_errors──▶ refused by the API (with the nearest request that would not be)
             ──phase, node────▶ ended: no node judges it │ unscheduled: the scheduler sees the new size
             ──resize_verdict─▶ accepted │ Deferred (the pods to remove) │ Infeasible (the largest request that fits)
             ──policies, usage─▶ restarts, unsafe shrinks

The caller passes the node, its other pods and, if known, the working sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import LISTS, PodVersion
from plimsoll.rules.admission.resize import capacity_verdict, resize_errors, spec_changed
from plimsoll.rules.admission.update import plain_patch_errors
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import (
    CPU,
    NO_RESOURCES,
    Container,
    Node,
    Pod,
    is_mirror,
    listed,
)
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import ZERO, Quantity, from_units
from plimsoll.rules.resize.allocation import Allocation, all_containers, allocation_of, with_pod_limits
from plimsoll.rules.resize.headroom import LargestRequest, PodRemoval, leaving, most_that_fits, short_of, with_request
from plimsoll.rules.resize.nearest_request import is_change, nearest_requests
from plimsoll.rules.resize.steps import pending_actuation, tightened_memory
from plimsoll.rules.resize.verdict import ResizeSetting, ResizeVerdict, resize_verdict
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.resources.qos import BEST_EFFORT, GUARANTEED, qos_class
from plimsoll.rules.scheduling.fit import is_terminal

Outcome = Literal["unchanged", "accepted", "deferred", "infeasible", "refused", "ended", "unscheduled", "unknown"]

STATIC_CPUS = "guaranteed_pod_cpu_manager_static_policy"
_RECREATE = "recreate the pod with the new amounts"
# An infeasible verdict's label → what to do about it.
_HINTS = {
    "feature_gate_off": f"in-place resize is disabled on the node: {_RECREATE}",
    "static_pod": "change its manifest on the node",
    "swap_limitation": f"the memory request determines the swap limit: change only the memory limit, or {_RECREATE}",
    STATIC_CPUS: f"the CPU manager does not change the CPUs of a Guaranteed pod: {_RECREATE}",
    "guaranteed_pod_memory_manager_static_policy": (
        f"the memory manager does not change the memory of a Guaranteed pod: {_RECREATE}"
    ),
}


class Api(msgspec.Struct, frozen=True):
    """How the API server accepts a resize. Without the subresource, or with InPlacePodVerticalScaling disabled, it is a
    plain PATCH of the pod."""

    gates: Gates = DEFAULT_GATES
    subresource: bool = True
    in_place: bool = True

    def errors(self, old: PodVersion, new: PodVersion, profile: Profile) -> list[FieldError]:
        if self.subresource and self.in_place:
            return resize_errors(old, new, self.gates, profile)
        return plain_patch_errors(old, new, profile, gate=self.in_place, gates=self.gates)


ANY_API = Api()


class UnsafeShrink(msgspec.Struct, frozen=True):
    container: str  # "" for the pod-level limit
    limit: Quantity
    used: Quantity


class Forecast(msgspec.Struct, frozen=True):
    outcome: Outcome
    message: str = ""  # of the verdict
    hint: str = ""  # what the user can do
    errors: tuple[FieldError, ...] = ()  # of the API
    nearest: Pod | None = None  # a request that the API would accept
    restarts: tuple[str, ...] = ()
    unsafe: tuple[UnsafeShrink, ...] = ()
    victims: tuple[str, ...] = ()  # pods that the node preempts for a critical pod
    short: Mapping[str, Quantity] = {}  # resource → how much the node lacks now
    leaving: PodRemoval | None = None
    most: tuple[LargestRequest, ...] = ()


def forecast(
    old: PodVersion,
    new: PodVersion,
    setting: ResizeSetting,
    *,
    working_sets: Mapping[str, int] | None = None,
    api: Api = ANY_API,
) -> Forecast:
    """Of a pod on the node of `setting`. `working_sets`: container → bytes."""
    refused = _refused(old, new, setting.profile, api, setting)
    if refused is not None:
        return refused
    # An earlier resize may still be pending: the node compares with what it has allocated.
    allocated = allocated_from_status(old.pod)
    allocation = allocation_of(allocated, setting.gates)
    refusal = _too_large(old, new, setting)
    if refusal is not None:
        return Forecast("refused", refusal, most=_most(old, new, allocation, setting, api))
    if is_terminal(old.pod) or old.pod.metadata.deletion_timestamp is not None:
        return _of_ended(old, new)
    verdict = resize_verdict(new.pod, allocation, setting)
    if verdict.decision == "NoChange":
        if not spec_changed(old.document, new.document):
            return Forecast("unchanged")
        return Forecast("accepted", hint="the node has these amounts already: the pending resize is withdrawn")
    result = _judged(old, new, allocation, verdict, setting, api)
    if result.outcome == "infeasible":
        return result
    pending = pending_actuation(new.pod, allocation, _running(old.pod), setting.gates)
    restarts = tuple(container.name for container in pending.restarts)
    used = {name: amount for name, amount in (working_sets or {}).items() if name not in restarts}
    unsafe = tuple(_unsafe(allocated, new.pod, pending.in_place, used))
    return msgspec.structs.replace(result, restarts=restarts, unsafe=unsafe)


def forecast_without_node(
    old: PodVersion,
    new: PodVersion,
    profile: Profile,
    *,
    api: Api = ANY_API,
    bound: bool = False,
    missing: bool = False,
) -> Forecast:
    """Only the API server's answer is known: the pod is not scheduled yet, or its node does not report (`bound`), or
    its node does not exist (`missing`)."""
    refused = _refused(old, new, profile, api)
    if refused is not None:
        return refused
    refusal = _not_admitted(old, new, profile, None) if missing else None
    if refusal is not None:
        return Forecast("refused", refusal)
    if is_terminal(old.pod) or old.pod.metadata.deletion_timestamp is not None:
        return _of_ended(old, new)
    if not spec_changed(old.document, new.document):
        return Forecast("unchanged")
    return Forecast("unknown" if bound else "unscheduled")


# --- the API server ---


def _refused(
    old: PodVersion, new: PodVersion, profile: Profile, api: Api, setting: ResizeSetting | None = None
) -> Forecast | None:
    """By validation, with the nearest request that is accepted and, if `setting` is known, not too large."""
    errors = api.errors(old, new, profile)
    if not errors:
        return None
    requests = nearest_requests(old, new, lambda before, after: api.errors(before, after, profile), gates=api.gates)
    accepted = (
        pod if setting is None else _within_node(old, PodVersion(new.document, pod), setting, api) for pod in requests
    )
    nearest = next((pod for pod in accepted if pod is not None), None)
    hint = "" if nearest is not None else _why_none(old.pod, new.pod, profile, api, errors)
    return Forecast("refused", str(errors[0]), hint, tuple(errors), nearest)


def _within_node(old: PodVersion, new: PodVersion, setting: ResizeSetting, api: Api) -> Pod | None:
    """The request, reduced to the node's size if it is too large; None if that is not enough."""
    pod = new.pod
    if _too_large(old, new, setting) is None:
        return pod
    allocation = allocation_of(allocated_from_status(old.pod), setting.gates)
    for largest in _most(old, new, allocation, setting, api):
        if largest.ever is None:
            return None
        pod = with_request(pod, largest.container, largest.resource, largest.ever)
    reduced = PodVersion(new.document, pod)
    is_refused = api.errors(old, reduced, setting.profile) or _too_large(old, reduced, setting)
    return pod if is_change(old.pod, pod) and not is_refused else None


def _why_none(old: Pod, new: Pod, profile: Profile, api: Api, errors: Sequence[FieldError]) -> str:
    """The reason if no other amounts would be accepted either."""
    if is_mirror(old):
        return _HINTS["static_pod"]
    if not api.in_place or not (api.subresource or profile.resize_by_plain_patch):
        return f"this API server does not change the resources of a running pod: {_RECREATE}"
    if qos_class(old, gates=api.gates) == BEST_EFFORT:
        return f"any request or limit would change the QoS class of a BestEffort pod; {_RECREATE}"
    if any(error.field.startswith("spec.resources") for error in errors):
        return "the pod-level resources (spec.resources) leave no more for its containers: raise them first"
    amounts = [container.resources for container in all_containers(new.spec)]
    zeros = any(amount == ZERO for own in amounts for kind in LISTS for amount in listed(own, kind).values())
    if zeros and qos_class(old, gates=api.gates) == GUARANTEED:
        return "0 means no limit, and in a Guaranteed pod every container has limits: request more than 0"
    return ""


def _too_large(old: PodVersion, new: PodVersion, setting: ResizeSetting) -> str | None:
    return _not_admitted(old, new, setting.profile, setting.load.node)


def _not_admitted(old: PodVersion, new: PodVersion, profile: Profile, node: Node | None) -> str | None:
    refusal = capacity_verdict(old, new, node) if profile.too_large_refused_by_api else None
    return None if refusal is None else refusal.message


def _of_ended(old: PodVersion, new: PodVersion) -> Forecast:
    if not spec_changed(old.document, new.document):
        return Forecast("unchanged")
    phase = old.pod.status.phase
    return Forecast("ended", f"its phase is {phase}" if is_terminal(old.pod) else "it is being deleted")


# --- the node ---


def _judged(
    old: PodVersion, new: PodVersion, allocation: Allocation, verdict: ResizeVerdict, setting: ResizeSetting, api: Api
) -> Forecast:
    pod = new.pod
    if verdict.decision == "Accepted":
        victims = tuple(f"{victim.metadata.namespace}/{victim.metadata.name}" for victim in verdict.victims)
        return Forecast("accepted", victims=victims)
    if verdict.decision == "Infeasible" and verdict.label in _HINTS:
        whole = _next_whole(pod, allocation, setting) if verdict.label == STATIC_CPUS else ""
        return Forecast("infeasible", verdict.message, whole or _HINTS[verdict.label])
    return Forecast(
        "deferred" if verdict.decision == "Deferred" else "infeasible",
        verdict.message,
        short=short_of(pod, setting),
        leaving=leaving(pod, allocation, setting) if verdict.decision == "Deferred" else None,
        most=_most(old, new, allocation, setting, api),
    )


def _most(
    old: PodVersion, new: PodVersion, allocation: Allocation, setting: ResizeSetting, api: Api
) -> tuple[LargestRequest, ...]:
    """For the resources that are short."""

    def api_errors(pod: Pod) -> Sequence[FieldError]:
        return api.errors(old, PodVersion(new.document, pod), setting.profile)

    return most_that_fits(new.pod, allocation, setting, tuple(short_of(new.pod, setting)), api_errors)


def _next_whole(new: Pod, allocation: Allocation, setting: ResizeSetting) -> str:
    """If fractions were requested under the static policy: the next whole CPUs up, or down if these are too many."""
    parts = {
        container.name: request.milli
        for container in all_containers(new.spec)
        if (request := listed(container.resources, "requests").get(CPU)) is not None and request.milli % 1000
    }
    for more in (1, 0):
        whole = {name: from_units(milli // 1000 + more) for name, milli in parts.items()}
        rounded = new
        for name, amount in whole.items():
            rounded = with_request(rounded, name, CPU, amount)
        verdict = resize_verdict(rounded, allocation, setting)
        if whole and all(whole.values()) and verdict.decision in ("Accepted", "Deferred"):
            wholes = ", ".join(f"{amount} (container {name})" for name, amount in whole.items())
            return f"this node allocates only whole CPUs: request {wholes}"
    return ""


# --- what it means for the containers ---


def _running(pod: Pod) -> set[str]:
    """Its containers, without those that do not run according to the status: these are not updated."""
    status = pod.status
    stopped = {
        each.name
        for each in (*status.init_container_statuses, *status.container_statuses)
        if each.state is not None and each.state.running is None
    }
    return {container.name for container in all_containers(pod.spec)} - stopped


def _unsafe(allocated: Pod, new: Pod, in_place: Sequence[Container], used: Mapping[str, int]) -> Iterable[UnsafeShrink]:
    """New or lower limits that are not above the current usage; a container that restarts begins with none."""
    level, new_level = allocated.spec.resources, new.spec.resources
    before = {each.name: with_pod_limits(each.resources, level) for each in all_containers(allocated.spec)}
    for container in in_place:
        limit = tightened_memory(before[container.name], with_pod_limits(container.resources, new_level))
        if limit and used.get(container.name, 0) >= limit:
            yield _shrink(container.name, limit, used[container.name])
    limit = tightened_memory(level or NO_RESOURCES, new_level or NO_RESOURCES)
    if limit and sum(used.values()) >= limit:
        yield _shrink("", limit, sum(used.values()))


def _shrink(container: str, limit_bytes: int, used_bytes: int) -> UnsafeShrink:
    return UnsafeShrink(container, from_units(limit_bytes, "BinarySI"), from_units(used_bytes, "BinarySI"))
