"""What a kind decides when it is written, and the common defaults.

A strategy works on whole documents and never changes its arguments. It gets defaulted documents whose metadata the
server has set, and returns findings; it never raises.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.errors import FieldError
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile

# Metadata that a write to /status cannot change, as `codec.patch.managed_fields` has it for owners.
_KEPT_BY_STATUS: dict[str, tuple[str, ...]] = {"deployments": ("labels",)}
_PERCENT = re.compile(r"[0-9]{1,9}%", re.ASCII)


class WriteContext(msgspec.Struct, frozen=True):
    """What strategies may depend on besides the object."""

    profile: Profile
    gates: Gates
    in_place: bool  # gate InPlacePodVerticalScaling
    now: str
    service_family: str = "IPv4"  # of the range of cluster IPs


class Strategy:
    """The common kind: status has its own subresource if there is one, everything else belongs to the client."""

    unconditional_update = True  # a PUT without resourceVersion
    create_on_update = False  # a PUT of an object that does not exist

    def __init__(self, resource: ApiResource) -> None:
        self.resource = resource
        self.has_status = resource.subresource("status") is not None

    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return without(document, "status") if self.has_status else document

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return []

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """A write to the object itself: status stays as it is."""
        return with_old(new, old, "status") if self.has_status else new

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return []

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """A write to /status: the status, and with it labels, annotations and finalizers; the rest stays."""
        metadata = new["metadata"]
        for field in _KEPT_BY_STATUS.get(self.resource.storage, ()):
            metadata = with_old(metadata, old["metadata"], field)
        return {**with_old(old, new, "status"), "metadata": metadata}

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return []

    def warnings(self, document: JsonObject) -> list[str]:
        """For the client of a create, in addition to the warnings of decoding."""
        return []

    def update_warnings(self, old: JsonObject, new: JsonObject) -> list[str]:
        """For the client of an update that changes the spec."""
        return []

    def evaluates(self) -> bool:
        """Whether the check evaluates expressions, which take as long as their limits allow, whatever the size."""
        return False

    def spec_differs(self, old: JsonObject, new: JsonObject) -> bool:
        """Whether the generation increases."""
        return relevant(old) != relevant(new)


def relevant(document: JsonObject) -> JsonObject:
    """Everything except metadata and status."""
    return {
        name: value
        for name, value in document.items()
        if name not in ("kind", "apiVersion", "metadata", "status") and value is not None
    }


def without(document: JsonObject, field: str) -> JsonObject:
    return {name: value for name, value in document.items() if name != field}


def with_old(document: JsonObject, old: JsonObject, field: str) -> JsonObject:
    """`document` with this member as `old` has it, or without it."""
    if field in old:
        return {**document, field: old[field]}
    return without(document, field)


# --- findings ---


def required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, detail)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)


def invalid(path: str, value: str | int | None, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)


def immutable(path: str, value: Any) -> FieldError:
    """A value that is not text is shown as JSON."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return FieldError("FieldValueInvalid", path, "field is immutable", value)
    shown = msgspec.json.encode(value).decode()
    return FieldError("FieldValueInvalid", path, f"{shown}: field is immutable")


def count_or_percent_errors(path: str, value: Any) -> list[FieldError]:
    """A number of pods, or a percentage of them; absent is neither."""
    if isinstance(value, int) and value < 0:
        return [invalid(path, value, "must be greater than or equal to 0")]
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        rule = "a valid percent string must be a numeric string followed by an ending '%'"
        return [invalid(path, value, f"{rule} (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")]
    return []
