"""Desired files + observed files → ordered steps, in an order that is safe after every step.

For each resource, memory first: decreases from the leaves up, then increases from the top down. So a parent is lowered
after its children and raised before them: a limit is never below a child's, and a protection never below the sum of its
children's, unless the old or the new plan has it so. No value (`max`, −1) is the largest limit. Cgroups are removed
first, children before parents, and created last, parents before children, each with all its files.

On v1 the kernel ties two pairs of files together: memory.limit_in_bytes is never above memory.memsw (02 §5), and the
ratio of cfs quota to period must not exceed the parent's. Their writes are ordered so that every step is valid, and a
container with more than its pod gets the pod's quota, which is all it could use. A removed cgroup counts for its
parent's ratio until the kernel has released it, some 20 ms later, so its quota is removed first.

A file that the kernel lacks is not planned but listed in `unmet`. A file without a desired value is reset to the
kernel's default, except limits of a pod: those are never removed in place (02 §9.6).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import msgspec

from plimsoll.rules.blockio.files import KEYED_FILES
from plimsoll.rules.cgroups.desired_files import DesiredCgroup, DesiredFiles, depth, parent_path
from plimsoll.rules.cgroups.rounding import kept, same_value
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Snapshot, Step, Write
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US
from plimsoll.rules.resources.cpu import MIN_QUOTA_US
from plimsoll.rules.resources.files import MAX, controller_of

LIMIT_V1, MEMSW_V1 = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
QUOTA_V1, PERIOD_V1 = "cpu.cfs_quota_us", "cpu.cfs_period_us"
MEMORY_LIMITS = frozenset({"memory.max", LIMIT_V1, MEMSW_V1})
BOUNDED = frozenset({"memory.max", "cpu.max", LIMIT_V1, QUOTA_V1})  # a container's value is never above its pod's
IO_FILES = (*KEYED_FILES[2], *KEYED_FILES[1])  # read, and reset, only where the node controls I/O
_MEMORY_V1, _BANDWIDTH_V1 = (LIMIT_V1, MEMSW_V1), (QUOTA_V1, PERIOD_V1)  # bound together by the kernel

# The value of a file without a desired value. Other files always have one, or stay unchanged (hugetlb, 02 §7).
RESETS: Mapping[str, str] = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": MAX,
    "memory.max": MAX,
    "memory.oom.group": "0",
    "cpu.max": MAX,  # keeps the period
    LIMIT_V1: "-1",
    MEMSW_V1: "-1",
    QUOTA_V1: "-1",
    **dict.fromkeys(IO_FILES, ""),
}
_NEVER_RESET: Mapping[str, Collection[str]] = {
    "pod": MEMORY_LIMITS | {"cpu.max", QUOTA_V1, "memory.oom.group"},
    # The kubelet writes no quota here and sets kubepods' limit once: other values there come from other writers.
    "pods": MEMORY_LIMITS | {"cpu.max", QUOTA_V1, "memory.oom.group"},
    "class": {"cpu.max", QUOTA_V1, "memory.oom.group"},
    "root": MEMORY_LIMITS | {"cpu.max", QUOTA_V1, "memory.high", "memory.oom.group", *IO_FILES},
    "container": frozenset(KEYED_FILES[2]),  # the pod has them; a runtime may have set some for a container
    "reserved": frozenset(RESETS),
}
_RESOURCES = ("memory", "pids", "cpu", "cpuset", "hugetlb")
# The order of writes among the files of one cgroup and resource.
_LOWERING_ORDER = ("memory.swap.max", "memory.high", LIMIT_V1, MEMSW_V1, "memory.max", "cpu.shares", "cpu.weight")
_RAISING_ORDER = (LIMIT_V1, "memory.max", "memory.high", QUOTA_V1, "cpu.max", "cpu.shares", "cpu.weight")


class Unmet(msgspec.Struct, frozen=True):
    """A desired value that this cgroup cannot have."""

    path: str
    file: str
    want: str
    have: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.file}: want {self.want}, have {self.have or 'nothing'} ({self.reason})"


class Plan(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...] = ()
    unmet: tuple[Unmet, ...] = ()


class _Change(msgspec.Struct, frozen=True):
    """The writes of one file, or of one tied pair of files, in an existing cgroup."""

    resource: int
    lowers: bool
    depth: int
    index: int  # of the cgroup in the tree
    rank: int
    writes: tuple[Write, ...]

    def key(self) -> tuple[int, bool, int, int, int]:
        sign = -1 if self.lowers else 1
        return self.resource, not self.lowers, sign * self.depth, sign * self.index, self.rank


def reconcile(
    plan: DesiredFiles,
    snapshot: Snapshot,
    *,
    ours: Collection[str] = (),
    lacking: Mapping[str, str] | None = None,
    page_size: int = 4096,
) -> Plan:
    """`ours`: cgroups that are removed if they are not desired; `lacking`: file → why this kernel lacks it."""
    lacking = lacking or {}
    steps: list[Step] = []
    for path in sorted(ours, key=depth, reverse=True):
        if path in snapshot and path not in plan:
            steps += _removal(path, plan, snapshot)
    changes: list[_Change] = []
    unmet: list[Unmet] = []
    new: list[Step] = []
    for index, (path, desired) in enumerate(plan.items()):
        seen = snapshot.get(path)
        room = _room(path, desired, plan, snapshot)
        cgroup = _within(room, desired)
        if cgroup is not desired:
            want, have = desired.files[QUOTA_V1], cgroup.files[QUOTA_V1]
            unmet.append(Unmet(path, QUOTA_V1, want, have, "cgroup v1 gives a container no more than its pod has"))
        unmet += _unmet(path, cgroup, seen, lacking)
        if seen is None:
            files = {name: text for name, text in cgroup.files.items() if name not in lacking}
            new += (Make(path), *fresh_writes(path, files))
        else:
            changes += _changes(path, index, cgroup, seen, room, page_size)
    changes.sort(key=_Change.key)
    steps += (write for change in changes for write in change.writes)
    return Plan((*steps, *new), tuple(unmet))


def _removal(path: str, plan: DesiredFiles, snapshot: Snapshot) -> Iterable[Step]:
    seen, above = snapshot[path].files, parent_path(path)
    if above in plan and above in snapshot:
        left = granted(QUOTA_V1, {**snapshot[above].files, **plan[above].files})
        if granted(QUOTA_V1, seen) > left:
            yield from quota_reset(path, seen)
    yield Remove(path)


def quota_reset(path: str, files: Mapping[str, str]) -> Iterable[Write]:
    """For a cgroup that is removed while its parent's quota decreases; empty without a quota."""
    if granted(QUOTA_V1, files) < math.inf:
        yield Write(path, QUOTA_V1, RESETS[QUOTA_V1], files[QUOTA_V1])


