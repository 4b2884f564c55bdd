"""The errors Plimsoll raises on purpose. Each carries its data; the edge (CLI, API) turns it into words or a Status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

ErrorType = Literal[
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueTooLong",
]

# How Kubernetes words each kind in a message (spec 01 §4).
_WORDS: dict[str, str] = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueTooLong": "Too long",
}
_WITHOUT_VALUE = frozenset({"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong"})


class FieldError(msgspec.Struct, frozen=True):
    """One finding about one field, as Kubernetes' API reports it."""

    type: ErrorType
    field: str
    detail: str = ""
    value: str | int | None = None

    def message(self) -> str:
        """The sentence without the path, as in `details.causes[].message`."""
        words = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not None:
            shown = _quoted(self.value) if isinstance(self.value, str) else str(self.value)
            words = f"{words}: {shown}"
        return f"{words}: {self.detail}" if self.detail else words

    def __str__(self) -> str:
        return f"{self.field}: {self.message()}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class PlimsollError(Exception):
    """Base of every error that Plimsoll raises on purpose."""


class InvalidQuantityError(PlimsollError):
    """A text that is no Kubernetes quantity; `str()` is Kubernetes' own sentence (spec 01 §1.2)."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)  # as given, so that the error passes between processes
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class InvalidObjectError(PlimsollError):
    """An object that Kubernetes would refuse, with every finding."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(errors)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


class InvalidConfigError(PlimsollError):
    """A kubelet setting that the kubelet would refuse; `path` is the field, `reason` the kubelet's words."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class InvalidConfigsError(PlimsollError):
    """A kubelet configuration with everything that is wrong in it."""

    def __init__(self, errors: Sequence[InvalidConfigError]) -> None:
        super().__init__(errors)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


class InvalidNameError(PlimsollError):
    """A cgroup name that cannot be expressed, where the kubelet itself would abort (spec 02 §2.1)."""


class ContainerConfigError(PlimsollError):
    """A container that cannot be made from what its pod says; `str()` is the message of its waiting state."""

    reason = "CreateContainerConfigError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
