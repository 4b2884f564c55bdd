"""Files of variables that a container may take its environment from (`fileKeyRef`, 1.34 and later).

A subset of a POSIX shell's syntax: `NAME='value'`, one after the other. A value is literal and may have several lines;
after it only a comment may follow. Whatever comes before `NAME` or begins a line with `#` is ignored as in a shell, and
`NAME= 'value'` assigns nothing. Anything else makes the whole file unusable, up to the name that is searched.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.errors import ContainerConfigError, quoted
from plimsoll.rules.model.runnable import FileKey

_BLANK = " \t"


class EnvironmentFile(msgspec.Struct, frozen=True):
    """A file of a volume: its path on the node, and its text or why it cannot be read."""

    where: str
    text: str = ""
    problem: str = ""


Files = Mapping[tuple[str, str], EnvironmentFile]  # by volume and path


def file_key_value(reference: FileKey, files: Files) -> str | None:
    """None: optional and missing. Raises ContainerConfigError."""
    file = files.get((reference.volume_name, reference.path))
    if file is None:
        volume = quoted(reference.volume_name)
        raise ContainerConfigError(f"cannot find the volume {volume} referenced by FileKeyRef")
    if file.problem:
        raise ContainerConfigError(f"couldn't parse env file: {file.problem}")
    try:
        value = variable(file.text, reference.key)
    except ValueError as error:
        raise ContainerConfigError(f"couldn't parse env file: {error}") from None
    if value:
        return value
    if reference.optional:
        return None
    raise ContainerConfigError(
        f"environment variable key {quoted(reference.key)} not found in file {quoted(file.where)}"
    )


def variable(text: str, name: str) -> str:
    """The value of the first variable of that name, "" if there is none. Raises ValueError before it at the first line
    that is none of the syntax."""
    lines = enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)
    for number, line in lines:
        stripped = line.lstrip(_BLANK)
        if not stripped or stripped.startswith("#"):
            continue
        found, equals, rest = stripped.partition("=")
        if not equals:
            raise _invalid(number, "missing '='")
        if not found:
            raise _invalid(number, "empty variable name")
        if found != found.rstrip(_BLANK):
            raise _invalid(number, "whitespace before '=' is not allowed")
        if rest != rest.lstrip(_BLANK):
            value = ""
        elif rest.startswith("'"):
            first, (value, end, after) = number, rest[1:].partition("'")
            while not end:
                number, line = next(lines, (0, ""))
                if not number:
                    raise ValueError(
                        f"invalid environment variable format starting at line {first}: unclosed single quote"
                    )
                more, end, after = line.partition("'")
                value = f"{value}\n{more}"
            after = after.lstrip(_BLANK)
            if after and not after.startswith("#"):
                raise _invalid(number, "unexpected content after closing quote")
        else:
            raise _invalid(number, "value must be enclosed in single quotes")
        if found == name:
            return value
    return ""


def _invalid(number: int, what: str) -> ValueError:
    return ValueError(f"invalid environment variable format at line {number}: {what}")
