"""What a resize may change in `spec.volumes` (03 §4.2): the sizeLimit of memory-backed emptyDir volumes, with the
feature gate InPlacePodVerticalScalingMemoryBackedVolumes.

Kubernetes: pkg/apis/core/validation/validation.go, ValidatePodResize.
"""

from __future__ import annotations

from typing import Any

from plimsoll.errors import FieldError, InvalidQuantityError
from plimsoll.rules.admission.comparison import same, spec_of
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES, ZERO, Quantity


def volume_errors(old: JsonObject, new: JsonObject, gates: Gates) -> list[FieldError]:
    before, after = spec_of(old).get("volumes") or [], spec_of(new).get("volumes") or []
    if not gates.memory_volumes:
        if same(before, after, "volumes"):
            return []
        reason = (
            "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled"
        )
        return [_forbidden("spec.volumes", reason)]
    if len(before) != len(after):
        return [_forbidden("spec.volumes", "volumes may not be added or removed on resize")]
    found = (
        _volume_error(was, now, f"spec.volumes[{index}]")
        for index, (was, now) in enumerate(zip(before, after, strict=True))
    )
    return [error for error in found if error is not None]


def _volume_error(old: JsonObject, new: JsonObject, path: str) -> FieldError | None:
    if old.get("name") != new.get("name"):
        return _forbidden(f"{path}.name", "volumes may not be renamed or reordered on resize")
    before, after = old.get("emptyDir"), new.get("emptyDir")
    compared = new
    if before is not None and after is not None:
        compared = {**new, "emptyDir": {**after, "sizeLimit": before.get("sizeLimit")}}
    if not same(old, compared):
        return _forbidden(path, "only sizeLimit of memory-backed emptyDir volumes is mutable on resize")
    if before is None or after is None:
        return None
    had, has = _size(before), _size(after)
    where = f"{path}.emptyDir.sizeLimit"
    if bool(had) != bool(has):
        return _forbidden(where, "adding or removing sizeLimit on an existing volume is not allowed")
    if had != has and after.get("medium") != "Memory":
        return _forbidden(where, "sizeLimit is only mutable for memory-backed emptyDir volumes")
    return None


def _size(volume: JsonObject) -> Quantity:
    text: Any = volume.get("sizeLimit")
    try:
        return ZERO if text is None else QUANTITIES[str(text)]
    except InvalidQuantityError:
        return ZERO


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)
