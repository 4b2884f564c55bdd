"""The errors of this package, in Kubernetes' words.

Nearly all values are valid, so a check of one value is no generator: creating one takes longer than the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.errors import FieldError

MOST_PORT = 65535
MODE_RULE = "must be a number between 0 and 0777 (octal), both inclusive"


def required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, detail)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)


def invalid(path: str, value: str | int | Sequence[str], detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def duplicate(path: str, value: str) -> FieldError:
    return FieldError("FieldValueDuplicate", path, "", value)


def not_found(path: str, value: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueNotFound", path, detail, value)


def too_long(path: str, most: int) -> FieldError:
    return FieldError("FieldValueTooLong", path, f"may not be more than {most} bytes")


def misnamed(path: str, name: str, problems: Iterable[str]) -> Iterable[FieldError]:
    return [invalid(path, name, problem) for problem in problems] if problems else ()


def one_of(path: str, value: str | None, values: Iterable[str]) -> Iterable[FieldError]:
    """None is not set."""
    if value is None or value in values:
        return ()
    listed = ", ".join(f'"{each}"' for each in values)
    return (FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value),)


def not_negative(path: str, value: int | None) -> Iterable[FieldError]:
    return () if value is None or value >= 0 else (invalid(path, value, "must be greater than or equal to 0"),)


def positive(path: str, value: int) -> Iterable[FieldError]:
    return () if value > 0 else (invalid(path, value, "must be greater than zero"),)


def mode_errors(path: str, mode: int | None) -> Iterable[FieldError]:
    return () if mode is None or 0 <= mode <= 0o777 else (invalid(path, mode, MODE_RULE),)


def descending_path_errors(path: str, value: str) -> Iterable[FieldError]:
    """A path below a directory."""
    absolute = (invalid(path, value, "must be a relative path"),) if value.startswith("/") else ()
    return (*absolute, *backstep_errors(path, value))


def backstep_errors(path: str, value: str) -> Iterable[FieldError]:
    return (invalid(path, value, "must not contain '..'"),) if ".." in value.split("/") else ()


def file_path_errors(path: str, value: str) -> Iterable[FieldError]:
    """A file in a published volume: names that begin with two dots are the writer's own."""
    found = descending_path_errors(path, value)
    if value.startswith("..") and not value.startswith("../"):
        found = (*found, invalid(path, value, "must not start with '..'"))
    return found
