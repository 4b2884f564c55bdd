"""Which control files a resize changes, to what, and in which order (02 §9).

The values are the difference of two desired trees, the one before and the one after. The order is that of the steps
(`resize_steps`): memory before cpu, a pod that grows before its containers, one that shrinks after them. What no step
writes (a container that is restarted, the sums of class and node, Memory QoS) comes last, from the top down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.allocation import allocation_of
from plimsoll.rules.desired import Cgroup, Level, Workload, desired_tree
from plimsoll.rules.files import controller_of, file_map
from plimsoll.rules.resize_steps import UpdateContainer, WritePod, resize_plan
from plimsoll.rules.setting import Setting

How = Literal["resize", "restart", "follows"]
_Key = tuple[Level, str, str]  # level, name, path
OOM_SCORE_ADJ = "oom_score_adj"


class FileChange(msgspec.Struct, frozen=True, rename="camel"):
    """One file of one cgroup; None: at the kernel's default. `how`: by a step of the resize, with the container's new
    start, or as a sum that follows."""

    level: Level
    name: str
    path: str
    file: str
    before: int | str | None
    after: int | str | None
    how: How


def resize_writes(
    before: Workload, after: Workload, others: Sequence[Workload], setting: Setting
) -> tuple[FileChange, ...]:
    """Every file that differs, once. Both workloads are the same pod, of the same class."""
    changed = _differences(desired_tree([before, *others], setting), desired_tree([after, *others], setting))
    plan = resize_plan(
        after.pod,
        allocation_of(before.pod),
        [each.name for each in after.containers],
        before.values,
        after.values,
        profile=setting.profile,
    )
    found: list[FileChange] = []
    for step in plan.steps:
        for key in [key for key in changed if _belongs(step, key, after, setting)]:
            found.append(_made(key, changed.pop(key), "resize"))
    for restarted in plan.restarts:
        for key in [key for key in changed if key[0][:2] == ("container", restarted)]:
            found.append(_made(key, changed.pop(key), "restart"))
    return (*found, *(_made(key, values, "follows") for key, values in changed.items()))


_Values = tuple[int | str | None, int | str | None]
_FileKey = tuple[_Key, str]


def _belongs(step: WritePod | UpdateContainer, key: _FileKey, after: Workload, setting: Setting) -> bool:
    (level, name, _), file = key
    if isinstance(step, UpdateContainer):
        return (level, name) == ("container", step.container) and controller_of(file) == step.resource
    return (level, name) == ("pod", after.title) and file in file_map(step.values, setting.policy.cgroup_version)


def _differences(before: Cgroup, after: Cgroup) -> dict[_FileKey, _Values]:
    old, new = dict(_flat(before)), dict(_flat(after))
    return {
        key: (old.get(key), value)
        for key, value in [*new.items(), *((key, None) for key in old.keys() - new.keys())]
        if old.get(key) != value
    }


def _flat(cgroup: Cgroup) -> Iterator[tuple[_FileKey, int | str | None]]:
    key: _Key = (cgroup.level, cgroup.name, cgroup.path)
    for file in cgroup.files:
        yield (key, file.name), file.value
    if cgroup.oom_score_adj is not None:
        yield (key, OOM_SCORE_ADJ), cgroup.oom_score_adj
    for child in cgroup.children:
        yield from _flat(child)


def _made(key: _FileKey, values: _Values, how: How) -> FileChange:
    (level, name, path), file = key
    return FileChange(level, name, path, file, *values, how)
