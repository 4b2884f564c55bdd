"""From "this container, two CPUs" to a resize request: which lists change, and the pod that results.

An amount applies to the request, and to the limit too if the container has one: so a Guaranteed pod stays Guaranteed,
and a container without a limit does not get one by accident. `kinds` restricts that to one of the two lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from plimsoll.errors import PlimsollError
from plimsoll.rules.admission.comparison import CONTAINER_KINDS, LISTS
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import NO_RESOURCES, Container, Pod, Resources, is_sidecar, listed
from plimsoll.rules.quantity import Quantity

ListName = Literal["requests", "limits"]
ResourceChange = dict[ListName, dict[str, str]]


class NoSuchContainerError(PlimsollError):
    """The container is missing or ambiguous; the message lists the pod's containers."""


def chosen_container(pod: Pod, name: str) -> Container:
    """The container of that name; without a name, the only one."""
    resizable = [*pod.spec.containers, *(each for each in pod.spec.init_containers if is_sidecar(each))]
    names = ", ".join(each.name for each in resizable)
    if not name:
        if len(resizable) == 1:
            return resizable[0]
        raise NoSuchContainerError(
            f"pod {pod.metadata.name} has {len(resizable)} containers, name one with -c: {names}"
        )
    container = next((each for each in (*resizable, *pod.spec.init_containers) if each.name == name), None)
    if container is None:
        raise NoSuchContainerError(f"pod {pod.metadata.name} has no container {name!r}; there are: {names}")
    return container


def change_of(container: Container, amounts: Mapping[str, Quantity], kinds: Sequence[ListName] = ()) -> ResourceChange:
    """The change of the container's lists. Without `kinds`: the request, and the limit if there is one."""
    change: ResourceChange = {}
    for kind in LISTS:
        if kinds and kind not in kinds:
            continue
        present = listed(container.resources, kind)
        changed = {
            name: str(amount) for name, amount in amounts.items() if kinds or kind == "requests" or name in present
        }
        if changed:
            change[kind] = changed
    return change


def resize_patch(pod: Pod, container: str, change: ResourceChange) -> JsonObject:
    """A strategic merge patch with only the amounts that change."""
    key = "containers" if any(each.name == container for each in pod.spec.containers) else "initContainers"
    return {"spec": {key: [{"name": container, "resources": change}]}}


def patch_between(old: Pod, new: Pod) -> JsonObject:
    """The patch from the old pod's amounts to the new one's; a removed amount is null."""
    level = _difference(old.spec.resources or NO_RESOURCES, new.spec.resources or NO_RESOURCES)
    spec: JsonObject = {"resources": level} if level else {}
    for key, before, after in (
        ("containers", old.spec.containers, new.spec.containers),
        ("initContainers", old.spec.init_containers, new.spec.init_containers),
    ):
        changed = [
            {"name": now.name, "resources": change}
            for was, now in zip(before, after, strict=False)
            if (change := _difference(was.resources, now.resources))
        ]
        if changed:
            spec[key] = changed
    return {"spec": spec}


def resized_document(document: JsonObject, container: str, change: ResourceChange) -> JsonObject:
    """A copy of the pod's document with the change."""
    spec = dict(document.get("spec") or {})
    for key in CONTAINER_KINDS:
        if key in spec:
            spec[key] = [_changed(each, change) if each.get("name") == container else each for each in spec[key]]
    return {**document, "spec": spec}


def _changed(container: JsonObject, change: ResourceChange) -> JsonObject:
    resources: dict[str, Any] = dict(container.get("resources") or {})
    for kind, amounts in change.items():
        resources[kind] = {**(resources.get(kind) or {}), **amounts}
    return {**container, "resources": resources}


def _difference(before: Resources, after: Resources) -> JsonObject:
    difference: JsonObject = {}
    for kind in LISTS:
        was, now = listed(before, kind), listed(after, kind)
        changed: JsonObject = {name: str(amount) for name, amount in now.items() if was.get(name) != amount}
        changed |= dict.fromkeys(was.keys() - now.keys())
        if changed:
            difference[kind] = changed
    return difference