def _unmet(
    path: str, cgroup: DesiredCgroup, seen: ObservedCgroup | None, lacking: Mapping[str, str]
) -> Iterable[Unmet]:
    for name, text in cgroup.files.items():
        if name in lacking:
            yield Unmet(path, name, text, None, lacking[name])
        elif seen is not None and name not in seen.files:
            yield Unmet(path, name, text, None, "this cgroup has no such file: its controller is not enabled here")


class _Room(msgspec.Struct, frozen=True):
    """The files of a container's pod, before and after, as texts."""

    before: Mapping[str, str]
    after: Mapping[str, str]


_NO_BOUND = _Room({}, {})


def _room(path: str, cgroup: DesiredCgroup, plan: DesiredFiles, snapshot: Snapshot) -> _Room:
    above = parent_path(path)
    if cgroup.level != "container" or above not in plan:
        return _NO_BOUND
    before = snapshot[above].files if above in snapshot else {}
    return _Room(before, {**before, **plan[above].files})


def _within(room: _Room, cgroup: DesiredCgroup) -> DesiredCgroup:
    most = granted(QUOTA_V1, room.after)
    if not most < granted(QUOTA_V1, cgroup.files) < math.inf:
        return cgroup
    quota = int(most * int(cgroup.files.get(PERIOD_V1, DEFAULT_PERIOD_US)))
    return msgspec.structs.replace(cgroup, files={**cgroup.files, QUOTA_V1: str(max(MIN_QUOTA_US, quota))})


# --- new cgroups ---


def fresh_writes(path: str, files: Mapping[str, str]) -> list[Write]:
    """Every file of a new cgroup. The kernel's default is no limit, so all limits decrease."""
    ordered = sorted(files, key=lambda name: (_resource(name), _rank(_LOWERING_ORDER, name), name == QUOTA_V1))
    return [Write(path, name, files[name]) for name in ordered]


