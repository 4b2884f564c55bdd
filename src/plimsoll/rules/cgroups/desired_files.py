"""The desired tree as the engine needs it: path → files as texts, parents before children, in the tree's order.

What explain shows is laid out flat, and two things are added that only matter where cgroups are really made: the
cgroups above kubepods that a cgroup root asks for, and the protection that they and kubepods must hold. The kernel caps
memory.min and memory.low of a cgroup by its parent's, so a sum that stands nowhere above protects nobody (02 §6.2).
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
    name: str  # what people call it
    files: Mapping[str, str]


DesiredFiles = Mapping[str, DesiredCgroup]


def derived_id(uid: str, container: str) -> str:
    """64 hex digits for a container that no runtime has named: the same for the same pod and name."""
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
    """Every cgroup of the tree that is one; raises InvalidName where a path could not be made or stands twice."""
    found: dict[str, DesiredCgroup] = {}
    for cgroup in _cgroups(tree):
        _check_path(cgroup.path)
        for above in ancestors(cgroup.path) if cgroup.level == "pods" else ():
            found[above] = DesiredCgroup("root", above, {})
        if cgroup.path in found:
            raise InvalidNameError(f'{cgroup.path} stands for "{found[cgroup.path].name}" and for "{cgroup.name}"')
        files = {file.name: str(file.value) for file in cgroup.files}
        found[cgroup.path] = DesiredCgroup(cgroup.level, cgroup.name, files)
    return found


def _cgroups(tree: Cgroup) -> Iterator[Cgroup]:
    if tree.path.startswith("/") and tree.level != "node":
        yield tree
    if tree.level != "pod" or tree.path:  # a pod without a cgroup: its containers stand where the runtime puts them
        for child in tree.children:
            yield from _cgroups(child)


def _check_path(path: str) -> None:
    parts = path.split("/")[1:]
    for part in parts:
        if part in ("", ".", "..") or not part.isprintable() or "<" in part:
            raise InvalidNameError(f"{path!r} cannot be the path of a cgroup: {part!r} is no plain name")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise InvalidNameError(f"{path[:80]!r}… cannot be a cgroup: a name is longer than {MAX_NAME_BYTES} bytes")


def protected(plan: DesiredFiles, own_roots: Collection[str]) -> dict[str, DesiredCgroup]:
    """With memory.low of kubepods, and what those cgroups above it that are ours must hold (v2 only has the files)."""
    result = dict(plan)
    top = next((path for path, each in plan.items() if each.level == "pods"), None)
    if top is None:
        return result
    below = sum(
        int(each.files["memory.low"])
        for path, each in plan.items()
        if parent_path(path) == top and "memory.low" in each.files
    )
    if below > int(plan[top].files.get("memory.low", 0)):
        result[top] = _with_files(plan[top], {"memory.low": str(below)})
    held = {name: text for name in PROTECTIONS if int(text := result[top].files.get(name, "0"))}
    for path, each in plan.items():
        if each.level == "root" and path in own_roots:
            result[path] = _with_files(each, held)
    return result


def _with_files(cgroup: DesiredCgroup, files: Mapping[str, str]) -> DesiredCgroup:
    return msgspec.structs.replace(cgroup, files={**cgroup.files, **files})
