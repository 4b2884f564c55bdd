"""Translations for topics j: the API's verdict on a resize, and the node's."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError, InvalidObjectError
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import capacity_verdict, kept_for_resize, resize_errors, spec_changed
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Container, Node, Pod, Resources
from plimsoll.rules.profile import PROFILE_1_36
from plimsoll.rules.resize.allocation import all_containers, allocated_pod, allocation_of
from plimsoll.rules.resize.verdict import ResizeSetting, resize_verdict
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.scheduling.fit import allocated_load

Json = dict[str, Any]


def resize_api(given: Json) -> Json:
    gates = _api_gates(given)
    try:
        old = with_defaults(given["oldPod"], gates=gates)
        sent = with_defaults(given["newPod"], gates=gates)
    except InvalidObjectError as error:
        return {"decodeError": error.errors[0].detail}
    document = kept_for_resize(old.document, sent.document, gates)
    kept = PodVersion(document, from_document(document, Pod))
    refusal = capacity_verdict(old, kept, from_document(given["node"], Node))
    return {
        "errorsDirect": _errors(resize_errors(old, sent, gates, PROFILE_1_36)),
        "errors": _errors(resize_errors(old, kept, gates, PROFILE_1_36)),
        "specChanged": spec_changed(old.document, document),
        "admission": refusal and {"reason": refusal.reason, "message": refusal.message},
    }


def _api_gates(given: Json) -> Gates:
    gates = given["featureGates"]
    return Gates(
        pod_level=gates.get("PodLevelResources", True),
        pod_level_resize=gates.get("InPlacePodLevelResourcesVerticalScaling", True),
        init_containers=gates.get("InPlacePodVerticalScalingInitContainers", True),
    )


def _errors(errors: list[FieldError]) -> list[Json]:
    return [{"type": error.type, "field": error.field, "detail": error.detail} for error in errors]


def resize_kubelet(given: Json) -> Json:
    gates = _node_gates(given)
    swap = given.get("containerSwapBehavior") or {}

    def may_swap(_: Pod, container: Container) -> bool:
        return bool(swap.get(container.name, "NoSwap") != "NoSwap")

    setting = ResizeSetting(
        allocated_load(from_document(given["node"], Node), map(_pod, given["otherPods"])),
        PROFILE_1_36,
        gates,
        given["cpuManagerPolicy"] == "static",
        given["memoryManagerPolicy"] == "Static",
        may_swap=may_swap,
    )
    desired = _pod(given["desiredPod"])
    verdict = resize_verdict(desired, allocation_of(_pod(given["allocatedPod"]), gates), setting)
    after = allocated_pod(desired, verdict.allocation)
    found: Json = {
        "decision": verdict.decision,
        "stillPending": verdict.still_pending,
        "allocated": [{"name": c.name, "resources": _lists(c.resources)} for c in all_containers(after.spec)],
    }
    if verdict.message:
        found["message"] = verdict.message
    if verdict.decision == "Accepted":
        found["inProgress"] = True
    if verdict.victims:
        found["preempted"] = sorted(pod.metadata.name for pod in verdict.victims)
    return found


def _pod(document: Json) -> Pod:
    return defaulted(from_document(document, Pod))


def _node_gates(given: Json) -> Gates:
    gates = given["featureGates"]
    return Gates(
        pod_level_resize=gates.get("InPlacePodLevelResourcesVerticalScaling", True),
        init_containers=gates.get("InPlacePodVerticalScalingInitContainers", True),
        exclusive_cpus=gates.get("InPlacePodVerticalScalingExclusiveCPUs", False),
        exclusive_memory=gates.get("InPlacePodVerticalScalingExclusiveMemory", False),
    )


def _lists(resources: Resources) -> Json:
    pairs = (("limits", resources.limits), ("requests", resources.requests))
    return {key: {name: str(quantity) for name, quantity in value.items()} for key, value in pairs if value}
