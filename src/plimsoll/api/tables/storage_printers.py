"""One line of `kubectl get` for PersistentVolumes, PersistentVolumeClaims and StorageClasses."""

from __future__ import annotations

from typing import Any

from plimsoll.api.tables.columns import Printer, age_of, columns, name_of, named
from plimsoll.api.tables.pod_printer import part
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.storage.objects import DEFAULT_CLASS, class_of_claim

_SHORT = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
UNSET = "<unset>"


def _modes(modes: list[str] | None) -> str:
    return ",".join(_SHORT[mode] for mode in _SHORT if mode in (modes or ()))


def _phase(document: JsonObject) -> str:
    if part(document, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return str(part(document, "status").get("phase") or "")


def _volume(volume: JsonObject, now_s: float) -> list[Any]:
    spec, claim = part(volume, "spec"), part(volume, "spec", "claimRef")
    return [
        name_of(volume),
        (spec.get("capacity") or {}).get("storage") or "",
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _phase(volume),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        part(volume, "status").get("reason") or "",
        age_of(volume, now_s),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(claim: JsonObject, now_s: float) -> list[Any]:
    spec, status = part(claim, "spec"), part(claim, "status")
    is_bound = bool(spec.get("volumeName"))
    return [
        name_of(claim),
        _phase(claim),
        spec.get("volumeName") or "",
        ((status.get("capacity") or {}).get("storage") or "") if is_bound else "",
        _modes(status.get("accessModes")) if is_bound else "",
        class_of_claim(claim),
        spec.get("volumeAttributesClassName") or UNSET,
        age_of(claim, now_s),
        spec.get("volumeMode") or UNSET,
    ]


def _class(storage_class: JsonObject, now_s: float) -> list[Any]:
    name = name_of(storage_class)
    if (part(storage_class, "metadata").get("annotations") or {}).get(DEFAULT_CLASS) == "true":
        name += " (default)"
    return [
        name,
        storage_class.get("provisioner") or "",
        storage_class.get("reclaimPolicy") or "Delete",
        storage_class.get("volumeBindingMode") or "Immediate",
        bool(storage_class.get("allowVolumeExpansion")),
        age_of(storage_class, now_s),
    ]


STORAGE_PRINTERS: dict[str, Printer] = {
    "persistentvolumes": Printer(
        columns(
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            wide=("VolumeMode",),
        ),
        _volume,
    ),
    "persistentvolumeclaims": Printer(
        columns(
            "Status",
            "Volume",
            "Capacity",
            "Access Modes",
            "StorageClass",
            "VolumeAttributesClass",
            "Age",
            wide=("VolumeMode",),
        ),
        _claim,
    ),
    "storageclasses": Printer(
        columns("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"), _class
    ),
    "csinodes": Printer(columns("Drivers", "Age"), named(lambda node: [len(part(node, "spec").get("drivers") or [])])),
    "volumeattributesclasses": Printer(
        columns("DriverName", "Age"), named(lambda attributes: [attributes.get("driverName") or ""])
    ),
}
