"""Reads the machine's CDI files, and checks the device files that they name."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.rules.devices.cdi import CdiEdits, CdiError, CdiFile, CdiNode, cdi_edits

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")  # the later one wins
_MOST_BYTES = 4 << 20
log = logging.getLogger(__name__)
_KINDS = {"c": stat.S_ISCHR, "u": stat.S_ISCHR, "b": stat.S_ISBLK, "p": stat.S_ISFIFO}


def host_edits(names: Iterable[str], directories: Iterable[str] = DIRECTORIES) -> CdiEdits:
    """What these devices add to a container on this machine. Raises CdiError."""
    edits = cdi_edits(names, _files(directories))
    for node in edits.nodes:
        _check(node)
    return edits


def _files(directories: Iterable[str]) -> Iterator[CdiFile]:
    """A file that cannot be read describes no device, and is named in the log."""
    for priority, directory in enumerate(directories):
        for path in sorted(Path(directory).glob("*")):
            if path.suffix not in (".json", ".yaml"):
                continue
            try:
                with path.open("rb") as file:
                    documents = list(read(file.read(_MOST_BYTES)))
            except OSError as error:
                log.warning("the CDI file %s: %s", path, error.strerror)
                continue
            if len(documents) != 1 or isinstance(documents[0], YamlError):
                bad = next((each for each in documents if isinstance(each, YamlError)), None)
                log.warning("the CDI file %s: %s", path, bad or "expected one document")
                continue
            yield CdiFile(str(path), priority, documents[0].value)


def _check(node: CdiNode) -> None:
    """The file is shown to the container as it is on the host."""
    try:
        found = os.stat(node.host_path)
    except OSError as error:
        raise CdiError(f"device file {node.host_path}: {error.strerror}") from error
    if not any(is_kind(found.st_mode) for is_kind in _KINDS.values()):
        raise CdiError(f"{node.host_path} is not a device file")
    wanted = {
        "type": (not node.kind or _KINDS[node.kind](found.st_mode), node.kind),
        "major and minor": (
            node.number is None or node.number == (os.major(found.st_rdev), os.minor(found.st_rdev)),
            node.number,
        ),
        "fileMode": (node.mode is None or stat.S_IMODE(node.mode) == stat.S_IMODE(found.st_mode), node.mode),
        "uid": (node.owner[0] in (None, found.st_uid), node.owner[0]),
        "gid": (node.owner[1] in (None, found.st_gid), node.owner[1]),
    }
    for field, (is_same, value) in wanted.items():
        if not is_same:
            raise CdiError(
                f"device file {node.host_path}: {field} {value} differs from that of the host, "
                "which needs a CRI runtime; set containerRuntimeEndpoint"
            )
