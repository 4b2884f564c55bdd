"""A live cgroup tree as rows: what each cgroup is, its name for people, its place in the tree; and memory as a bar.

Rows are in order of protection: Guaranteed pods (directly below kubepods), then the burstable and the besteffort class,
then other cgroups. In a pod the sandbox is last.

A bar shows the working set and the reclaimable cache beyond it. Its scale is the cgroup's own limit, or the nearest
limit above it, or the machine. Marks on it show where the kernel's behaviour changes: below `min` nothing is reclaimed,
below `low` only under severe pressure, above `high` tasks are throttled.

`TaskStates` has the five counts of the kernel's cgroupstats and the kubelet's log line about them. On v1 the kernel
provides the counts. On v2 they come from the state letter in each task's /proc stat line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, owner_of
from plimsoll.rules.model.objects import QoSClass

# proc(5): t is a traced task. I (an idle kernel thread), Z and X are not counted, as in the kernel.
_FIELDS = {"S": "sleeping", "R": "running", "T": "stopped", "t": "stopped", "D": "uninterruptible"}


class TaskStates(msgspec.Struct, frozen=True, rename="camel"):
    """`io_wait` counts tasks that wait for I/O in none of the other states; it is almost always 0."""

    sleeping: int = 0
    running: int = 0
    stopped: int = 0
    uninterruptible: int = 0
    io_wait: int = 0

    def __add__(self, other: TaskStates) -> TaskStates:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return TaskStates(*map(sum, pairs))

    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))


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
BAR_MARKS = {"min": ("╋", "┼"), "low": ("┻", "┴"), "high": ("┳", "┬")}  # on used memory, on free memory


class Names(msgspec.Struct, frozen=True):
    """Names for people, as far as they are known."""

    pods: Mapping[str, str] = {}  # uid → namespace/name
    containers: Mapping[str, str] = {}  # id → name


class Branch(msgspec.Struct, frozen=True):
    """One row of the tree. `last`: for each level, whether this is the last row there."""

    path: str
    what: What
    name: str  # short; `path` is complete
    owner: CgroupOwner
    last: tuple[bool, ...] = ()
    hidden: int = 0  # how many cgroups below are not shown because of the depth

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
    """The figures of a bar. max and high: None is no limit; min and low: 0 is no protection."""

    working_set_bytes: int
    usage_bytes: int  # with all cache
    min_bytes: int = 0
    low_bytes: int = 0
    high_bytes: int | None = None
    max_bytes: int | None = None


class MemoryParts(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What the memory in use consists of. File pages can be reclaimed, inactive ones first; None: not reported."""

    anon_bytes: int | None = None
    active_file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    shmem_bytes: int | None = None
    kernel_bytes: int | None = None


class CpuUsageView(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    limit_milli: int | None = None
    weight: int | None = None  # v2's cpu.weight or v1's cpu.shares
    periods: int = 0  # in which a task was runnable, under a limit
    throttled_periods: int = 0
    throttled_us: int = 0
    usage_us: int | None = None  # since the cgroup exists
    usage_milli: int | None = None  # now; see `with_cpu_rates`


class IoView(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What differs from the kernel's defaults. `limits`: device → key → amount; `targets`: device → µs."""

    weight: int | None = None
    limits: dict[str, dict[str, int]] = {}
    targets: dict[str, int] = {}


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One cgroup's figures. None if this kernel or this cgroup does not have them."""

    memory: MemoryUsageView | None = None
    cpu: CpuUsageView | None = None
    pids: int | None = None
    pids_max: int | None = None
    pressure: Mapping[str, float] = {}  # resource → percent of the last 10 s in which some task stalled
    oom_kills: int | None = None
    tasks: TaskStates | None = None
    parts: MemoryParts | None = None
    io: IoView | None = None
    owns: tuple[str, ...] = ()  # a container's exclusive CPUs, memory and devices, in words


def with_cpu_rates(
    before: Mapping[str, Standing], after: Mapping[str, Standing], elapsed_s: float
) -> dict[str, Standing]:
    """`after` with the CPUs in use between both: 50 ms of CPU time within 100 ms are 500 m."""
    found = dict(after)
    for path, standing in after.items():
        now = standing.cpu
        past = before[path].cpu if path in before else None
        if now is None or past is None or now.usage_us is None or past.usage_us is None or elapsed_s <= 0:
            continue
        milli = round(max(now.usage_us - past.usage_us, 0) / (elapsed_s * 1000))
        found[path] = msgspec.structs.replace(standing, cpu=msgspec.structs.replace(now, usage_milli=milli))
    return found


def scales(branches: Iterable[Branch], standings: Mapping[str, Standing], machine_bytes: int) -> dict[str, int]:
    """path → the bytes that a full bar means: its own limit, or the nearest above, or the machine."""
    found: dict[str, int] = {}
    for branch in branches:
        above = found.get(branch.path.rpartition("/")[0] or "/", machine_bytes)
        memory = standings[branch.path].memory if branch.path in standings else None
        limit = memory.max_bytes if memory is not None else None
        found[branch.path] = above if limit is None else min(limit, machine_bytes)
    return found


def throttled_percent(cpu: CpuUsageView) -> int | None:
    """The share of its periods in which it was throttled, rounded up, so that 0 means never."""
    return None if cpu.periods <= 0 else -(-100 * cpu.throttled_periods // cpu.periods)


# --- bars ---


def bar(memory: MemoryUsageView, scale_bytes: int, width: int) -> list[tuple[Ink, str]]:
    """Pieces of text, each in one ink, `width` characters in all; larger values are cut at the end."""
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
            cells[index] = BAR_MARKS[name][0 if inks[index] == "used" else 1]
            inks[index] = "mark"
    pieces: list[tuple[Ink, str]] = []
    for ink, cell in zip(inks, cells, strict=False):
        if pieces and pieces[-1][0] == ink:
            pieces[-1] = (ink, pieces[-1][1] + cell)
        else:
            pieces.append((ink, cell))
    return pieces
