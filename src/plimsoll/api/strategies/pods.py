"""Pods: what create fills into the status, which updates pass, what /status and /resize take (01 §3–4, 03 §4, 05 B6).

Every rule is in `rules/`; this module converts documents to the views (`PodVersion`) that the rules need.
"""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext, forbidden, immutable, invalid, with_old
from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.errors import FieldError
from plimsoll.rules.admission.addresses import is_ip
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.ephemeral_containers import ephemeral_container_errors
from plimsoll.rules.admission.label_keys import with_label_keys_merged
from plimsoll.rules.admission.pod_spec.rules import spec_rules
from plimsoll.rules.admission.pod_spec.spec import create_only_errors, spec_errors
from plimsoll.rules.admission.pod_spec.warnings import name_warnings, pod_warnings
from plimsoll.rules.admission.resize import kept_for_resize, resize_errors, spec_changed
from plimsoll.rules.admission.update import plain_patch_errors, proposed
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.lifecycle.restarts import RESTARTING_ALL, is_restarted, may_restart_all
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Container, Pod
from plimsoll.rules.resources.qos import computed_qos_class

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def version_of(document: JsonObject) -> PodVersion:
    return PodVersion(document, lean_pod(document))


class PodStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        document = with_label_keys_merged(document, context.gates)
        pod = lean_pod(document)
        status: JsonObject = {"phase": "Pending"}
        if (document.get("spec") or {}).get("schedulingGates"):
            status["conditions"] = [_gated()]
        if context.profile.allocated_at_create and context.in_place:
            statuses = _allocated_statuses(document)
            if statuses:
                status["containerStatuses"] = statuses
        status["qosClass"] = computed_qos_class(pod, gates=context.gates)
        return {**document, "status": status}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = create_errors(lean_pod(document), gates=context.gates)
        spec, name = document.get("spec") or {}, document["metadata"].get("name") or ""
        errors += spec_errors(spec, spec_rules(context.profile), pod_name=name)
        return [*errors, *create_only_errors(spec)]

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return plain_patch_errors(
            version_of(old),
            version_of(new),
            context.profile,
            gate=context.in_place,
            gates=context.gates,
        )

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        new = with_old(new, old, "status")
        if context.in_place and context.profile.resize_by_plain_patch:
            return _with_resize_status(old, new, context)
        return new

    def prepared_for_resize(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """Everything but resources is restored (03 §4.1), then the resize is marked Proposed in profile `documents`."""
        kept = kept_for_resize(old, new, context.gates, context.profile)
        if context.gates.fixed_defaulting:
            kept = with_defaults(kept, gates=context.gates).document
        return _with_resize_status(old, kept, context)

    def resize_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return resize_errors(version_of(old), version_of(new), context.gates, context.profile)

    def prepared_for_ephemeral_containers(self, old: JsonObject, new: JsonObject) -> JsonObject:
        """Everything but the ephemeral containers is restored."""
        spec = {**old["spec"], "ephemeralContainers": (new.get("spec") or {}).get("ephemeralContainers")}
        if not spec["ephemeralContainers"]:
            del spec["ephemeralContainers"]
        metadata = {**old["metadata"], "resourceVersion": new["metadata"].get("resourceVersion")}
        return {**old, "metadata": metadata, "spec": spec}

    def ephemeral_container_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return ephemeral_container_errors(version_of(old), version_of(new), context.gates)

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """Status, and with it labels, annotations and finalizers; owners and spec stay."""
        metadata = with_old(new["metadata"], old["metadata"], "ownerReferences")
        status = dict(new.get("status") or {})
        before = old.get("status") or {}
        if not status.get("qosClass") and before.get("qosClass"):
            status["qosClass"] = before["qosClass"]
        return {**old, "metadata": metadata, "status": _with_old_generations(before, _with_addresses(before, status))}

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        before, after = old.get("status") or {}, new.get("status") or {}
        errors: list[FieldError] = []
        qos_class = before.get("qosClass")
        if qos_class and after.get("qosClass") != qos_class:
            errors.append(immutable("status.qosClass", after.get("qosClass") or ""))
        if after.get("nominatedNodeName") and after.get("nominatedNodeName") != before.get("nominatedNodeName"):
            node = (new.get("spec") or {}).get("nodeName")
            if node:
                errors.append(forbidden("status.nominatedNodeName", "cannot be set on a pod that is already bound"))
        for index, entry in enumerate(after.get("podIPs") or []):
            if not is_ip(entry.get("ip") or ""):
                reason = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                errors.append(invalid(f"status.podIPs[{index}]", entry.get("ip") or "", reason))
        errors += _state_errors(before, after, lean_pod(old))
        return errors

    def warnings(self, document: JsonObject) -> list[str]:
        named = name_warnings(document["metadata"]["name"], "the Pod's hostname")
        return [*named, *pod_warnings(document), *_without_effect(document.get("spec") or {})]

    def spec_differs(self, old: JsonObject, new: JsonObject) -> bool:
        return spec_changed(old, new)


def _gated() -> JsonObject:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": None,
        "reason": "SchedulingGated",
        "message": GATED_MESSAGE,
    }


