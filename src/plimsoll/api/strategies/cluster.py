"""Namespaces, nodes, leases, config maps and events: small kinds with a rule or two each (05 B6, B8, B9)."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from plimsoll.api.machinery.versions import completed
from plimsoll.api.strategies.base import Strategy, WriteContext, forbidden, invalid, required, unsupported, without
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import (
    config_map_key_problems,
    decoded_bytes,
    label_value_problems,
    qualified_name_problems,
    size_bytes,
)

MAX_CONFIG_MAP_BYTES = 1024 * 1024
MAX_NOTE = 1024

_NAME_LABEL = "kubernetes.io/metadata.name"
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_OWNERS = 20  # that disable preemption for resizes


class NamespaceStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        spec = dict(document.get("spec") or {})
        finalizers = list(spec.get("finalizers") or [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        return {**_labelled(document), "spec": {**spec, "finalizers": finalizers}, "status": {"phase": "Active"}}

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """spec.finalizers have their own subresource."""
        prepared = super().prepared_for_update(old, new, context)
        spec = {**(prepared.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers") or []}
        return {**_labelled(prepared), "spec": spec}

    def prepared_for_finalize(self, old: JsonObject, new: JsonObject) -> JsonObject:
        finalizers = (new.get("spec") or {}).get("finalizers") or []
        spec = {**(old.get("spec") or {}), "finalizers": finalizers}
        return {**old, "spec": spec if finalizers else without(spec, "finalizers")}


def _labelled(document: JsonObject) -> JsonObject:
    metadata = document["metadata"]
    labels = {**(metadata.get("labels") or {}), _NAME_LABEL: metadata["name"]}
    return {**document, "metadata": {**metadata, "labels": labels}}


class NodeStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        """A node registers with its status; allocatable defaults to capacity. It is tainted until it is Ready."""
        spec = _with_enabled_fields(document.get("spec") or {}, {}, context)
        taints = list(spec.get("taints") or [])
        if all(taint.get("key") != _NOT_READY["key"] or taint.get("effect") != "NoSchedule" for taint in taints):
            taints.append(dict(_NOT_READY))
        return _with_allocatable({**document, "spec": {**spec, "taints": taints}})

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        prepared = super().prepared_for_update(old, new, context)
        spec = _with_enabled_fields(prepared.get("spec") or {}, old.get("spec") or {}, context)
        return {**prepared, "spec": spec} if spec != prepared.get("spec") else prepared

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        owners = (spec.get("podPreemptionPolicy") or {}).get("disableResizePreemption") or []
        errors = _taint_errors(spec.get("taints") or []) + _preemption_policy_errors(owners)
        return errors + _range_errors(spec.get("podCIDRs") or [])

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self.create_errors(new, context)
        before, after = old.get("spec") or {}, new.get("spec") or {}
        for field in ("podCIDR", "providerID"):
            if before.get(field) and after.get(field) != before[field]:
                reason = f'node updates may not change {field} except from "" to valid'
                errors.append(forbidden(f"spec.{field}", reason))
        return errors

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return _with_allocatable(super().prepared_for_status(old, new, context))


def _range_errors(ranges: list[str]) -> list[FieldError]:
    path, families = "spec.podCIDRs", []
    errors: list[FieldError] = []
    for index, text in enumerate(ranges):
        try:
            families.append(ip_network(text, strict=False).version)
            if "/" not in text:
                raise ValueError
        except ValueError:
            reason = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid(f"{path}[{index}]", text, reason))
    if not errors and len(set(families)) < len(families):
        reason = "may specify no more than one CIDR for each IP family"
        errors.append(FieldError("FieldValueInvalid", path, reason, ranges))
    return errors


def _with_enabled_fields(spec: JsonObject, before: JsonObject, context: WriteContext) -> JsonObject:
    """Without a field of a gate that is off, unless the stored node has it."""
    if context.gates.scheduler_preempts or before.get("podPreemptionPolicy") is not None:
        return spec
    return without(spec, "podPreemptionPolicy")


def _preemption_policy_errors(owners: list[str]) -> list[FieldError]:
    path = "spec.podPreemptionPolicy.disableResizePreemption"
    errors: list[FieldError] = []
    if len(owners) > _MOST_OWNERS:
        reason = f"must have at most {_MOST_OWNERS} items"
        errors.append(FieldError("FieldValueTooMany", path, reason, len(owners)))
    for index, owner in enumerate(owners):
        errors += [invalid(f"{path}[{index}]", owner, problem) for problem in qualified_name_problems(owner)]
        if owner in owners[:index]:
            errors.append(FieldError("FieldValueDuplicate", f"{path}[{index}]", "", owner))
    return errors


def _with_allocatable(node: JsonObject) -> JsonObject:
    status = dict(node.get("status") or {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    return {**node, "status": status}


def _taint_errors(taints: list[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(taints):
        path = f"spec.taints[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        errors += [invalid(f"{path}.key", key, problem) for problem in qualified_name_problems(key)]
        errors += [invalid(f"{path}.value", value, problem) for problem in label_value_problems(value)]
        if not effect:
            errors.append(required(f"{path}.effect"))
        elif effect not in _EFFECTS:
            errors.append(unsupported(f"{path}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            reason = "taints must be unique by key and effect pair"
            errors.append(FieldError("FieldValueDuplicate", path, reason, f"{key}:{effect}"))
        seen.add((key, effect))
    return errors


class LeaseStrategy(Strategy):
    unconditional_update = False
    create_on_update = True

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        errors = []
        if duration is not None and duration <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)


class ConfigMapStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors: list[FieldError] = []
        total = 0
        for field in ("data", "binaryData"):
            for key, value in sorted((document.get(field) or {}).items()):
                path = f"{field}[{key}]"
                errors += [invalid(path, key, problem) for problem in config_map_key_problems(key)]
                if field == "data" and key in (document.get("binaryData") or {}):
                    errors.append(invalid(path, key, "duplicate of key present in binaryData"))
                total += size_bytes(value) if field == "data" else decoded_bytes(value)
        if total > MAX_CONFIG_MAP_BYTES:
            reason = f"may not be more than {MAX_CONFIG_MAP_BYTES} bytes"
            errors.append(FieldError("FieldValueTooLong", "[]", reason))
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = []
        if old.get("immutable"):
            if not new.get("immutable"):
                errors.append(forbidden("immutable", "field is immutable when `immutable` is set"))
            for field in ("data", "binaryData"):
                if (old.get(field) or {}) != (new.get(field) or {}):
                    errors.append(forbidden(field, "field is immutable when `immutable` is set"))
        return errors + self.create_errors(new, context)


class EventStrategy(Strategy):
    """Documents are in core/v1 here, whichever API group the request used."""

    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return completed(document)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return completed(new)

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors: list[FieldError] = []
        about = document.get("involvedObject") or {}
        own, other = document["metadata"].get("namespace") or "", about.get("namespace") or ""
        if other != own and not (not other and own == "default"):
            errors.append(invalid("involvedObject.namespace", other, "does not match event.namespace"))
        if self.resource.group == "events.k8s.io" or document.get("eventTime"):
            errors += _new_style_errors(document)
        return errors


def _new_style_errors(event: JsonObject) -> list[FieldError]:
    errors = []
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    for field, name in (
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ):
        if not event.get(field):
            errors.append(required(name))
    type_ = event.get("type") or ""
    if type_ not in ("Normal", "Warning"):
        errors.append(invalid("type", type_, "has invalid value: " + type_))
    if len(event.get("message") or "") > MAX_NOTE:
        errors.append(invalid("message", "", f"can have at most {MAX_NOTE} characters"))
    return errors
