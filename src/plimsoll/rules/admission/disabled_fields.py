"""Fields of a feature that is off are dropped when an object is written, unless the stored object uses them (03 §4.3).

Kubernetes: dropDisabledFields in pkg/api/pod/util.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.model.json_object import JsonObject

_LISTS = ("initContainers", "containers", "ephemeralContainers")
_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_STATUS_FIELDS = ("allocatedResources", "resources")


def without_resize_fields(new: JsonObject, stored: JsonObject | None) -> JsonObject:
    """The pod with the gate InPlacePodVerticalScaling off: a stored resizePolicy keeps the fields."""
    if stored is not None and _uses_resize(stored):
        return new
    changed = dict(new)
    for part, lists, fields in (("spec", _LISTS, ("resizePolicy",)), ("status", _STATUSES, _STATUS_FIELDS)):
        document = new.get(part) or {}
        dropped = {name: [_without(each, fields) for each in document[name]] for name in lists if document.get(name)}
        if dropped:
            changed[part] = {**document, **dropped}
    if (changed.get("status") or {}).get("resize"):
        changed["status"] = _without(changed["status"], ("resize",))
    return changed


def without_restart_rules(new: JsonObject) -> JsonObject:
    """The pod with the gate ContainerRestartRules off."""
    spec = new.get("spec") or {}
    lists = {
        name: spec[name] for name in _LISTS if any(each.get("restartPolicyRules") for each in spec.get(name) or ())
    }
    dropped = {name: [_without(each, ("restartPolicyRules",)) for each in found] for name, found in lists.items()}
    return {**new, "spec": {**spec, **dropped}} if dropped else new


def without_sidecars(new: JsonObject) -> JsonObject:
    """The pod with the gate SidecarContainers off: its init containers are ordinary ones (E-4)."""
    spec = new.get("spec") or {}
    containers = spec.get("initContainers") or ()
    if not any("restartPolicy" in each for each in containers):
        return new
    return {**new, "spec": {**spec, "initContainers": [_without(each, ("restartPolicy",)) for each in containers]}}


def without_stop_signals(new: JsonObject, stored: JsonObject | None) -> JsonObject:
    """The pod with the gate ContainerStopSignals off: a stored signal keeps the fields."""
    if stored is not None and any(True for _ in _signalled(stored)):
        return new
    spec = new.get("spec") or {}
    lists = {name for name, _ in _signalled(new)}
    dropped = {name: [_without_signal(each) for each in spec[name]] for name in lists}
    return {**new, "spec": {**spec, **dropped}} if dropped else new


def _signalled(pod: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    spec = pod.get("spec") or {}
    for name in _LISTS:
        for each in spec.get(name) or ():
            if (each.get("lifecycle") or {}).get("stopSignal"):
                yield name, each


def _without_signal(container: JsonObject) -> JsonObject:
    lifecycle = _without(container.get("lifecycle") or {}, ("stopSignal",))
    return {**container, "lifecycle": lifecycle} if lifecycle else _without(container, ("lifecycle",))


def _uses_resize(pod: JsonObject) -> bool:
    spec = pod.get("spec") or {}
    return any(each.get("resizePolicy") for name in _LISTS for each in spec.get(name) or [])


def _without(document: JsonObject, fields: tuple[str, ...]) -> JsonObject:
    return {name: value for name, value in document.items() if name not in fields}
