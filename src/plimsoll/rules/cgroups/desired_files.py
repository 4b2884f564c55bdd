"""The desired tree for the cgroup engine: path → files as texts, parents before children, in the tree's order.

The tree of `desired` is flattened, and two things are added that only matter where cgroups are created: the cgroups
above kubepods that cgroupRoot names, and the protection that they and kubepods need. The kernel caps memory.min and
memory.low of a cgroup by its parent's, so protection without the same sum in every ancestor has no effect (02 §6.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec

from plimsoll.errors import InvalidNameError
from plimsoll.rules.cgroups.desired import Cgroup, Level

MAX_NAME_BYTES = 255  # of one directory, and of one systemd unit
PROTECTIONS = ("memory.min", "memory.low")


class DesiredCgroup(msgspec.Struct, frozen=True):
    level: Level | Literal["root"]  # root: above kubepods
    name: str  # for people
    files: Mapping[str, str]


DesiredFiles = Mapping[str, DesiredCgroup]


def derived_id(uid: str, container: str) -> str:
    """64 hex digits for a container without a runtime's id: the same for the same pod and name."""
    return hashlib.sha256(f"{uid}/{container}".encode()).hexdigest()


def parent_path(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def depth(path: str) -> int:
    return path.count("/")


def is_below(path: str, ancestor: str) -> bool:
    return path.startswith(f"{ancestor.rstrip('/')}/")


def ancestors(path: str) -> list[str]:
    """Everything strictly between the root and the path, from the top."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: index + 1]) for index in range(len(parts))]


def wanted(tree: Cgroup) -> dict[str, DesiredCgroup]:
    """Every cgroup of the tree; raises InvalidNameError for a path that is invalid or listed twice."""
    found: dict[str, DesiredCgroup] = {}
    for cgroup in _cgroups(tree):
        _check_path(cgroup.path)
        for above in ancestors(cgroup.path) if cgroup.level == "pods" else ():
            found[above] = DesiredCgroup("root", above, {})
        if cgroup.path in found:
            raise InvalidNameError(f'{cgroup.path} is both "{found[cgroup.path].name}" and "{cgroup.name}"')
        files = {file.name: str(file.value) for file in cgroup.files}
        found[cgroup.path] = DesiredCgroup(cgroup.level, cgroup.name, files)
    return found


def _cgroups(tree: Cgroup) -> Iterator[Cgroup]:
    if tree.path.startswith("/") and tree.level != "node":
        yield tree
    if tree.level != "pod" or tree.path:  # a pod without a cgroup: the runtime chooses where its containers are
        for child in tree.children:
            yield from _cgroups(child)


def _check_path(path: str) -> None:
    parts = path.split("/")[1:]
    for part in parts:
        if part in ("", ".", "..") or not part.isprintable() or "<" in part:
            raise InvalidNameError(f"{path!r} cannot be the path of a cgroup: {part!r} is not a plain name")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise InvalidNameError(f"{path[:80]!r}… cannot be a cgroup: a name is longer than {MAX_NAME_BYTES} bytes")


def protected(plan: DesiredFiles, own_roots: Collection[str]) -> dict[str, DesiredCgroup]:
    """Adds memory.low of kubepods, and the protection of owned cgroups above it; these files exist on v2 only."""
    result = dict(plan)
    top = next((path for path, cgroup in plan.items() if cgroup.level == "pods"), None)
    if top is None:
        return result
    below = sum(
        int(cgroup.files["memory.low"])
        for path, cgroup in plan.items()
        if parent_path(path) == top and "memory.low" in cgroup.files
    )
    if below > int(plan[top].files.get("memory.low", 0)):
        result[top] = _with_files(plan[top], {"memory.low": str(below)})
    protection = {name: text for name in PROTECTIONS if int(text := result[top].files.get(name, "0"))}
    for path, cgroup in plan.items():
        if cgroup.level == "root" and path in own_roots:
            result[path] = _with_files(cgroup, protection)
    return result


def _with_files(cgroup: DesiredCgroup, files: Mapping[str, str]) -> DesiredCgroup:
    return msgspec.structs.replace(cgroup, files={**cgroup.files, **files})
