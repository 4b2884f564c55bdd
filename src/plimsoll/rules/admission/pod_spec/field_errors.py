"""The errors of this package, in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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


def misnamed(path: str, name: str, problems: Iterable[str]) -> Iterator[FieldError]:
    for problem in problems:
        yield invalid(path, name, problem)


def one_of(path: str, value: str | None, values: Iterable[str]) -> Iterator[FieldError]:
    """None is not set."""
    if value is not None and value not in values:
        listed = ", ".join(f'"{each}"' for each in values)
        yield FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)


def not_negative(path: str, value: int | None) -> Iterator[FieldError]:
    if value is not None and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def positive(path: str, value: int) -> Iterator[FieldError]:
    if value <= 0:
        yield invalid(path, value, "must be greater than zero")


def mode_errors(path: str, mode: int | None) -> Iterator[FieldError]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, MODE_RULE)


def descending_path_errors(path: str, value: str) -> Iterator[FieldError]:
    """A path below a directory."""
    if value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    yield from backstep_errors(path, value)


def backstep_errors(path: str, value: str) -> Iterator[FieldError]:
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def file_path_errors(path: str, value: str) -> Iterator[FieldError]:
    """A file in a published volume: names that begin with two dots are the writer's own."""
    yield from descending_path_errors(path, value)
    if value.startswith("..") and not value.startswith("../"):
        yield invalid(path, value, "must not start with '..'")
