"""A cgroup path → pod, QoS class, container and runtime (02 §2): `rules.model.cgroup_names`, read backwards.

A path is parsed from the top: `kubepods` (below cgroupRoot, or inside a container of another engine), then the class if
there is one, then the pod. Under systemd each name repeats its ancestors, so one slice is enough. Below the pod is a
container as its runtime names it; anything further down belongs to the container.

A driver mismatch shows as one name at the top, `<pod slice>:<prefix>:<id>`: the container runs outside its pod's cgroup
and none of the pod's limits apply (02 §2.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.model.cgroup_names import (
    KUBEPODS,
    SCOPE_PREFIX,
    CgroupName,
    Driver,
    Runtime,
    is_systemd_style,
    parse_systemd,
)
from plimsoll.rules.model.objects import QoSClass

Kind = Literal["pods", "class", "pod", "container", "monitor", "inside", "other"]

_CLASSES: dict[str, QoSClass] = {"burstable": "Burstable", "besteffort": "BestEffort"}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_MONITOR = "crio-conmon-"
_PREFIXES: dict[str, Runtime] = {_MONITOR: "crio", **{prefix: runtime for runtime, prefix in SCOPE_PREFIX.items()}}
# Hierarchies in order of interest; a process may be in a different cgroup in each.
_PREFERRED = ("memory", "cpu", "pids")
_LIMITING = frozenset({"memory", "cpu", "cpuacct", "cpuset", "pids", "hugetlb"})


class CgroupOwner(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What one path contains. `runtime` is None if several runtimes use that spelling."""

    path: str
    kind: Kind
    driver: Driver | None = None
    pods_root: str = ""  # the path of kubepods
    qos_class: QoSClass | None = None
    pod_uid: str = ""
    container_id: str = ""
    runtime: Runtime | None = None
    inside: str = ""  # what follows below the container's cgroup
    misplaced: bool = False


class Placed(msgspec.Struct, frozen=True, rename="camel"):
    """A process: its cgroup in the most relevant hierarchy, and the hierarchies that differ."""

    owner: CgroupOwner
    elsewhere: dict[str, str]  # controllers → path, for limiting controllers with the process in another cgroup


def placed(cgroups: Iterable[tuple[Sequence[str], str]]) -> Placed:
    """From (controllers, path) of each hierarchy; the unified one has no controllers. A pod in any of them counts."""
    known = [(tuple(controllers), path, owner_of(path)) for controllers, path in cgroups]
    if not known:
        return Placed(CgroupOwner("/", "other"), {})
    owner = min(known, key=lambda each: (not each[2].pod_uid, _rank(each[0])))[2]
    elsewhere: dict[str, str] = {}
    if owner.pod_uid:
        for controllers, path, other in known:
            same = (other.pod_uid, other.container_id) == (owner.pod_uid, owner.container_id)
            if not same and not _LIMITING.isdisjoint(controllers):
                elsewhere[",".join(controllers)] = path
    return Placed(owner, elsewhere)


def _rank(controllers: tuple[str, ...]) -> int:
    ranks = [_PREFERRED.index(name) for name in controllers if name in _PREFERRED]
    return min(ranks, default=len(_PREFERRED) + bool(controllers))


def owner_of(path: str) -> CgroupOwner:
    names = [name for name in path.split("/") if name]
    while names and names[0] == "..":  # seen from another cgroup namespace
        del names[0]
    for index, name in enumerate(names):
        if ":" in name and (found := _misplaced(path, name)) is not None:
            return found
        if is_systemd_style(name):
            place = parse_systemd(name)
            if KUBEPODS in place:
                return _from_slices(path, names, index, place)
        elif name == KUBEPODS:
            return _from_directories(path, names, index)
    return CgroupOwner(path, "other")


def _from_slices(path: str, names: list[str], index: int, place: CgroupName) -> CgroupOwner:
    """Each further slice below kubepods adds a level; the first other name is the container."""
    root = _joined(names[: index + 1])
    while index + 1 < len(names) and is_systemd_style(names[index + 1]):
        deeper = parse_systemd(names[index + 1])
        if deeper[: len(place)] != place:
            break
        index, place = index + 1, deeper
    below = place[place.index(KUBEPODS) + 1 :]
    return _below_kubepods(path, "systemd", root, below, names[index + 1 :])


def _from_directories(path: str, names: list[str], index: int) -> CgroupOwner:
    root, rest = _joined(names[: index + 1]), names[index + 1 :]
    depth = 0
    if rest and rest[0] in _CLASSES:
        depth = 1
    if len(rest) > depth and _uid(rest[depth]):
        depth += 1
    return _below_kubepods(path, "cgroupfs", root, tuple(rest[:depth]), rest[depth:])


def _below_kubepods(path: str, driver: Driver, root: str, below: CgroupName, rest: list[str]) -> CgroupOwner:
    qos: QoSClass = _CLASSES.get(below[0], "Guaranteed") if below else "Guaranteed"
    uid = _uid(below[-1]) if below else ""
    if not uid:
        if rest or len(below) > 1 or (below and below[0] not in _CLASSES):
            return CgroupOwner(path, "other", driver, root)
        return CgroupOwner(path, "class" if below else "pods", driver, root, qos if below else None)
    if not rest:
        return CgroupOwner(path, "pod", driver, root, qos, uid)
    kind, container_id, runtime = _container(rest[0])
    if kind == "container" and len(rest) > 1:
        kind = "inside"
    return CgroupOwner(path, kind, driver, root, qos, uid, container_id, runtime, _joined(rest[1:]) if rest[1:] else "")


def _container(name: str) -> tuple[Kind, str, Runtime | None]:
    """A scope has its runtime's prefix; a directory has one only under CRI-O."""
    stem, scope = name.removesuffix(".scope"), name.endswith(".scope")
    for prefix, runtime in _PREFIXES.items():
        if stem.startswith(prefix) and (scope or runtime == "crio"):
            return "monitor" if prefix == _MONITOR else "container", stem.removeprefix(prefix), runtime
    if scope:  # another engine's, such as docker-<id>.scope
        stem = stem.rpartition("-")[2]
    return ("container", stem, None) if _PLAIN.fullmatch(stem) else ("other", "", None)


def _misplaced(path: str, name: str) -> CgroupOwner | None:
    slice_name, _, tail = name.partition(":")
    prefix, colon, container_id = tail.partition(":")
    if not colon or not is_systemd_style(slice_name):
        return None
    place = parse_systemd(slice_name)
    if KUBEPODS not in place:
        return None
    found = _below_kubepods(path, "systemd", "", place[place.index(KUBEPODS) + 1 :], [])
    if not found.pod_uid:
        return None
    return msgspec.structs.replace(
        found, kind="container", container_id=container_id, runtime=_PREFIXES.get(f"{prefix}-"), misplaced=True
    )


def _uid(component: str) -> str:
    return component[3:] if component.startswith("pod") and len(component) > 3 else ""


def _joined(names: Sequence[str]) -> str:
    return "/" + "/".join(names)
