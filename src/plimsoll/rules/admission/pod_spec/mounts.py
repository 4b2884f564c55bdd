"""Validation of how a container mounts volumes and uses them as devices."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.field_errors import (
    descending_path_errors,
    forbidden,
    invalid,
    not_found,
    one_of,
    required,
)
from plimsoll.rules.model.json_object import JsonObject

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_DETAILS = frozenset({"subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly"})
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")


def mount_errors(container: JsonObject, at: str, volumes: dict[str, JsonObject]) -> Iterator[FieldError]:
    """`volumes`: the valid ones of the pod, by name."""
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    if not mounts and not devices:
        return
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    as_devices = {each.get("name"): each.get("devicePath") for each in devices}
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        path, name = f"{at}.volumeMounts[{index}]", mount.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        if name not in volumes:
            yield not_found(f"{path}.name", name)
        target = mount.get("mountPath") or ""
        if not target:
            yield required(f"{path}.mountPath")
        if target in paths:
            yield invalid(f"{path}.mountPath", target, "must be unique")
        paths.add(target)
        if name in as_devices:
            yield invalid(f"{path}.name", name, "must not already exist in volumeDevices")
        if target in as_devices.values():
            yield invalid(f"{path}.mountPath", target, "must not already exist as a path in volumeDevices")
        if not _DETAILS.isdisjoint(mount):
            yield from _detail_errors(mount, f"{at}.volumeMounts", path, privileged=privileged)
    if devices:
        as_mounts = {each.get("name"): each.get("mountPath") for each in mounts}
        yield from _device_errors(devices, f"{at}.volumeDevices", volumes, as_mounts)


def _detail_errors(mount: JsonObject, list_at: str, at: str, *, privileged: bool) -> Iterator[FieldError]:
    """Kubernetes names the list in these paths, not the mount."""
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    yield from descending_path_errors(f"{list_at}.subPath", sub_path)
    if expression and sub_path:
        yield invalid(f"{at}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
    yield from descending_path_errors(f"{list_at}.subPathExpr", expression)
    propagation = mount.get("mountPropagation")
    yield from one_of(f"{list_at}.mountPropagation", propagation, _PROPAGATIONS)
    if propagation == "Bidirectional" and not privileged:
        words = "Bidirectional mount propagation is available only to privileged containers"
        yield forbidden(f"{list_at}.mountPropagation", words)
    recursive = mount.get("recursiveReadOnly")
    yield from one_of(f"{list_at}.recursiveReadOnly", recursive, _RECURSIVE)
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            yield forbidden(f"{list_at}.recursiveReadOnly", "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            words = "may only be specified when mountPropagation is None or not specified"
            yield forbidden(f"{list_at}.recursiveReadOnly", words)


def _device_errors(
    devices: list[JsonObject] | tuple[JsonObject, ...], at: str, volumes: dict[str, JsonObject], mounts: JsonObject
) -> Iterator[FieldError]:
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        where, name, path = f"{at}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(f"{where}.name")
        if name in names:
            yield invalid(f"{where}.name", name, "must be unique")
        volume = volumes.get(name)
        if volume is None:
            yield not_found(f"{where}.name", name)
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            words = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(f"{where}.name", name, words)
        if not path:
            yield required(f"{where}.devicePath")
        if path in paths:
            yield invalid(f"{where}.devicePath", path, "must be unique")
        if ".." in path.split("/"):
            yield invalid(f"{where}.devicePath", path, "can not contain backsteps ('..')")
        else:
            paths.add(path)
        if name in mounts:
            yield invalid(f"{where}.name", name, "must not already exist in volumeMounts")
        if path in mounts.values():
            yield invalid(f"{where}.devicePath", path, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)
