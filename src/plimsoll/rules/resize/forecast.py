"""What will come of a resize, said before it is asked for: the API's answer, the node's verdict, and what would help.

    old, new ──resize_errors──▶ refused by the API (with the nearest request that would not be)
             ──phase, node────▶ ended: no node judges it │ unscheduled: the scheduler sees the new size
             ──resize_verdict─▶ accepted │ Deferred (who or how much must go) │ Infeasible (the most that would fit)
             ──policies, usage─▶ restarts, unsafe shrinks

Nothing here asks anybody: the caller brings the node, its other pods and, where it has them, the working sets.
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
    MEMORY,
    NO_RESOURCES,
    Container,
    Node,
    Pod,
    ResourceList,
    Resources,
    is_mirror,
)
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import ZERO, Quantity, from_units
from plimsoll.rules.resize.allocation import Allocation, all_containers, allocation_of
from plimsoll.rules.resize.headroom import Leaving, Most, leaving, most_that_fits, short_of, with_request
from plimsoll.rules.resize.nearest_request import is_change, near_wishes
from plimsoll.rules.resize.steps import pending_actuation, tightened_memory
from plimsoll.rules.resize.verdict import ResizeSetting, ResizeVerdict, resize_verdict
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.resources.qos import BEST_EFFORT, GUARANTEED, qos_class
from plimsoll.rules.scheduling.fit import is_terminal

Outcome = Literal["unchanged", "accepted", "deferred", "infeasible", "refused", "ended", "unscheduled", "unknown"]
RESIZED = (CPU, MEMORY)

STATIC_CPUS = "guaranteed_pod_cpu_manager_static_policy"
_ANEW = "make the pod anew with the new amounts"
# An infeasible verdict's label → what to do about it.
_HINTS = {
    "feature_gate_off": f"the node changes nothing in place: {_ANEW}",
    "static_pod": "its manifest on the node is what to change",
    "swap_limitation": f"a memory request decides how much may be swapped: change the limit alone, or {_ANEW}",
    STATIC_CPUS: f"the CPUs of a Guaranteed pod are fixed there: {_ANEW}",
    "guaranteed_pod_memory_manager_static_policy": f"the memory of a Guaranteed pod is fixed there: {_ANEW}",
}


class Api(msgspec.Struct, frozen=True):
    """How the server takes a resize. Without the subresource, or with InPlacePodVerticalScaling off, a plain PATCH is
    what there is."""

    gates: Gates = DEFAULT_GATES
    subresource: bool = True
    in_place: bool = True

    def errors(self, old: PodVersion, new: PodVersion, profile: Profile) -> list[FieldError]:
        if self.subresource and self.in_place:
            return resize_errors(old, new, self.gates, profile)
        return plain_patch_errors(old, new, profile, gate=self.in_place, gates=self.gates)


ANY_API = Api()


class UnsafeShrink(msgspec.Struct, frozen=True):
    container: str  # "" for the pod's own limit
    limit: Quantity
    used: Quantity


class Forecast(msgspec.Struct, frozen=True):
    outcome: Outcome
    message: str = ""  # the verdict's own words
    hint: str = ""  # what to do about it, where there is something
    errors: tuple[FieldError, ...] = ()  # of the API
    nearest: Pod | None = None  # a request that the API would take
    restarts: tuple[str, ...] = ()
    unsafe: tuple[UnsafeShrink, ...] = ()
    victims: tuple[str, ...] = ()  # pods that the node ends for a critical one
    short: Mapping[str, Quantity] = {}  # resource → how much the node lacks now
    leaving: Leaving | None = None
    most: tuple[Most, ...] = ()


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
    held = allocated_from_status(
        old.pod
    )  # an earlier wish may still be pending: the node compares with what it has allocated
    allocation = allocation_of(held, setting.gates)
    refusal = _too_large(old, new, setting)
    if refusal is not None:
        return Forecast("refused", refusal, most=_most_of_short(old, new, allocation, setting, api))
    if is_terminal(old.pod) or old.pod.metadata.deletion_timestamp is not None:
        return _of_ended(old, new)
    verdict = resize_verdict(new.pod, allocation, setting)
    if verdict.decision == "NoChange":
        if not spec_changed(old.document, new.document):
            return Forecast("unchanged")
        return Forecast("accepted", hint="the node has these amounts already: what was pending is taken back")
    found = _judged(old, new, allocation, verdict, setting, api)
    if found.outcome == "infeasible":
        return found
    left = pending_actuation(new.pod, allocation, _running(old.pod), setting.gates)
    restarts = tuple(each.name for each in left.restarts)
    used = {name: amount for name, amount in (working_sets or {}).items() if name not in restarts}
    unsafe = tuple(_unsafe(held, new.pod, left.in_place, used))
    return msgspec.structs.replace(found, restarts=restarts, unsafe=unsafe)


def forecast_without_node(
    old: PodVersion,
    new: PodVersion,
    profile: Profile,
    *,
    api: Api = ANY_API,
    bound: bool = False,
    missing: bool = False,
) -> Forecast:
    """What the API server says is all that can be told: the pod is on no node yet, or (`bound`) nobody tells of it, or
    (`missing`) there is no such node."""
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
    """By validation; what is near may have to be bent once more."""
    errors = api.errors(old, new, profile)
    if not errors:
        return None
    near = near_wishes(old, new, lambda before, after: api.errors(before, after, profile), gates=api.gates)
    taken = (pod if setting is None else _within_node(old, PodVersion(new.document, pod), setting, api) for pod in near)
    found = next((pod for pod in taken if pod is not None), None)
    hint = "" if found is not None else _why_nothing(old.pod, new.pod, profile, api, errors)
    return Forecast("refused", str(errors[0]), hint, tuple(errors), found)


def _within_node(old: PodVersion, new: PodVersion, setting: ResizeSetting, api: Api) -> Pod | None:
    """The wish, where it is refused for being too large no larger than the node; None where that is not enough."""
    pod = new.pod
    if _too_large(old, new, setting) is None:
        return pod
    for each in _most_of_short(old, new, allocation_of(allocated_from_status(old.pod), setting.gates), setting, api):
        if each.ever is None:
            return None
        pod = with_request(pod, each.container, each.resource, each.ever)
    wish = PodVersion(new.document, pod)
    is_refused = api.errors(old, wish, setting.profile) or _too_large(old, wish, setting)
    return pod if is_change(old.pod, pod) and not is_refused else None


def _why_nothing(old: Pod, new: Pod, profile: Profile, api: Api, errors: Sequence[FieldError]) -> str:
    """Why no other amounts would be taken either, where that is so."""
    if is_mirror(old):
        return _HINTS["static_pod"]
    if not api.in_place or not (api.subresource or profile.resize_by_plain_patch):
        return f"this API server lets no amounts of a running pod change: {_ANEW}"
    if qos_class(old, gates=api.gates) == BEST_EFFORT:
        return f"nothing else would be taken: any amount changes the class of a BestEffort pod; {_ANEW}"
    if any(each.field.startswith("spec.resources") for each in errors):
        return "the pod's own amounts (spec.resources) leave its containers no more than they have: raise these first"
    amounts = [each.resources for each in all_containers(new.spec)]
    zeros = any(amount == ZERO for each in amounts for kind in LISTS for amount in _list(each, kind).values())
    if zeros and qos_class(old, gates=api.gates) == GUARANTEED:
        return "0 counts as no amount, and in a Guaranteed pod every container has limits: ask for more than 0"
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
        victims = tuple(f"{each.metadata.namespace}/{each.metadata.name}" for each in verdict.victims)
        return Forecast("accepted", victims=victims)
    if verdict.decision == "Infeasible" and verdict.label in _HINTS:
        whole = _next_whole(pod, allocation, setting) if verdict.label == STATIC_CPUS else ""
        return Forecast("infeasible", verdict.message, whole or _HINTS[verdict.label])
    short = short_of(pod, setting)
    return Forecast(
        "deferred" if verdict.decision == "Deferred" else "infeasible",
        verdict.message,
        short=short,
        leaving=leaving(pod, allocation, setting) if verdict.decision == "Deferred" else None,
        most=_most(old, new, allocation, setting, api, tuple(short)),
    )


def _most(
    old: PodVersion, new: PodVersion, allocation: Allocation, setting: ResizeSetting, api: Api, short: Sequence[str]
) -> tuple[Most, ...]:
    def api_errors(pod: Pod) -> Sequence[FieldError]:
        return api.errors(old, PodVersion(new.document, pod), setting.profile)

    return most_that_fits(new.pod, allocation, setting, short, api_errors)


def _most_of_short(
    old: PodVersion, new: PodVersion, allocation: Allocation, setting: ResizeSetting, api: Api
) -> tuple[Most, ...]:
    short = short_of(new.pod, setting)
    return _most(old, new, allocation, setting, api, tuple(name for name in RESIZED if name in short))


def _next_whole(new: Pod, allocation: Allocation, setting: ResizeSetting) -> str:
    """Where the static policy wants whole CPUs and others were asked for: the next ones up, or down if these are too
    many."""
    parts = {
        each.name: request.milli
        for each in all_containers(new.spec)
        if (request := _list(each.resources, "requests").get(CPU)) is not None and request.milli % 1000
    }
    for more in (1, 0):
        whole = {name: from_units(milli // 1000 + more) for name, milli in parts.items()}
        wish = new
        for name, amount in whole.items():
            wish = with_request(wish, name, CPU, amount)
        verdict = resize_verdict(wish, allocation, setting)
        if whole and all(whole.values()) and verdict.decision in ("Accepted", "Deferred"):
            listed = ", ".join(f"{amount} (container {name})" for name, amount in whole.items())
            return f"only whole CPUs are given here: ask for {listed}"
    return ""


# --- what it means for the containers ---


def _running(pod: Pod) -> set[str]:
    """Its containers, without those of which the status says otherwise: what does not run has nothing handed to it."""
    status = pod.status
    still = {
        each.name
        for each in (*status.init_container_statuses, *status.container_statuses)
        if each.state is not None and each.state.running is None
    }
    return {each.name for each in all_containers(pod.spec)} - still


def _unsafe(held: Pod, new: Pod, in_place: Sequence[Container], used: Mapping[str, int]) -> Iterable[UnsafeShrink]:
    """Limits that are new or lower, and not above what is in use now; what starts anew starts empty."""
    before = {each.name: each.resources for each in all_containers(held.spec)}
    for container in in_place:
        limit = tightened_memory(before[container.name], container.resources)
        if limit and used.get(container.name, 0) >= limit:
            yield _shrink(container.name, limit, used[container.name])
    limit = tightened_memory(held.spec.resources or NO_RESOURCES, new.spec.resources or NO_RESOURCES)
    if limit and sum(used.values()) >= limit:
        yield _shrink("", limit, sum(used.values()))


def _shrink(container: str, limit_bytes: int, used_bytes: int) -> UnsafeShrink:
    return UnsafeShrink(container, from_units(limit_bytes, "BinarySI"), from_units(used_bytes, "BinarySI"))


def _list(resources: Resources, kind: str) -> ResourceList:
    return (resources.requests if kind == "requests" else resources.limits) or {}
