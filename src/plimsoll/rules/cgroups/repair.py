"""Values that another process has changed: which differences between the kernel and the desired state are repaired.

UpdateCgroups of the kubelet rewrites the class cgroups every minute; here every cgroup of the node, its classes, its
pods and their containers is compared, and only what differs is written. A container's cgroup that does not exist is not
a difference: its container has ended. A limit of an upper cgroup that its usage does not allow yet is no difference
either (`limits_in_use`): it is lowered as the usage falls, and not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from plimsoll.rules.cgroups.desired_files import DesiredFiles
from plimsoll.rules.cgroups.reconcile import RESETS, Plan
from plimsoll.rules.cgroups.rounding import kept, same_value
from plimsoll.rules.cgroups.steps import Make, Step, Write

# Limits that a runtime's container has only where the pod says so.
RUNTIME_RESETS = frozenset({"memory.max", "cpu.max", "memory.limit_in_bytes", "cpu.cfs_quota_us"})


class Difference(msgspec.Struct, frozen=True):
    """One file; without a file, the cgroup itself, which does not exist."""

    path: str
    level: str
    file: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        if not self.file:
            return f"{self.path} did not exist"
        return (
            f"{self.file} of {self.path} was {kept(self.file, self.found)} instead of {kept(self.file, self.expected)}"
        )


class Repair(msgspec.Struct, frozen=True):
    """`uid`: of the pod whose cgroup it is, "" for a cgroup of the node. `refused`: why it stays as it is."""

    uid: str
    difference: Difference
    refused: str = ""

    @property
    def message(self) -> str:
        if self.refused:
            return f"{self.difference} and could not be repaired: {self.refused}; retried"
        return f"{self.difference}: another process has changed it; repaired"


FileOfCgroup = tuple[str, str]  # path, file


def repair_plan(plan: Plan, desired: DesiredFiles, refused: Collection[FileOfCgroup] = ()) -> Plan:
    """Without the cgroups of containers that have ended, and without files that the kernel has just `refused`."""
    gone = {step.path for step in plan.steps if isinstance(step, Make) and desired[step.path].level == "container"}

    def is_repair(step: Step) -> bool:
        if step.path in gone:
            return False
        return not isinstance(step, Write) or (step.path, step.file) not in refused

    return Plan(tuple(step for step in plan.steps if is_repair(step)), plan.unmet)


def differences(plan: Plan, desired: DesiredFiles) -> list[Difference]:
    """What a plan repairs, in its order."""
    known = {(each.path, each.file) for each in plan.unmet}
    found: list[Difference] = []
    for step in plan.steps:
        match step:
            case Make(path):
                found.append(Difference(path, desired[path].level))
            case Write(path) if step.was is not None and (path, step.file) not in known:
                found.append(difference_of(step, desired))
    return found


def difference_of(step: Write, desired: DesiredFiles) -> Difference:
    return Difference(step.path, desired[step.path].level, step.file, step.value, step.was or "")


def runtime_differences(
    path: str, desired: Mapping[str, str], seen: Mapping[str, str], page_size: int = 4096
) -> list[Difference]:
    """In a container's cgroup that a CRI runtime writes: the desired files, and limits that it should not have."""
    resets = {file: text for file, text in RESETS.items() if file in RUNTIME_RESETS}
    return [
        Difference(path, "container", file, text, seen[file])
        for file, text in {**resets, **desired}.items()
        if file in seen and not same_value(file, text, seen[file], page_size)
    ]
