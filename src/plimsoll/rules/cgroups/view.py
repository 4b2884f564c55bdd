"""A live cgroup tree as rows: what each cgroup is, what people call it, where it stands; and memory as a bar.

Rows come in the order in which the node protects: pods of the Guaranteed class (they stand directly below kubepods),
then the burstable and the besteffort class, then whatever else is there. In a pod the sandbox comes last.

A bar shows the working set (what cannot be dropped without a fault) and the cache beyond it, which the kernel takes
back before anybody is hurt. Its scale is the cgroup's own limit or, without one, the nearest limit above it, or the
machine. The marks on it are where the kernel's behaviour changes: below `min` nothing is reclaimed, below `low` hardly
anything, above `high` the tasks are slowed down.

How many tasks of a cgroup do what: the five counts of the kernel's cgroupstats, and the kubelet's line about them.

On v1 the kernel counts by itself. On v2 the same counts come from the state letter in each task's /proc stat line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, owner_of
from plimsoll.rules.model.objects import QoSClass

# proc(5): t is a task that a debugger holds. I (an idle kernel thread), Z and X are counted nowhere, as in the kernel.
_FIELDS = {"S": "sleeping", "R": "running", "T": "stopped", "t": "stopped", "D": "uninterruptible"}


class TaskStates(msgspec.Struct, frozen=True, rename="camel"):
    """`io_wait` counts tasks that wait for a disk in none of the other states: hardly ever any."""

    sleeping: int = 0
    running: int = 0
    stopped: int = 0
    uninterruptible: int = 0
    io_wait: int = 0

    def __add__(self, other: TaskStates) -> TaskStates:
        return TaskStates(
            self.sleeping + other.sleeping,
            self.running + other.running,
            self.stopped + other.stopped,
            self.uninterruptible + other.uninterruptible,
            self.io_wait + other.io_wait,
        )

    def total(self) -> int:
        return self.sleeping + self.running + self.stopped + self.uninterruptible + self.io_wait


NO_TASKS = TaskStates()


def counted(letters: Iterable[str]) -> TaskStates:
    counts: dict[str, int] = {}
    for letter in letters:
        if (field := _FIELDS.get(letter)) is not None:
            counts[field] = counts.get(field, 0) + 1
    return TaskStates(**counts)


def log_line(directory: str, states: TaskStates) -> str:
    """As the kubelet prints it, character by character (document 004, 5.4)."""
    return (
        f'Task stats for "{directory}": {{NrSleeping:{states.sleeping} NrRunning:{states.running} '
        f"NrStopped:{states.stopped} NrUninterruptible:{states.uninterruptible} NrIoWait:{states.io_wait}}}"
    )


What = Literal["pods", "class", "pod", "container", "sandbox", "monitor", "cgroup"]
Ink = Literal["used", "cache", "free", "mark"]

_CLASS_ORDER = {"Burstable": 1, "BestEffort": 2}
_IN_POD = {"container": 0, "sandbox": 2, "monitor": 3}
SHORT_ID = 12  # as docker and crictl print them

USED, USED_HALF, CACHE, FREE = "━", "╸", "─", "╌"
MARKS = {"min": ("╋", "┼"), "low": ("┻", "┴"), "high": ("┳", "┬")}  # on used ground, on free ground


class Names(msgspec.Struct, frozen=True):
    """What people call things, as far as it is known."""

    pods: Mapping[str, str] = {}  # uid → namespace/name
    containers: Mapping[str, str] = {}  # id → name


class Branch(msgspec.Struct, frozen=True):
    """One cgroup's place in the picture. `last` says of each level whether nothing follows there."""

    path: str
    what: What
    name: str  # as short as it stays clear; `path` has all of it
    owner: CgroupOwner
    last: tuple[bool, ...] = ()
    hidden: int = 0  # how many cgroups below are left out because of the depth

    @property
    def qos_class(self) -> QoSClass | None:
        return self.owner.qos_class


NO_NAMES = Names()


def branches(
    paths: Iterable[str],
    root: str,
    *,
    names: Names = NO_NAMES,
    sandboxes: Collection[str] = (),
    depth: int | None = None,
) -> list[Branch]:
    """Rows for `root` and all of `paths` below it; `sandboxes` are the paths of pause containers."""
    below: dict[str, list[str]] = {}
    for path in paths:
        if path != root:
            below.setdefault(path.rpartition("/")[0] or "/", []).append(path)
    rows: list[Branch] = []

    def add(path: str, what: What, name: str, owner: CgroupOwner, last: tuple[bool, ...]) -> None:
        if depth is not None and len(last) >= depth:
            rows.append(Branch(path, what, name, owner, last, _count(path, below)))
            return
        rows.append(Branch(path, what, name, owner, last))
        children = []
        for child in below.get(path, ()):
            found = owner_of(child)
            kind = _what(found, child in sandboxes)
            children.append((_rank(kind, found), _name(found, kind, names), child, kind, found))
        children.sort(key=lambda each: each[:3])
        for index, (_, shown, child, kind, found) in enumerate(children):
            add(child, kind, shown, found, (*last, index == len(children) - 1))

    owner = owner_of(root)
    what = _what(owner, root in sandboxes)
    add(root, what, _name(owner, what, names), owner, ())
    return rows


