"""Driver → Snapshot: every cgroup is looked at once, all its files in one go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.rules.cgroups.desired_files import DesiredFiles
from plimsoll.rules.cgroups.reconcile import RESETS
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Snapshot, Step, Write
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.files import FilesV1, FilesV2


def observe(driver: CgroupDriver, paths: Iterable[str], files: Collection[str]) -> Snapshot:
    """Those of the paths that exist."""
    seen = {path: driver.look(path, files) for path in paths}
    return {path: each for path, each in seen.items() if each is not None}


def observe_going(driver: CgroupDriver, paths: Iterable[str], files: Collection[str]) -> Snapshot:
    """All of them: on v1 one that stands in some hierarchies only (a runtime was killed half-way) is not seen as a
    cgroup, and would keep its parent busy. One that is gone by then is as good.
    """
    return {path: driver.look(path, files) or ObservedCgroup({}) for path in paths}


def walk(driver: CgroupDriver, path: str) -> Iterator[str]:
    """Everything below a cgroup, parents first; the cgroup itself is not among them."""
    for name in driver.children(path):
        below = f"{path.rstrip('/')}/{name}"
        yield below
        yield from walk(driver, below)


def files_to_look_at(plan: DesiredFiles, version: CgroupVersion) -> list[str]:
    """What is wanted anywhere, and what would have to be reset where it is not."""
    wanted = {file for cgroup in plan.values() for file in cgroup.files}
    return sorted(wanted | set(RESETS).intersection(every_file(version)))


@cache
def every_file(version: CgroupVersion) -> tuple[str, ...]:
    """All that is ever written, whatever a plan is about: for cgroups that go and may have to come back."""
    return tuple(field.encode_name for field in msgspec.structs.fields(FilesV2 if version == 2 else FilesV1))


def observe_touched(driver: CgroupDriver, steps: Iterable[Step]) -> Snapshot:
    """The cgroups that the steps are about, as far as the steps are about them."""
    files: dict[str, list[str]] = {}
    for step in steps:
        match step:
            case Make(path) | Remove(path):
                files.setdefault(path, [])
            case Write(path, name):
                files.setdefault(path, []).append(name)
    found: dict[str, ObservedCgroup] = {}
    for path, names in files.items():
        seen = driver.look(path, names)
        if seen is not None:
            found[path] = seen
    return found
