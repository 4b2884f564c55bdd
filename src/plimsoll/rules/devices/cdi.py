"""The Container Device Interface: what the named devices add to a container.

A CDI file describes devices of one kind, `vendor.com/class`, each with its edits, and edits that come with any of them.
A device is named `vendor.com/class=device`. Specification: https://github.com/cncf-tags/container-device-interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.errors import PlimsollError

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
# Options of mounts that hold for every mount of a container here; `ro` is honoured.
_MOUNT_OPTIONS = frozenset({"ro", "rw", "bind", "rbind", "nosuid", "nodev", "private", "rprivate"})
_APPLIED = frozenset({"env", "deviceNodes", "mounts", "additionalGids"})


class CdiError(PlimsollError):
    """A device cannot be given to a container, with the reason."""


class CdiFile(msgspec.Struct, frozen=True):
    """`priority`: that of its directory. Of two files with the same device the one with the higher priority counts."""

    path: str
    priority: int
    document: Any


class CdiNode(msgspec.Struct, frozen=True):
    """A device file. `number`, `mode` and `owner` are what the file of the host must have, if they are given."""

    host_path: str
    container_path: str
    permissions: str = "rw"
    kind: str = ""  # c, u, b, p; "": as on the host
    number: tuple[int, int] | None = None
    mode: int | None = None
    owner: tuple[int | None, int | None] = (None, None)


class CdiMount(msgspec.Struct, frozen=True):
    host_path: str
    container_path: str
    read_only: bool


class CdiEdits(msgspec.Struct, frozen=True):
    environment: dict[str, str] = {}
    nodes: tuple[CdiNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    groups: tuple[int, ...] = ()


def cdi_edits(names: Iterable[str], files: Iterable[CdiFile]) -> CdiEdits:
    """What these devices add together. Raises CdiError."""
    known = list(files)
    parts: list[tuple[str, Any]] = []
    seen: set[str] = set()
    for name in names:
        kind, _, device = name.partition("=")
        if not _KIND.fullmatch(kind) or not _DEVICE.fullmatch(device):
            raise CdiError(f"device {name!r}: not a CDI name such as vendor.com/class=device")
        file, own = _found(name, kind, device, known)
        if file.path not in seen:
            seen.add(file.path)
            parts.append((f"{file.path}: containerEdits", file.document.get("containerEdits")))
        parts.append((f"{file.path}: device {device}", own.get("containerEdits")))
    return _joined([_edits(where, edits) for where, edits in parts])


def _found(name: str, kind: str, device: str, files: list[CdiFile]) -> tuple[CdiFile, Mapping[str, Any]]:
    found = [
        (file, each)
        for file in files
        if isinstance(file.document, dict) and file.document.get("kind") == kind
        for each in _list(file.path, file.document, "devices")
        if isinstance(each, dict) and each.get("name") == device
    ]
    if not found:
        raise CdiError(f"device {name}: no CDI file describes it; add the vendor's to /etc/cdi")
    highest = max(file.priority for file, _ in found)
    chosen = [(file, each) for file, each in found if file.priority == highest]
    if len(chosen) > 1:
        paths = ", ".join(sorted({file.path for file, _ in chosen}))
        raise CdiError(f"device {name}: it is described more than once, in {paths}")
    return chosen[0]


def _joined(parts: list[CdiEdits]) -> CdiEdits:
    """Later ones win for the same variable or path."""
    environment: dict[str, str] = {}
    for each in parts:
        environment |= each.environment
    return CdiEdits(
        environment,
        tuple({node.container_path: node for each in parts for node in each.nodes}.values()),
        tuple({mount.container_path: mount for each in parts for mount in each.mounts}.values()),
        tuple(dict.fromkeys(group for each in parts for group in each.groups)),
    )


def _edits(where: str, edits: Any) -> CdiEdits:
    if edits is None:
        return CdiEdits()
    if not isinstance(edits, dict):
        raise CdiError(f"{where}: containerEdits must be an object")
    if unknown := sorted(name for name, value in edits.items() if name not in _APPLIED and value):
        raise CdiError(f"{where}: {unknown[0]} needs a CRI runtime; set containerRuntimeEndpoint")
    environment = {}
    for text in _list(where, edits, "env"):
        variable, equals, value = str(text).partition("=")
        if not variable or not equals or "\0" in value:
            raise CdiError(f"{where}: env must be NAME=VALUE, not {str(text)[:80]!r}")
        environment[variable] = value
    groups = _list(where, edits, "additionalGids")
    if not all(type(each) is int and 0 <= each < 2**31 for each in groups):
        raise CdiError(f"{where}: additionalGids must be numbers of groups")
    return CdiEdits(
        environment,
        tuple(_node(where, each) for each in _list(where, edits, "deviceNodes")),
        tuple(_mount(where, each) for each in _list(where, edits, "mounts")),
        tuple(groups),
    )


def _node(where: str, node: Any) -> CdiNode:
    path = _path(where, node, "path")
    numbers = node.get("major"), node.get("minor")
    mode, owner = node.get("fileMode"), (node.get("uid"), node.get("gid"))
    if not all(each is None or type(each) is int for each in (*numbers, mode, *owner)):
        raise CdiError(f"{where}: {path}: major, minor, fileMode, uid and gid must be numbers")
    permissions, kind = node.get("permissions") or "rwm", node.get("type") or ""
    if not set(permissions) <= set("rwm") or kind not in ("", "c", "u", "b", "p"):
        raise CdiError(f"{where}: {path}: type must be c, u, b or p, and permissions of r, w and m")
    host = _path(where, node, "hostPath") if node.get("hostPath") else path
    number = None if None in numbers else (int(numbers[0]), int(numbers[1]))
    return CdiNode(host, path, permissions, kind, number, mode, owner)


def _mount(where: str, mount: Any) -> CdiMount:
    host, path = _path(where, mount, "hostPath"), _path(where, mount, "containerPath")
    options = {str(each) for each in _list(where, mount, "options")}
    if mount.get("type") not in (None, "", "bind", "none") or not options <= _MOUNT_OPTIONS:
        described = ", ".join(sorted(options - _MOUNT_OPTIONS)) or f"type {mount['type']}"
        raise CdiError(f"{where}: mount at {path}: {described} needs a CRI runtime; set containerRuntimeEndpoint")
    return CdiMount(host, path, "ro" in options)


def _path(where: str, owner: Any, field: str) -> str:
    path = owner.get(field) if isinstance(owner, dict) else None
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise CdiError(f"{where}: {field} must be an absolute path without ..")
    return path


def _list(where: str, owner: Mapping[str, Any], field: str) -> list[Any]:
    found = owner.get(field)
    if found is None:
        return []
    if not isinstance(found, list):
        raise CdiError(f"{where}: {field} must be a list")
    return found
