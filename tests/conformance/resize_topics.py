"""Translations for topics j: the API's verdict on a resize, and the node's."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError, InvalidObjectError
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import capacity_verdict, kept_for_resize, resize_errors, spec_changed
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Container, Node, Pod, Resources
from plimsoll.rules.profile import Profile, minor
from plimsoll.rules.resize.allocation import all_containers, allocated_pod, allocation_of
from plimsoll.rules.resize.verdict import ResizeSetting, resize_verdict
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.scheduling.fit import allocated_load
from tests.conformance.topics import gates_of

Json = dict[str, Any]
POD_GENERATION_SINCE = 33  # before, pods have none, so that the vectors show no change of it


def resize_api(given: Json, profile: Profile) -> Json:
    gates = gates_of(given, profile)
    try:
        old = with_defaults(given["oldPod"], gates=gates)
        sent = with_defaults(given["newPod"], gates=gates)
    except InvalidObjectError as error:
        return {"decodeError": error.errors[0].detail}
    document = kept_for_resize(old.document, sent.document, gates, profile)
    if gates.fixed_defaulting:
        document = with_defaults(document, gates=gates).document
    kept = PodVersion(document, from_document(document, Pod))
    found = {
        "errorsDirect": _errors(resize_errors(old, sent, gates, profile)),
        "errors": _errors(resize_errors(old, kept, gates, profile)),
        "specChanged": spec_changed(old.document, document) and minor(profile.release) >= POD_GENERATION_SINCE,
    }
    if profile.too_large_refused_by_api:
        refusal = capacity_verdict(old, kept, from_document(given["node"], Node))
        found["admission"] = refusal and {"reason": refusal.reason, "message": refusal.message}
    return found


def _errors(errors: list[FieldError]) -> list[Json]:
    return [{"type": error.type, "field": error.field, "detail": error.detail} for error in errors]


def resize_kubelet(given: Json, profile: Profile) -> Json:
    gates = gates_of(given, profile)
    swap = given.get("containerSwapBehavior") or {}

    def may_swap(_: Pod, container: Container) -> bool:
        return bool(swap.get(container.name, "NoSwap") != "NoSwap")

    setting = ResizeSetting(
        allocated_load(from_document(given["node"], Node), [_pod(each, gates) for each in given["otherPods"]]),
        profile,
        gates,
        given["cpuManagerPolicy"] == "static",
        given["memoryManagerPolicy"] == "Static",
        may_swap=may_swap,
        cgroup_version=given.get("cgroupVersion", 2),
    )
    desired = _pod(given["desiredPod"], gates)
    verdict = resize_verdict(desired, allocation_of(_pod(given["allocatedPod"], gates), gates), setting)
    after = allocated_pod(desired, verdict.allocation)
    found: Json = {
        "decision": verdict.decision,
        "stillPending": verdict.still_pending,
        "allocated": [{"name": c.name, "resources": _lists(c.resources)} for c in all_containers(after.spec)],
    }
    if "cgroupVersion" in given:
        found["allocatedVolumes"] = {
            each.name: str(each.empty_dir.size_limit)
            for each in after.spec.volumes
            if each.empty_dir is not None and each.empty_dir.size_limit is not None
        }
    if verdict.message:
        found["message"] = verdict.message
    if verdict.decision == "Accepted":
        found["inProgress"] = True
    if verdict.victims:
        found["preempted"] = sorted(pod.metadata.name for pod in verdict.victims)
    return found


def _pod(document: Json, gates: Gates) -> Pod:
    """The node's own defaults: since PodLevelResourcesFixDefaulting the pod level is the API server's."""
    if gates.fixed_defaulting:
        gates = msgspec.structs.replace(gates, pod_level=False)
    return defaulted(from_document(document, Pod), gates=gates)


def _lists(resources: Resources) -> Json:
    pairs = (("limits", resources.limits), ("requests", resources.requests))
    return {key: {name: str(quantity) for name, quantity in value.items()} for key, value in pairs if value}