def _count(path: str, below: Mapping[str, list[str]]) -> int:
    return sum(1 + _count(child, below) for child in below.get(path, ()))


def _what(owner: CgroupOwner, sandbox: bool) -> What:
    match owner.kind:
        case "container":
            return "sandbox" if sandbox else "container"
        case "inside" | "other":
            return "cgroup"
        case kind:
            return kind


def _rank(what: What, owner: CgroupOwner) -> int:
    match what:
        case "pod":
            return 0
        case "class":
            return _CLASS_ORDER[owner.qos_class or "Burstable"]
        case "container" | "sandbox" | "monitor":
            return _IN_POD[what]
        case _:
            return 4


def _name(owner: CgroupOwner, what: What, names: Names) -> str:
    match what:
        case "class":
            return (owner.qos_class or "").lower()
        case "pod":
            return names.pods.get(owner.pod_uid) or f"pod {owner.pod_uid}"
        case "container":
            return names.containers.get(owner.container_id) or owner.container_id[:SHORT_ID]
        case "sandbox" | "monitor":
            return what
        case _:
            return owner.path.rpartition("/")[2] or "/"


# --- figures ---


class MemoryUsageView(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a bar shows. None for max and high: no limit; 0 for min and low: nothing protected."""

    working_set_bytes: int
    usage_bytes: int  # with all cache
    min_bytes: int = 0
    low_bytes: int = 0
    high_bytes: int | None = None
    max_bytes: int | None = None


class CpuUsageView(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    limit_milli: int | None = None
    weight: int | None = None  # v2's cpu.weight or v1's cpu.shares
    periods: int = 0  # in which it wanted to run, under a limit
    throttled_periods: int = 0
    throttled_us: int = 0


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One cgroup's figures. None where this kernel, or this cgroup, does not have them."""

    memory: MemoryUsageView | None = None
    cpu: CpuUsageView | None = None
    pids: int | None = None
    pids_max: int | None = None
    pressure: Mapping[str, float] = {}  # resource → percent of the last 10 s in which some task stalled
    oom_kills: int | None = None
    tasks: TaskStates | None = None


def scales(branches: Iterable[Branch], standings: Mapping[str, Standing], machine_bytes: int) -> dict[str, int]:
    """path → what 100 % of its bar is: its own limit, or the nearest above, or the machine."""
    found: dict[str, int] = {}
    for branch in branches:
        above = found.get(branch.path.rpartition("/")[0] or "/", machine_bytes)
        memory = standings[branch.path].memory if branch.path in standings else None
        limit = memory.max_bytes if memory is not None else None
        found[branch.path] = above if limit is None else min(limit, machine_bytes)
    return found


def throttled_percent(cpu: CpuUsageView) -> int | None:
    """Of the periods in which it wanted to run, those in which it was stopped; rounded up, so that 0 means never."""
    return None if cpu.periods <= 0 else -(-100 * cpu.throttled_periods // cpu.periods)


# --- bars ---


def bar(memory: MemoryUsageView, scale_bytes: int, width: int) -> list[tuple[Ink, str]]:
    """Pieces of text, each in one ink, `width` characters in all. What exceeds the scale ends at its end."""
    if width <= 0:
        return []
    scale = max(1, scale_bytes)
    halves = min(2 * width, -(-2 * width * memory.working_set_bytes // scale))
    used, cached = -(-halves // 2), min(width, memory.usage_bytes * width // scale)
    cells = [USED if index < halves // 2 else CACHE if index < cached else FREE for index in range(width)]
    inks: list[Ink] = ["used" if index < used else "cache" if index < cached else "free" for index in range(width)]
    if halves % 2:
        cells[used - 1] = USED_HALF
    for name, at in (("low", memory.low_bytes), ("min", memory.min_bytes), ("high", memory.high_bytes)):
        if at is not None and 0 < at <= scale and not (name == "high" and at == memory.max_bytes):
            index = min(width - 1, at * width // scale)
            cells[index] = MARKS[name][0 if inks[index] == "used" else 1]
            inks[index] = "mark"
    pieces: list[tuple[Ink, str]] = []
    for ink, cell in zip(inks, cells, strict=False):
        if pieces and pieces[-1][0] == ink:
            pieces[-1] = (ink, pieces[-1][1] + cell)
        else:
            pieces.append((ink, cell))
    return pieces
