"""Reads the files that a container's environment refers to (`fileKeyRef`), from volumes that other containers write."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from plimsoll.linux.files.safe_tree import closing_fd, open_within
from plimsoll.node.volumes.volumes import Ready
from plimsoll.rules.lifecycle.environment_files import EnvironmentFile
from plimsoll.rules.model.runnable import RunContainer

MOST_BYTES = 1 << 20  # no more than this fits into an environment; a container must not fill the agent's memory
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # a FIFO must not block the agent


def environment_files(container: RunContainer, volumes: Mapping[str, Ready]) -> dict[tuple[str, str], EnvironmentFile]:
    """By volume and path; a volume that is not set up has none."""
    references = [each.value_from.file_key_ref for each in container.env if each.value_from is not None]
    return {
        (each.volume_name, each.path): _read(volumes[each.volume_name].path, each.path)
        for each in references
        if each is not None and each.volume_name in volumes
    }


def _read(directory: str, path: str) -> EnvironmentFile:
    where = f"{directory}/{path}"
    try:
        with (
            closing_fd(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as top,
            closing_fd(open_within(top, path, _FLAGS)) as file,
        ):
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return EnvironmentFile(where, problem=f"{path} is not a regular file")
            with os.fdopen(os.dup(file), "rb") as stream:
                data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        return EnvironmentFile(where, problem=f"{path}: {error.strerror}")
    if len(data) > MOST_BYTES:
        return EnvironmentFile(where, problem=f"{path} has more than {MOST_BYTES} bytes")
    return EnvironmentFile(where, data.decode("utf-8", "surrogateescape"))
