"""The errors Plimsoll raises on purpose. Each carries its data; the edge (CLI, API) turns it into words or a Status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, dataclass_transform

import msgspec

ErrorType = Literal[
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueNotFound",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
]

# How Kubernetes words each kind in a message (spec 01 §4).
_WORDS: dict[str, str] = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
}
_WITHOUT_VALUE = frozenset({"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong"})


class FieldError(msgspec.Struct, frozen=True):
    """One finding about one field, as Kubernetes' API reports it."""

    type: ErrorType
    field: str
    detail: str = ""
    value: str | int | Sequence[str] | None = None  # bool and lists are shown as in JSON

    def message(self) -> str:
        """The sentence without the path, as in `details.causes[].message`."""
        words = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not None:
            words = f"{words}: {_shown(self.value)}"
        return f"{words}: {self.detail}" if self.detail else words

    def __str__(self) -> str:
        return f"{self.field}: {self.message()}"


def _shown(value: str | int | Sequence[str]) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f"[{','.join(map(quoted, value))}]"


# --- texts in quotes, as Go writes them ---

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(text: str) -> str:
    """As Go's strconv quotes: printable characters stay."""
    return '"' + "".join(_ESCAPES.get(letter) or _printable(letter) for letter in text) + '"'


def _printable(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def byte_quoted(text: str) -> str:
    """As Go's time package quotes: bytes that are not printable ASCII are escaped."""
    shown: list[str] = []
    for letter in text:
        if letter < " " or letter >= "\x80":
            shown.extend(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
        else:
            shown.append(f"\\{letter}" if letter in '"\\' else letter)
    return '"' + "".join(shown) + '"'


class PlimsollError(Exception):
    """Base of every error that Plimsoll raises on purpose."""


@dataclass_transform(eq_default=False)
class StructuredError(PlimsollError):
    """An error whose annotated attributes are its arguments, in this order; `template` formats them as its text."""

    template: ClassVar[str] = "{message}"
    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields += tuple(cls.__annotations__)

    def __init__(self, *args: object, **named: object) -> None:
        vars(self).update(zip(self._fields, args, strict=False), **named)
        super().__init__(*(getattr(self, name) for name in self._fields))  # all, so that pickle can pass it on

    def __str__(self) -> str:
        return self.template.format(**dict(zip(self._fields, self.args, strict=True)))


class InvalidQuantityError(StructuredError):
    """A text that is no Kubernetes quantity; `str()` is Kubernetes' own sentence (spec 01 §1.2)."""

    text: str
    reason: str
    template = "{reason}"


class InvalidObjectError(StructuredError):
    """An object that Kubernetes would refuse, with every finding."""

    errors: Sequence[FieldError]

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


class InvalidConfigError(StructuredError):
    """A kubelet setting that the kubelet would refuse; `path` is the field, `reason` the kubelet's words."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class InvalidConfigsError(StructuredError):
    """A kubelet configuration with everything that is wrong in it."""

    errors: Sequence[InvalidConfigError]

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


class InvalidNameError(PlimsollError):
    """A cgroup name that cannot be expressed, where the kubelet itself would abort (spec 02 §2.1)."""


class ContainerConfigError(StructuredError):
    """A container that cannot be made from what its pod says; `str()` is the message of its waiting state."""

    reason = "CreateContainerConfigError"

    message: str
