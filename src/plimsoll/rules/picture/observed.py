"""The live cgroups of a machine → a picture with fills.

The observed files take the place of the desired ones, so that effective values are computed by the same rule as in an
explanation: what would hold if all cgroups used what they claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile, Level
from plimsoll.rules.cgroups.view import Branch, Standing
from plimsoll.rules.explain.contention import with_effective
from plimsoll.rules.picture.model import Picture
from plimsoll.rules.picture.vessels import About, vessel_tree

PERIOD_US = 100_000  # a quota is shown in CPUs; the kernel's default period expresses it
_LEVELS: dict[str, Level] = {"pods": "pods", "class": "class", "pod": "pod"}


def observed_picture(
    rows: Sequence[Branch],
    standings: Mapping[str, Standing],
    *,
    title: str,
    facts: str,
    memory_bytes: int,
    cpu_milli: int,
    version: int = 2,
    remarks: Sequence[str] = (),
) -> Picture:
    """`rows` are those of `branches`: the first is the root, parents come before their children."""
    by_path = {row.path: row for row in rows}
    root = rows[0]
    tree = Cgroup("node", title, "/", children=(_cgroup(root, _below(rows), standings, version),))

    def about(cgroup: Cgroup) -> About:
        row = by_path[cgroup.path]
        return About(row.what, row.qos_class or "", standings.get(row.path))

    vessels = with_effective(tree, cpu_milli).children
    return Picture(
        title,
        facts,
        memory_bytes,
        cpu_milli,
        tuple(vessel_tree(child, about, memory_bytes, cpu_milli) for child in vessels),
        observed=True,
        remarks=tuple(remarks),
    )


def _below(rows: Sequence[Branch]) -> dict[str, list[Branch]]:
    below: dict[str, list[Branch]] = {}
    for row in rows[1:]:
        below.setdefault(row.path.rpartition("/")[0] or "/", []).append(row)
    return below


def _cgroup(row: Branch, below: Mapping[str, list[Branch]], standings: Mapping[str, Standing], version: int) -> Cgroup:
    return Cgroup(
        _LEVELS.get(row.what, "container"),
        row.qos_class or row.name if row.what == "class" else "all pods" if row.what == "pods" else row.name,
        row.path,
        tuple(_files(standings.get(row.path, Standing()), version)),
        children=tuple(_cgroup(child, below, standings, version) for child in below.get(row.path, ())),
    )


def _files(standing: Standing, version: int) -> list[DesiredFile]:
    memory, cpu = standing.memory, standing.cpu
    files = []
    if memory is not None:
        names = ("memory.min", "memory.low", "memory.high", "memory.max")
        values = (memory.min_bytes, memory.low_bytes, memory.high_bytes, memory.max_bytes)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                v1 = version == 1 and name == "memory.max"
                files.append(DesiredFile("memory.limit_in_bytes" if v1 else name, value))
    if cpu is not None and cpu.weight is not None:
        files.append(DesiredFile("cpu.weight" if version == 2 else "cpu.shares", cpu.weight))
    if cpu is not None and cpu.limit_milli is not None:
        quota_us = cpu.limit_milli * PERIOD_US // 1000
        if version == 2:
            files.append(DesiredFile("cpu.max", f"{quota_us} {PERIOD_US}"))
        else:
            files += [DesiredFile("cpu.cfs_quota_us", quota_us), DesiredFile("cpu.cfs_period_us", PERIOD_US)]
    return files
