"""The cgroups of this machine that an audit compares, and what the kernel offers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import msgspec

from plimsoll.cgroups.drivers.detect import Hierarchies, Mounted
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.cgroups.engine.observe import every_file
from plimsoll.cgroups.stats.live_tree import tree_texts
from plimsoll.codec.kernel.files import enabled_controllers, flat_keyed, mountinfo, pressure
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.machine import HUGEPAGES, text_or_empty, this_machine
from plimsoll.rules.audit.evidence import COUNTERS, KernelFacts
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.cgroups.desired_files import ancestors
from plimsoll.rules.resources.files import hugepage_file

Driver = CgroupsV1 | CgroupsV2
DEEPEST = 4  # levels below the root in which a tree of pods is searched
_MORE_FILES = ("cpuset.cpus", "cpu.max.burst", "notify_on_release")


class ObservedTree(msgspec.Struct, frozen=True):
    cgroups: dict[str, dict[str, str]]
    counters: dict[str, dict[str, int]]
    pods_roots: tuple[str, ...]


def observed_tree(driver: Driver, cgroup_root: str = "/") -> ObservedTree:
    """All trees of pods below the kubelet's cgroupRoot, what is above and beside them, and misplaced containers."""
    top = cgroup_root.rstrip("/")
    roots: list[str] = []
    single: list[str] = []
    for path in _outside(driver, top, DEEPEST):
        owner = owner_of(path)
        if owner.kind == "pods":
            roots.append(path)
        elif owner.misplaced or path.count("/") == top.count("/") + 1:
            single.append(path)
    single += [above for root in roots for above in ancestors(root) if above not in single]
    files = [*every_file(driver.version), *_hugepage_files(driver), *_MORE_FILES, *COUNTERS]
    cgroups: dict[str, dict[str, str]] = {}
    counters: dict[str, dict[str, int]] = {}
    for root, deepest in [*((path, 0) for path in single), *((path, None) for path in roots)]:
        bottom = None if deepest is None else root.count("/")
        for path, texts in tree_texts(driver, root, files, bottom, everywhere=True):
            if bottom is not None and path != root:
                break
            counters[path] = _figures(texts)
            cgroups[path] = {
                name: text.decode("utf-8", "replace").strip() for name, text in texts.items() if name not in COUNTERS
            }
    return ObservedTree(cgroups, counters, tuple(roots))


def _figures(texts: Mapping[str, bytes]) -> dict[str, int]:
    found: dict[str, int] = {}
    for file, keys in COUNTERS.items():
        known = flat_keyed(texts[file]) if file in texts else {}
        found |= {f"{file}:{key}": known[key] for key in keys if key in known}
    return found


def _outside(driver: Driver, below: str, depth: int) -> Iterator[str]:
    """Cgroups that belong to no pod, and the tops of trees of pods."""
    for name in driver.children(below or "/"):
        path = f"{below}/{name}"
        yield path
        owner = owner_of(path)
        if depth > 1 and owner.kind == "other" and not owner.misplaced:
            yield from _outside(driver, path, depth - 1)


def _hugepage_files(driver: Driver) -> list[str]:
    if not os.path.isdir(HUGEPAGES):
        return []
    sizes = (name.removeprefix("hugepages-").removesuffix("kB") for name in sorted(os.listdir(HUGEPAGES)))
    return [hugepage_file(int(size) * 1024, driver.version) for size in sizes]


# --- the kernel ---


def kernel_facts(host: Hierarchies, driver: Driver, pods_roots: tuple[str, ...]) -> KernelFacts:
    machine = this_machine()
    return KernelFacts(
        os.uname().release,
        host.version,
        machine.cores,
        machine.memory_bytes,
        _controllers(host, driver),
        _stall("cpu") is not None,
        _reclaims(driver, pods_roots) if isinstance(driver, CgroupsV2) else None,
        _recursive_protection(host.unified) if host.version == 2 else None,
        _number("/proc/sys/kernel/pid_max"),
        _number("/proc/sys/kernel/threads-max"),
        machine.page_size,
        machine.swap_bytes,
        {} if isinstance(driver, CgroupsV2) else _release_agents(driver),
        "memory" in enabled_controllers(text_or_empty("/proc/cgroups")),
        _stall("cpu"),
    )


def _controllers(host: Hierarchies, driver: Driver) -> tuple[str, ...]:
    if isinstance(driver, CgroupsV2):
        return tuple(sorted(driver.controllers()))
    return tuple(sorted(name for name in host.v1 if not name.startswith("name=")))


def _stall(resource: str) -> float | None:
    """The share of the last minute in which some task waited; None without PSI."""
    try:
        text = text_or_empty(f"/proc/pressure/{resource}")
    except OSError:  # psi=0: the file exists and cannot be read
        return None
    some = pressure(text).some if text else None
    return None if some is None else some.avg60


def _reclaims(driver: CgroupsV2, pods_roots: tuple[str, ...]) -> bool | None:
    for path in pods_roots:
        try:
            with driver.mount.directory(path) as directory:
                return directory.has("memory.reclaim")
        except CgroupError:
            continue
    return None


def _recursive_protection(unified: Mounted | None) -> bool | None:
    """A flag of the mount, shown in mountinfo."""
    for line in mountinfo(text_or_empty("/proc/self/mountinfo")):
        if line.file_system == "cgroup2" and (unified is None or line.mount_point == unified.mount_point):
            return "memory_recursiveprot" in line.super_options
    return None


def _release_agents(driver: CgroupsV1) -> dict[str, str]:
    """Programs that the kernel starts when a cgroup gets empty; only the root of a hierarchy names one."""
    found = {}
    for name, mount in driver.hierarchies.items():
        try:
            with mount.directory("/") as directory:
                program = directory.read_if_there("release_agent")
        except CgroupError:
            continue
        if program:
            found[name] = program
    return found


def _number(path: str) -> int | None:
    text = text_or_empty(path).strip()
    return int(text) if text.isdecimal() else None