def _allocated_statuses(document: JsonObject) -> list[JsonObject]:
    """Document 003, T=1: requests count as allocated until the node reports otherwise."""
    statuses = []
    for container in document.get("spec", {}).get("containers") or []:
        requests = (container.get("resources") or {}).get("requests")
        if requests:
            statuses.append(
                {
                    "name": container.get("name", ""),
                    "image": container.get("image", ""),
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"waiting": {}},
                    "lastState": {},
                    "allocatedResources": dict(requests),
                }
            )
    return statuses


def _with_resize_status(old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
    """`status.resize: Proposed` in the same write as the change (03 §4.3); a pod without a node gets its allocated
    resources as at creation."""
    if not context.profile.resize_status_field:
        return new
    pod = lean_pod(new)
    if not pod.spec.node_name and context.profile.allocated_at_create:
        return _with_allocated_statuses(new)
    if not proposed(lean_pod(old), pod):
        return new
    return {**new, "status": {**(new.get("status") or {}), "resize": "Proposed"}}


def _with_allocated_statuses(document: JsonObject) -> JsonObject:
    status = document.get("status") or {}
    statuses = _allocated_statuses(document)
    if (status.get("containerStatuses") or []) == statuses:
        return document
    return {**document, "status": {**status, "containerStatuses": statuses}}


def _with_old_generations(before: JsonObject, status: JsonObject) -> JsonObject:
    """A client that does not know observedGeneration does not remove it."""
    conditions = before.get("conditions") or []
    known = [each for each in conditions if each.get("observedGeneration")]
    if not known and not before.get("observedGeneration"):
        return status
    old: dict[str, list[int]] = {}
    for each in conditions:
        old.setdefault(each.get("type") or "", []).append(each.get("observedGeneration") or 0)
    found = dict(status)
    if not found.get("observedGeneration") and before.get("observedGeneration"):
        found["observedGeneration"] = before["observedGeneration"]
    kept = []
    for each in status.get("conditions") or []:
        generations = old.get(each.get("type") or "")
        generation = generations.pop(0) if generations else 0
        has_none = generation and not each.get("observedGeneration")
        kept.append({**each, "observedGeneration": generation} if has_none else each)
    if kept:
        found["conditions"] = kept
    return found


def _with_addresses(before: JsonObject, status: JsonObject) -> JsonObject:
    """podIPs[0] follows podIP, whichever of the two was changed."""
    ip, ips = status.get("podIP"), status.get("podIPs") or []
    first = ips[0].get("ip") if ips else None
    if ip == first:
        return status
    if ip and (ip != before.get("podIP") or not first):
        return {**status, "podIPs": [{"ip": ip}]}
    if first:
        return {**status, "podIP": first}
    return status


def _state_errors(before: JsonObject, after: JsonObject, pod: Pod) -> list[FieldError]:
    """A container that has terminated and will not restart stays terminated."""
    known = {status.get("name"): status for status in before.get("containerStatuses") or []}
    containers = {container.name: container for container in pod.spec.containers}
    errors = []
    for index, status in enumerate(after.get("containerStatuses") or []):
        name = status.get("name")
        was = ((known.get(name) or {}).get("state") or {}).get("terminated")
        if was is None or (status.get("state") or {}).get("terminated") is not None:
            continue
        code = int(was.get("exitCode") or 0)
        if was.get("reason") == RESTARTING_ALL or may_restart_all(pod):
            continue
        if not is_restarted(containers.get(name, Container()), pod.spec.restart_policy or "", code):
            path = f"status.containerStatuses[{index}].state"
            errors.append(forbidden(path, "may not be transitioned to non-terminated state"))
    return errors


def _without_effect(spec: JsonObject) -> list[str]:
    """What this cluster accepts and does not do."""
    warnings = []
    if spec.get("schedulingGroup"):
        warnings.append("spec.schedulingGroup: no effect: each pod is scheduled by itself")
    if not spec.get("hostNetwork"):
        warnings += (
            f"spec.{kind}[{index}].ports[{place}].hostPort: no effect without hostNetwork on nodes with the "
            "embedded runtime; others leave it to their CNI plugins (portmap); the scheduler keeps the port free"
            for kind in ("initContainers", "containers")
            for index, container in enumerate(spec.get(kind) or ())
            for place, port in enumerate(container.get("ports") or ())
            if port.get("hostPort")
        )
    return warnings
