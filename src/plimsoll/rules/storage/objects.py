"""PersistentVolumes, their claims and classes, CSINodes: defaults and validation, as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.errors import ErrorType, FieldError, InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems, qualified_name_problems
from plimsoll.rules.quantity import QUANTITIES

CLAIM_FINALIZER, VOLUME_FINALIZER = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
SOURCES = ("hostPath", "nfs", "local", "csi")
_RECLAIM = ("Delete", "Recycle", "Retain")
_MAX_DRIVER, _MAX_NODE_ID = 63, 256


def _error(type_: ErrorType, path: str, detail: str = "", value: Any = None) -> FieldError:
    return FieldError(type_, path, detail, value)


def _choice(value: Any, allowed: tuple[str, ...], path: str) -> Iterator[FieldError]:
    if value not in allowed:
        listed = ", ".join(f'"{each}"' for each in allowed)
        yield _error("FieldValueNotSupported", path, f"supported values: {listed}", value)


def with_finalizer(document: JsonObject, finalizer: str) -> JsonObject:
    metadata = document["metadata"]
    known = metadata.get("finalizers") or []
    if finalizer in known:
        return document
    return {**document, "metadata": {**metadata, "finalizers": [*known, finalizer]}}


# --- claims ---


def defaulted_claim(claim: JsonObject) -> JsonObject:
    spec = claim.get("spec") or {}
    return {**claim, "spec": {**spec, "volumeMode": spec.get("volumeMode") or "Filesystem"}}


def class_of_claim(claim: JsonObject) -> str:
    old = (claim["metadata"].get("annotations") or {}).get(OLD_CLASS)
    return old or (claim.get("spec") or {}).get("storageClassName") or ""


def claim_spec_errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield _error("FieldValueRequired", f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from _choice(mode, MODES, f"{path}.accessModes")
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        reason = "may not use ReadWriteOncePod with other access modes"
        yield _error("FieldValueForbidden", f"{path}.accessModes", reason)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield _error("FieldValueRequired", f"{path}.resources[storage]")
    else:
        yield from _amount_errors(requests["storage"], f"{path}.resources[storage]")
    if spec.get("volumeMode") is not None:
        yield from _choice(spec["volumeMode"], ("Block", "Filesystem"), f"{path}.volumeMode")
    name = spec.get("storageClassName")
    if name and (problems := dns_subdomain_problems(name)):
        yield _error("FieldValueInvalid", f"{path}.storageClassName", problems[0], name)


def _amount_errors(value: Any, path: str) -> Iterator[FieldError]:
    try:
        amount = QUANTITIES[str(value)]
    except InvalidQuantityError as error:
        yield _error("FieldValueInvalid", path, str(error), str(value))
        return
    if amount.nanos <= 0:
        yield _error("FieldValueInvalid", path, "must be greater than zero", str(value))


def claim_update_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    before, after = dict(old.get("spec") or {}), dict(new.get("spec") or {})
    errors: list[FieldError] = []
    grown, was = (_requested(each) for each in (after, before))
    if was and grown and QUANTITIES[grown].nanos < QUANTITIES[was].nanos:
        reason = "field can not be less than status.capacity"
        errors.append(_error("FieldValueForbidden", "spec.resources.requests.storage", reason))
    for spec in (before, after):
        spec.pop("resources", None)
        spec.pop("volumeAttributesClassName", None)
    for field in ("volumeName", "storageClassName"):  # a binder, or a default class, sets them once
        if not before.get(field):
            before.pop(field, None)
            after.pop(field, None)
    if before != after:
        reason = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        errors.append(_error("FieldValueForbidden", "spec", reason))
    return errors


def _requested(spec: JsonObject) -> str:
    return str(((spec.get("resources") or {}).get("requests") or {}).get("storage") or "")


# --- volumes ---


def defaulted_volume(volume: JsonObject) -> JsonObject:
    spec = dict(volume.get("spec") or {})
    spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
    spec["volumeMode"] = spec.get("volumeMode") or "Filesystem"
    if spec.get("hostPath") is not None:
        spec["hostPath"] = {"type": "", **spec["hostPath"]}
    return {**volume, "spec": spec}


def volume_errors(volume: JsonObject) -> list[FieldError]:
    return list(_volume_errors(volume.get("spec") or {}))


def _volume_errors(spec: JsonObject) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield _error("FieldValueRequired", "spec.accessModes")
    for mode in modes:
        yield from _choice(mode, MODES, "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield _error("FieldValueRequired", "spec.capacity")
    elif set(capacity) != {"storage"}:
        other = next(iter(set(capacity) - {"storage"}), "")
        yield from _choice(other or "", ("storage",), "spec.capacity")
    else:
        yield from _amount_errors(capacity["storage"], "spec.capacity[storage]")
    yield from _choice(
        spec.get("persistentVolumeReclaimPolicy") or "Retain", _RECLAIM, "spec.persistentVolumeReclaimPolicy"
    )
    yield from _choice(spec.get("volumeMode") or "Filesystem", ("Block", "Filesystem"), "spec.volumeMode")
    found = [name for name in SOURCES if spec.get(name) is not None]
    if not found:
        yield _error("FieldValueRequired", "spec", "must specify a volume type")
    for extra in found[1:]:
        yield _error("FieldValueForbidden", f"spec.{extra}", "may not specify more than 1 volume type")
    for name in ("hostPath", "local"):
        if spec.get(name) is None:
            continue
        path = spec[name].get("path") or ""
        if not path:
            yield _error("FieldValueRequired", f"spec.{name}.path")
        elif ".." in path.split("/"):
            yield _error("FieldValueInvalid", f"spec.{name}.path", "must not contain '..'", path)
        elif name == "local" and not path.startswith("/"):
            yield _error("FieldValueInvalid", "spec.local.path", "must be an absolute path", path)
    if (
        spec.get("hostPath", {})
        and spec["hostPath"].get("path") == "/"
        and spec.get("persistentVolumeReclaimPolicy") == "Recycle"
    ):
        reason = "may not be 'recycle' for a hostPath mount of '/'"
        yield _error("FieldValueForbidden", "spec.persistentVolumeReclaimPolicy", reason)
    required = (spec.get("nodeAffinity") or {}).get("required")
    if spec.get("local") is not None and not required:
        yield _error("FieldValueRequired", "spec.nodeAffinity", "Local volume requires node affinity")
    for index, term in enumerate((required or {}).get("nodeSelectorTerms") or []):
        for inner, expression in enumerate(term.get("matchExpressions") or []):
            path = f"spec.nodeAffinity.required.nodeSelectorTerms[{index}].matchExpressions[{inner}]"
            if problems := qualified_name_problems(expression.get("key") or ""):
                yield _error("FieldValueInvalid", f"{path}.key", problems[0], expression.get("key") or "")


def volume_update_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    errors = volume_errors(new)
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if any(before.get(name) != after.get(name) for name in SOURCES):
        reason = "spec.persistentvolumesource is immutable after creation"
        errors.append(_error("FieldValueForbidden", "spec.persistentvolumesource", reason))
    if (before.get("volumeMode") or "Filesystem") != (after.get("volumeMode") or "Filesystem"):
        errors.append(_error("FieldValueInvalid", "spec.volumeMode", "field is immutable", after.get("volumeMode")))
    if before.get("nodeAffinity") and before["nodeAffinity"] != after.get("nodeAffinity"):
        errors.append(
            _error(
                "FieldValueInvalid",
                "spec.nodeAffinity",
                "field is immutable, except for updating from beta label to GA",
            )
        )
    return errors


# --- classes ---


def defaulted_class(storage_class: JsonObject) -> JsonObject:
    return {
        **storage_class,
        "reclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "volumeBindingMode": storage_class.get("volumeBindingMode") or "Immediate",
    }


def class_errors(storage_class: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    provisioner = storage_class.get("provisioner") or ""
    if not provisioner:
        errors.append(_error("FieldValueRequired", "provisioner"))
    elif problems := qualified_name_problems(provisioner.lower()):
        errors.append(_error("FieldValueInvalid", "provisioner", problems[0], provisioner))
    errors += _choice(storage_class.get("reclaimPolicy") or "Delete", ("Delete", "Retain"), "reclaimPolicy")
    modes = ("Immediate", "WaitForFirstConsumer")
    errors += _choice(storage_class.get("volumeBindingMode") or "Immediate", modes, "volumeBindingMode")
    return errors


def class_update_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    errors = class_errors(new)
    for field, reason in (
        ("parameters", "updates to parameters are forbidden."),
        ("provisioner", "updates to provisioner are forbidden."),
        ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
    ):
        if (old.get(field) or None) != (new.get(field) or None):
            errors.append(_error("FieldValueForbidden", field, reason))
    if old.get("volumeBindingMode") != new.get("volumeBindingMode"):
        errors.append(
            _error("FieldValueInvalid", "volumeBindingMode", "field is immutable", new.get("volumeBindingMode"))
        )
    return errors


def attributes_class_errors(attributes: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
    errors: list[FieldError] = []
    if not attributes.get("driverName"):
        errors.append(_error("FieldValueRequired", "driverName"))
    if not attributes.get("parameters"):
        errors.append(_error("FieldValueRequired", "parameters", "must contain at least one key/value pair"))
    for field in ("driverName", "parameters"):
        if old is not None and old.get(field) != attributes.get(field):
            errors.append(_error("FieldValueForbidden", field, f"updates to {field} are forbidden."))
    return errors


def csi_node_errors(node: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
    drivers, path = (node.get("spec") or {}).get("drivers") or (), "spec.drivers"
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, driver in enumerate(drivers):
        errors += _driver_errors(driver, seen, f"{path}[{index}]")
    before = {each.get("name"): each for each in ((old or {}).get("spec") or {}).get("drivers") or ()}
    for driver in drivers:
        known = before.get(driver.get("name"))
        if known is not None and _but_allocatable(known) != _but_allocatable(driver):
            errors.append(_error("FieldValueInvalid", path, "field is immutable"))
    return errors


def _driver_errors(driver: JsonObject, seen: set[str], at: str) -> Iterator[FieldError]:
    name, node_id = driver.get("name") or "", driver.get("nodeID") or ""
    if not name:
        yield _error("FieldValueRequired", f"{at}.name")
    elif len(name) > _MAX_DRIVER:
        yield _error("FieldValueTooLong", f"{at}.name", f"may not be more than {_MAX_DRIVER} bytes")
    for problem in dns_subdomain_problems(name.lower()) if name else ():
        yield _error("FieldValueInvalid", f"{at}.name", problem, name)
    if not node_id:
        yield _error("FieldValueRequired", f"{at}.nodeID")
    if len(node_id) > _MAX_NODE_ID:
        yield _error("FieldValueInvalid", f"{at}.nodeID", f"must be {_MAX_NODE_ID} characters or less", node_id)
    if ((driver.get("allocatable") or {}).get("count") or 0) < 0:
        count = driver["allocatable"]["count"]
        yield _error("FieldValueInvalid", f"{at}.allocatable.count", "must be greater than or equal to 0", count)
    if name in seen:
        yield _error("FieldValueDuplicate", f"{at}.name", value=name)
    seen.add(name)
    keys: set[str] = set()
    for key in driver.get("topologyKeys") or ():
        if not key:
            yield _error("FieldValueRequired", at)
        if key in keys:
            yield _error("FieldValueDuplicate", at, value=key)
        keys.add(key)
        for problem in qualified_name_problems(key):
            yield _error("FieldValueInvalid", at, problem, key)


def _but_allocatable(driver: JsonObject) -> JsonObject:
    return {name: value for name, value in driver.items() if name != "allocatable" and value}


def default_class(classes: list[JsonObject], mark: str = DEFAULT_CLASS) -> str:
    """The newest class that an annotation marks as the default; empty if none is."""
    marked = [each for each in classes if (each["metadata"].get("annotations") or {}).get(mark) == "true"]
    marked.sort(key=lambda each: each["metadata"]["name"])
    newest = max(marked, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), default=None)
    return "" if newest is None else str(newest["metadata"]["name"])
