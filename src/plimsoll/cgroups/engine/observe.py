"""Driver → Snapshot: every cgroup is read once, with all its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.rules.blockio.files import KEYED_FILES
from plimsoll.rules.cgroups.desired_files import DesiredFiles
from plimsoll.rules.cgroups.reconcile import RESETS
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Snapshot, Step, Write
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.files import FilesV1, FilesV2


def observe(driver: CgroupDriver, paths: Iterable[str], files: Collection[str]) -> Snapshot:
    """The cgroups among these paths that exist."""
    cgroups = {path: driver.read(path, files) for path in paths}
    return {path: cgroup for path, cgroup in cgroups.items() if cgroup is not None}


def observe_removed(driver: CgroupDriver, paths: Iterable[str], files: Collection[str]) -> Snapshot:
    """All of these paths. On v1, a cgroup that is left in some hierarchies only (its runtime was killed) does not read
    as one, and still keeps its parent busy; one that is removed already does no harm.
    """
    return {path: driver.read(path, files) or ObservedCgroup({}) for path in paths}


def walk(driver: CgroupDriver, path: str) -> Iterator[str]:
    """All descendants of a cgroup, parents first, without the cgroup itself."""
    for name in driver.children(path):
        child = f"{path.rstrip('/')}/{name}"
        yield child
        yield from walk(driver, child)


def files_to_read(plan: DesiredFiles, version: CgroupVersion, *, io: bool = False) -> list[str]:
    """The files that any cgroup of the plan has, and those that must be reset where it has none. `io`: whether the node
    controls block I/O; otherwise what others have set is not touched."""
    desired = {file for cgroup in plan.values() for file in cgroup.files}
    return sorted({*desired, *set(RESETS).intersection(every_file(version)), *(KEYED_FILES[version] if io else ())})


@cache
def every_file(version: CgroupVersion) -> tuple[str, ...]:
    """Every file that any plan writes: for cgroups that are removed and that a rollback may have to restore."""
    return tuple(field.encode_name for field in msgspec.structs.fields(FilesV2 if version == 2 else FilesV1))


def observe_touched(driver: CgroupDriver, steps: Iterable[Step]) -> Snapshot:
    """The cgroups and files that the steps change."""
    files: dict[str, list[str]] = {}
    for step in steps:
        match step:
            case Make(path) | Remove(path):
                files.setdefault(path, [])
            case Write(path, name):
                files.setdefault(path, []).append(name)
    cgroups = {path: driver.read(path, names) for path, names in files.items()}
    return {path: cgroup for path, cgroup in cgroups.items() if cgroup is not None}
