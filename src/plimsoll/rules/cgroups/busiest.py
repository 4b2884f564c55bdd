"""The cgroups of a live tree as a flat list: by pod, container, class or node; filtered and in a chosen order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner
from plimsoll.rules.cgroups.view import Branch, CpuUsageView, MemoryUsageView, Standing, throttled_percent

Level = Literal["pods", "containers", "classes", "node"]
SortKey = Literal["line", "memory", "cpu", "throttled", "pressure", "name"]
LEVELS: tuple[Level, ...] = get_args(Level)
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
GUARANTEED = "/guaranteed"  # no cgroup has this path: the pods of this class are directly below kubepods


def listed(
    rows: Sequence[Branch], standings: Mapping[str, Standing], level: Level, node: str = ""
) -> tuple[list[Branch], dict[str, Standing]]:
    """The rows of one level, without a place in the tree, and their figures."""
    flat = [msgspec.structs.replace(row, last=(), hidden=0) for row in rows]
    if level == "node":
        name = node or rows[0].name
        return [msgspec.structs.replace(flat[0], name=name)], dict(standings)
    if level == "classes":
        pods = [row for row in rows if row.what == "pod" and row.qos_class == "Guaranteed"]
        total = Branch(GUARANTEED, "class", "guaranteed", CgroupOwner(GUARANTEED, "class", qos_class="Guaranteed"))
        sums = summed([standings[row.path] for row in pods if row.path in standings])
        return [total, *(row for row in flat if row.what == "class")], {**standings, GUARANTEED: sums}
    if level == "pods":
        return [row for row in flat if row.what == "pod"], dict(standings)
    pods_by_path = {row.path: row.name for row in rows if row.what == "pod"}
    return [
        msgspec.structs.replace(row, name=f"{pods_by_path[above]}/{row.name}" if above in pods_by_path else row.name)
        for row in flat
        if row.what == "container" and (above := row.path.rpartition("/")[0]) is not None
    ], dict(standings)


def summed(standings: Sequence[Standing]) -> Standing:
    """Usage adds up; limits and protections of several cgroups do not."""
    memory = [each.memory for each in standings if each.memory is not None]
    cpu = [each.cpu for each in standings if each.cpu is not None]
    kills = [each.oom_kills for each in standings if each.oom_kills is not None]
    milli = [each.usage_milli for each in cpu if each.usage_milli is not None]
    return Standing(
        MemoryUsageView(sum(each.working_set_bytes for each in memory), sum(each.usage_bytes for each in memory)),
        CpuUsageView(
            periods=sum(each.periods for each in cpu),
            throttled_periods=sum(each.throttled_periods for each in cpu),
            usage_milli=sum(milli) if milli else None,
        ),
        sum(each.pids or 0 for each in standings),
        oom_kills=sum(kills) if kills else None,
    )


def since(before: Mapping[str, Standing], after: Mapping[str, Standing]) -> dict[str, Standing]:
    """`after` with the CPU periods between both, so that throttling is that of the interval, not of a lifetime."""
    found = dict(after)
    for path, standing in after.items():
        now, past = standing.cpu, before[path].cpu if path in before else None
        if now is not None and past is not None and now.periods >= past.periods:
            cpu = msgspec.structs.replace(
                now,
                periods=now.periods - past.periods,
                throttled_periods=max(0, now.throttled_periods - past.throttled_periods),
            )
            found[path] = msgspec.structs.replace(standing, cpu=cpu)
    return found


def ranked(
    rows: Sequence[Branch],
    standings: Mapping[str, Standing],
    key: SortKey,
    *,
    text: str = "",
    machine_bytes: int = 0,
) -> list[Branch]:
    """Rows whose name contains `text`, the largest first; equal ones by name."""
    wanted = [row for row in rows if text.casefold() in row.name.casefold()]
    by_name = sorted(wanted, key=lambda row: row.name)
    if key == "name":
        return by_name
    amount = _AMOUNTS[key]
    return sorted(by_name, key=lambda row: -amount(standings.get(row.path, Standing()), machine_bytes))


def line_share(standing: Standing, machine_bytes: int) -> float:
    """How much of the nearest line above its working set is used: of memory.high or memory.max, or of the machine."""
    memory = standing.memory
    if memory is None:
        return 0.0
    lines = [line for line in (memory.high_bytes, memory.max_bytes) if line]
    return memory.working_set_bytes / min(lines, default=machine_bytes or 1)


def _throttled(standing: Standing, _: int) -> float:
    return float((standing.cpu and throttled_percent(standing.cpu)) or 0)


_AMOUNTS: Mapping[SortKey, Callable[[Standing, int], float]] = {
    "line": line_share,
    "memory": lambda standing, _: float(standing.memory.working_set_bytes) if standing.memory else 0.0,
    "cpu": lambda standing, _: float((standing.cpu and standing.cpu.usage_milli) or 0),
    "throttled": _throttled,
    "pressure": lambda standing, _: max(standing.pressure.values(), default=0.0),
}