# --- existing cgroups ---


def _changes(
    path: str, index: int, cgroup: DesiredCgroup, seen: ObservedCgroup, room: _Room, page_size: int
) -> Iterable[_Change]:
    files = {name: text for name, text in cgroup.files.items() if name in seen.files}
    kept_here = _NEVER_RESET.get(cgroup.level, ())
    for name, default in RESETS.items():
        if name in seen.files and name not in files and name not in kept_here:
            files[name] = default
    writes = {
        name: Write(path, name, text, seen.files[name])
        for name, text in files.items()
        if not same_value(name, text, seen.files[name], page_size)
    }
    after = {**seen.files, **files}
    for pair, ordered in ((_MEMORY_V1, _memory_v1), (_BANDWIDTH_V1, _bandwidth_v1)):
        bound = [writes.pop(name) for name in pair if name in writes]
        if bound:
            lowers = _lowers(pair[0], seen.files, after, room, page_size)
            yield _change(path, index, pair[0], lowers, ordered(bound, cgroup.level, seen.files, after, page_size))
    for name, write in writes.items():
        yield _change(path, index, name, _lowers(name, seen.files, after, room, page_size), [write])


def _change(path: str, index: int, name: str, lowers: bool, writes: Iterable[Write]) -> _Change:
    rank = _rank(_LOWERING_ORDER if lowers else _RAISING_ORDER, name)
    return _Change(_resource(name), lowers, depth(path), index, rank, tuple(writes))


def _lowers(name: str, before: Mapping[str, str], after: Mapping[str, str], room: _Room, page_size: int) -> bool:
    """Whether the value decreases. A container without a limit has as much as its pod."""
    old, new = granted(name, before, page_size), granted(name, after, page_size)
    if name in BOUNDED:
        old, new = min(old, granted(name, room.before, page_size)), min(new, granted(name, room.after, page_size))
    return new < old


def _memory_v1(
    writes: list[Write], level: str, before: Mapping[str, str], after: Mapping[str, str], page_size: int
) -> list[Write]:
    """The limit first, unless memory+swap must be raised before it."""
    makes_room = granted(MEMSW_V1, after, page_size) >= granted(LIMIT_V1, before, page_size)
    return writes[::-1] if makes_room else writes


def _bandwidth_v1(
    writes: list[Write], level: str, before: Mapping[str, str], after: Mapping[str, str], page_size: int
) -> list[Write]:
    """Between the writes of quota and period the ratio is a third one, which must be valid too.

    For a container it must be below both ratios (its pod may have no more), for a pod above both (its containers may
    have as much). A longer period with the old quota lowers the ratio, a shorter one raises it.
    """
    goes_below, longer = level == "container", int(after[PERIOD_V1]) > int(before[PERIOD_V1])
    period_first = int(before[QUOTA_V1]) < 0 or (int(after[QUOTA_V1]) > 0 and longer == goes_below)
    return writes[::-1] if period_first else writes


def granted(name: str, files: Mapping[str, str], page_size: int = 4096) -> float:
    """How much a file grants to its cgroup; for v1's quota, quota / period. Without the file, infinity."""
    if name == QUOTA_V1:
        quota, period = int(files.get(QUOTA_V1, -1)), int(files.get(PERIOD_V1, DEFAULT_PERIOD_US))
        return quota / period if quota >= 0 else math.inf
    return amount(name, files[name], page_size) if name in files else math.inf


def amount(name: str, text: str, page_size: int = 4096) -> float:
    """How much a file's text grants, for comparison with another text of the same file."""
    if name == "cpu.max":
        quota, period = (*text.split(), str(DEFAULT_PERIOD_US))[:2]
        return math.inf if quota == MAX else int(quota) / int(period)
    if name == "cpuset.cpus":  # a CPU leaves one container before it joins another; an empty list is the parent's
        return len(cpu_numbers(text) or ()) or math.inf
    form = kept(name, text, page_size)
    if form == MAX:
        return math.inf
    return float(int(form)) if form.isascii() and form.isdigit() else 0.0


def _resource(name: str) -> int:
    controller = controller_of(name)
    return _RESOURCES.index(controller) if controller in _RESOURCES else len(_RESOURCES)


def _rank(order: tuple[str, ...], name: str) -> int:
    return order.index(name) if name in order else len(order)
