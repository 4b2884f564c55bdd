"""A tree of cgroups with effective values → vessels. Explained and observed trees take the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile, Effective
from plimsoll.rules.cgroups.view import Standing, throttled_percent
from plimsoll.rules.explain.contention import memory_limit, quota_milli
from plimsoll.rules.picture.model import CpuLines, Fill, FillName, Line, LineName, Vessel, VesselLevel

_FILES: dict[LineName, tuple[str, ...]] = {
    "min": ("memory.min",),
    "low": ("memory.low",),
    "high": ("memory.high",),
    "max": ("memory.max", "memory.limit_in_bytes"),
}
_WEIGHTS = ("cpu.weight", "cpu.shares")
_QUOTAS = ("cpu.max", "cpu.cfs_quota_us")
_LEVELS: Mapping[str, VesselLevel] = {
    "pods": "pods",
    "reserved": "reserved",
    "class": "class",
    "pod": "pod",
    "container": "container",
}
UNLIMITED = 1 << 62  # v1 writes about 2^63 for no limit


class About(msgspec.Struct, frozen=True):
    """What is known of a cgroup beside its files."""

    level: VesselLevel | None = None  # None: as in the tree
    qos_class: str = ""
    standing: Standing | None = None
    remarks: tuple[str, ...] = ()


class _Ceiling(msgspec.Struct, frozen=True):
    """The lowest limit above a cgroup, of equal ones the nearest."""

    bytes: int
    file: DesiredFile
    of: str


_NO_STANDING = Standing()


def vessel_tree(
    cgroup: Cgroup,
    about: Callable[[Cgroup], About],
    memory_bytes: int,
    cpu_milli: int,
    above: Mapping[LineName, _Ceiling] | None = None,
) -> Vessel:
    """`above`: the limits of the ancestors."""
    above = above or {}
    known = about(cgroup)
    standing = known.standing or _NO_STANDING
    own = {name: file for name in _FILES if (file := _file(cgroup, name)) is not None}
    limits = dict(above)
    for name in ("high", "max"):
        file = own.get(name)
        if file is not None and (name not in above or _amount(file) <= above[name].bytes):
            limits[name] = _Ceiling(_amount(file), file, cgroup.name)
    lines = (
        *(_own_line(name, file, cgroup.effective, above.get(name)) for name, file in own.items() if _amount(file)),
        *(
            _line_above(name, ceiling)
            for name, ceiling in above.items()
            if name not in own or ceiling.bytes < _amount(own[name])
        ),
    )
    memory = standing.memory
    usage = None if memory is None else memory.usage_bytes
    return Vessel(
        known.level or _LEVELS[cgroup.level],
        cgroup.name,
        cgroup.path,
        _scale(cgroup, lines, usage, memory_bytes),
        known.qos_class,
        cgroup.stage,
        lines,
        _fills(standing),
        usage,
        None if memory is None else memory.working_set_bytes,
        _cpu(cgroup, standing, cpu_milli),
        cgroup.oom_score_adj,
        cgroup.oom_steps,
        standing.oom_kills,
        standing.pressure,
        known.remarks,
        tuple(vessel_tree(child, about, memory_bytes, cpu_milli, limits) for child in cgroup.children),
    )


def _file(cgroup: Cgroup, name: LineName) -> DesiredFile | None:
    """The file of a line, if it restricts or protects anything."""
    for file in cgroup.files:
        if file.name in _FILES[name]:
            return file if isinstance(file.value, int) and 0 <= file.value < UNLIMITED else None
    return None


def _amount(file: DesiredFile) -> int:
    return file.value if isinstance(file.value, int) else 0


def _own_line(name: LineName, file: DesiredFile, effective: Effective | None, above: _Ceiling | None) -> Line:
    declared, binding = _amount(file), ""
    holds = declared
    if name in ("high", "max") and above is not None and above.bytes < declared:
        holds, binding = above.bytes, above.of
    elif effective is not None and name in ("min", "low"):
        holds = effective.memory_min_bytes if name == "min" else effective.memory_low_bytes
    reason = file.reason
    return Line(name, file.name, declared, holds, "", binding, reason.formula, reason.source, reason.note)


def _line_above(name: LineName, ceiling: _Ceiling) -> Line:
    reason = ceiling.file.reason
    amount = ceiling.bytes
    return Line(name, ceiling.file.name, amount, amount, ceiling.of, "", reason.formula, reason.source, reason.note)


def _scale(cgroup: Cgroup, lines: tuple[Line, ...], usage: int | None, memory_bytes: int) -> int:
    """A full vessel: its own limit or the nearest above, never less than what is shown in it."""
    limit = memory_limit(cgroup)
    if limit is None or limit >= UNLIMITED:
        limit = next((line.declared_bytes for line in lines if line.name == "max"), memory_bytes)
    return max(1, limit, usage or 0, *(line.declared_bytes for line in lines if not line.of))


def _fills(standing: Standing) -> tuple[Fill, ...]:
    parts, memory = standing.parts, standing.memory
    if parts is None or memory is None:
        return ()
    known: list[tuple[FillName, int | None]] = [
        ("anon", parts.anon_bytes),
        ("shmem", parts.shmem_bytes),
        ("kernel", parts.kernel_bytes),
        ("activeFile", parts.active_file_bytes),
        ("inactiveFile", parts.inactive_file_bytes),
    ]
    # The files are not read at one instant, and the kernel charges in batches: the parts may exceed the usage.
    left, fills = memory.usage_bytes, []
    for name, amount in known:
        taken = min(amount or 0, left)
        left -= taken
        if taken:
            fills.append(Fill(name, taken))
    if left:
        fills.insert(
            next((i for i, fill in enumerate(fills) if fill.name.endswith("File")), len(fills)), Fill("other", left)
        )
    return tuple(fills)


def _cpu(cgroup: Cgroup, standing: Standing, cpu_milli: int) -> CpuLines | None:
    weight = next((file for file in cgroup.files if file.name in _WEIGHTS), None)
    quota = next((file for file in cgroup.files if file.name in _QUOTAS), None)
    effective, used = cgroup.effective, standing.cpu
    if weight is None and quota is None and used is None:
        return None
    own = quota_milli(cgroup)
    ceiling = None if effective is None else effective.cpu_ceiling_milli
    ceiling_of = "" if effective is None or ceiling is None else effective.cpu_ceiling_from
    if own is not None and ceiling is not None and int(own) <= ceiling:
        ceiling_of = ""  # an equal quota of an ancestor is no other line
    return CpuLines(
        cpu_milli,
        weight.name if weight else "",
        int(weight.value) if weight else None,
        weight.reason.formula if weight else "",
        weight.reason.source if weight else "",
        None if own is None else int(own),
        quota.name if quota else "",
        str(quota.value) if quota else "",
        quota.reason.formula if quota else "",
        quota.reason.source if quota else "",
        None if effective is None else effective.cpu_floor_milli,
        ceiling,
        ceiling_of,
        cgroup.exclusive_cpus,
        None if used is None else used.usage_milli,
        None if used is None else throttled_percent(used),
        None if used is None else used.throttled_us,
    )
