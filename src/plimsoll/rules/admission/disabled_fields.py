"""Fields of a feature that is off are dropped when an object is written, unless the stored object uses them (05 B6).

Most objects have none of their fields, so they are looked for in one walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from plimsoll.rules.admission.feature_fields import KIND_FEATURES, POD_FEATURES, POD_PLACES, Feature
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject

_LISTS = ("initContainers", "containers", "ephemeralContainers")
_SIDECAR = "Always"
_Tree = dict[str, Any]  # field → the fields below it; None: it is dropped


def without_disabled(storage: str, new: JsonObject, stored: JsonObject | None, gates: Gates) -> JsonObject:
    """The object, of a kind that is stored by this name, without the fields of features that are off."""
    off = gates.off
    if not off:
        return new
    place = POD_PLACES.get(storage)
    if place is not None:
        new = _changed_at(place, new, stored, lambda pod, before: _pod_without(pod, before, gates))
    if storage in KIND_FEATURES:
        new = _without(new, stored, off, storage)
    if storage == "jobs" and stored is None and "JobBackoffLimitPerIndex" in off:
        new = _without_index_rules(new)
    elif storage == "nodes" and {"RecursiveReadOnlyMounts", "UserNamespacesSupport"} <= off:
        new = _pruned(new, {"status": {"runtimeHandlers": None}})
    return new


_Change = Callable[[JsonObject, JsonObject | None], JsonObject]


def _pod_without(new: JsonObject, stored: JsonObject | None, gates: Gates) -> JsonObject:
    new = _without(new, stored, gates.off, "")
    for gate, change in _POD_CHANGES.items():
        if gate in gates.off:
            new = change(new, stored)
    if "ContainerRestartRules" in gates.off:
        new = _without_restart_rules(new, stored, policies=gates.restart_policy_dropped)
    return new


def _changed_at(place: tuple[str, ...], new: JsonObject, stored: JsonObject | None, change: _Change) -> JsonObject:
    """The object with what `change` makes of the part at that place."""
    if not place:
        return change(new, stored)
    name, rest = place[0], place[1:]
    part = new.get(name)
    if not isinstance(part, dict):
        return new
    before = None if stored is None else stored.get(name) or {}
    changed = _changed_at(rest, part, before, change)
    return new if changed is part else {**new, name: changed}


def _without(new: JsonObject, stored: JsonObject | None, off: frozenset[str], kind: str) -> JsonObject:
    """`kind`: a key of the features by kind; "" is a pod or the template of one."""
    pruned = _pruned(new, _tree(off, kind))
    if pruned is new or stored is None:
        return pruned
    features = [each for each in _features(kind) if each.gate in off]
    unused = [each for each in features if not any(_has(stored, path.split(".")) for path in each.keeping())]
    return _pruned(new, _tree_of(unused))


def _features(kind: str) -> tuple[Feature, ...]:
    return KIND_FEATURES[kind] if kind else POD_FEATURES


@lru_cache(256)
def _tree(off: frozenset[str], kind: str) -> _Tree:
    return _tree_of(each for each in _features(kind) if each.gate in off)


def _tree_of(features: Iterable[Feature]) -> _Tree:
    root: _Tree = {}
    for feature in features:
        for path in feature.paths:
            *parents, field = path.split(".")
            node = root
            for parent in parents:
                node = node.setdefault(parent, {})
            node[field] = None
    return root


def _pruned(document: JsonObject, tree: _Tree) -> JsonObject:
    """The document itself if it has none of the fields."""
    changed = None
    for name in tree.keys() & document.keys():
        value, below = document[name], tree[name]
        if below is None:
            changed = dict(document) if changed is None else changed
            del changed[name]
            continue
        kept: Any = value
        if isinstance(value, dict):
            kept = _pruned(value, below)
        elif isinstance(value, list):
            items = [_pruned(each, below) if isinstance(each, dict) else each for each in value]
            if any(item is not each for item, each in zip(items, value, strict=True)):
                kept = items
        if kept is not value:
            changed = dict(document) if changed is None else changed
            changed[name] = kept
    return document if changed is None else changed


def _has(value: Any, path: list[str]) -> bool:
    """Whether a field at that path has a value; an empty list or map is none."""
    if isinstance(value, list):
        return any(_has(each, path) for each in value)
    if not path:
        return value not in (None, "", {})
    return isinstance(value, dict) and path[0] in value and _has(value[path[0]], path[1:])


# --- features that change more than one field ---


def _containers(pod: JsonObject | None) -> Iterator[JsonObject]:
    spec = (pod or {}).get("spec") or {}
    for name in _LISTS:
        yield from spec.get(name) or ()


def _with_containers(pod: JsonObject, change: Callable[[str, JsonObject], JsonObject]) -> JsonObject:
    spec = pod.get("spec") or {}
    changed = {name: [change(name, each) for each in spec[name]] for name in _LISTS if spec.get(name)}
    return {**pod, "spec": {**spec, **changed}}


def _without_restart_rules(new: JsonObject, stored: JsonObject | None, *, policies: bool) -> JsonObject:
    """`policies`: and without the policies that come with the rules, all but that of sidecars."""

    def is_policy(name: str, each: JsonObject) -> bool:
        return name != "initContainers" or each["restartPolicy"] != _SIDECAR

    def dropped(name: str, each: JsonObject) -> tuple[str, ...]:
        has_policy = policies and each.get("restartPolicy") and is_policy(name, each)
        return ("restartPolicy", "restartPolicyRules") if has_policy else ("restartPolicyRules",)

    def has_any(pod: JsonObject | None) -> bool:
        spec = (pod or {}).get("spec") or {}
        return any(each.get(field) for name in _LISTS for each in spec.get(name) or () for field in dropped(name, each))

    if not has_any(new) or has_any(stored):
        return new
    return _with_containers(new, lambda name, each: _omit(each, dropped(name, each)))


def _without_stop_signals(new: JsonObject, stored: JsonObject | None) -> JsonObject:
    if any(True for _ in _signalled(stored)) or not any(True for _ in _signalled(new)):
        return new
    return _with_containers(new, lambda _, each: _without_signal(each))


def _signalled(pod: JsonObject | None) -> Iterator[JsonObject]:
    return (each for each in _containers(pod) if (each.get("lifecycle") or {}).get("stopSignal"))


def _without_signal(container: JsonObject) -> JsonObject:
    """An empty lifecycle goes with it."""
    if not (container.get("lifecycle") or {}).get("stopSignal"):
        return container
    lifecycle = _omit(container["lifecycle"], ("stopSignal",))
    return {**container, "lifecycle": lifecycle} if lifecycle else _omit(container, ("lifecycle",))


def _without_image_volumes(new: JsonObject, stored: JsonObject | None) -> JsonObject:
    """The volumes, and their mounts."""
    spec = new.get("spec") or {}
    names = {each.get("name") for each in spec.get("volumes") or () if each.get("image")}
    if not names or any(each.get("image") for each in ((stored or {}).get("spec") or {}).get("volumes") or ()):
        return new

    def unmounted(_: str, container: JsonObject) -> JsonObject:
        mounts = [each for each in container.get("volumeMounts") or () if each.get("name") not in names]
        return {**container, "volumeMounts": mounts} if mounts else _omit(container, ("volumeMounts",))

    volumes = [each for each in spec["volumes"] if each.get("name") not in names]
    kept = {**spec, "volumes": volumes} if volumes else _omit(spec, ("volumes",))
    return _with_containers({**new, "spec": kept}, unmounted)


def _with_default_proc_mount(new: JsonObject, stored: JsonObject | None) -> JsonObject:
    """procMount is not dropped, but has its default."""

    def is_unusual(container: JsonObject) -> bool:
        return (container.get("securityContext") or {}).get("procMount") not in (None, _DEFAULT_PROC_MOUNT)

    def usual(_: str, container: JsonObject) -> JsonObject:
        if not is_unusual(container):
            return container
        return {**container, "securityContext": {**container["securityContext"], "procMount": _DEFAULT_PROC_MOUNT}}

    if any(map(is_unusual, _containers(stored))) or not any(map(is_unusual, _containers(new))):
        return new
    return _with_containers(new, usual)


_DEFAULT_PROC_MOUNT = "Default"
_POD_CHANGES: dict[str, _Change] = {
    "ContainerStopSignals": _without_stop_signals,
    "ImageVolume": _without_image_volumes,
    "ProcMountType": _with_default_proc_mount,
}


def _without_index_rules(job: JsonObject) -> JsonObject:
    """A new Job has no rules that fail an index."""
    policy = (job.get("spec") or {}).get("podFailurePolicy") or {}
    rules = policy.get("rules") or []
    kept = [each for each in rules if each.get("action") != "FailIndex"]
    if len(kept) == len(rules):
        return job
    return {**job, "spec": {**job["spec"], "podFailurePolicy": {**policy, "rules": kept}}}


def _omit(document: JsonObject, fields: Iterable[str]) -> JsonObject:
    return {name: value for name, value in document.items() if name not in fields}
