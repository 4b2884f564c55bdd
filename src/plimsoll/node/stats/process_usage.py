"""What processes use, from /proc: for the agent and its supervisor, and for containers where cgroups are not real."""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.cgroups.stats.usage import CgroupUsage, CpuUsage, MemoryUsage, Pids

PROC = Path("/proc")
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_usage(pid: int, *, deep: bool = False, proc: Path = PROC) -> CgroupUsage | None:
    """Of one process, with `deep` of all that come from it; None where it is gone. Reaped children count."""
    user = system = resident = faults = major = count = 0
    for each in _family(pid, proc) if deep else [pid]:
        found = _one(each, proc)
        if found is None:
            continue
        count += 1
        fields, pages = found
        # After the name: state, ppid, … minflt and majflt are the 8th and 10th, the times the 12th to 15th.
        faults, major = faults + int(fields[7]), major + int(fields[9])
        user, system = user + int(fields[11]) + int(fields[13]), system + int(fields[12]) + int(fields[14])
        resident += pages * _PAGE
    if not count:
        return None
    memory = MemoryUsage(resident, resident, None, resident, 0, 0, faults + major, major)
    cpu = CpuUsage((user + system) * _TICK_US, user * _TICK_US, system * _TICK_US)
    return CgroupUsage(memory, cpu=cpu, pids=Pids(count))


def _one(pid: int, proc: Path) -> tuple[list[str], int] | None:
    try:
        stat, statm = (proc / str(pid) / "stat").read_text(), (proc / str(pid) / "statm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat[stat.rindex(")") + 1 :].split(), int(statm.split()[1])


def _family(pid: int, proc: Path) -> list[int]:
    found = [pid]
    for each in found:
        for thread in _entries(proc / str(each) / "task"):
            try:
                found += map(int, (proc / str(each) / "task" / thread / "children").read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, ProcessLookupError):
        return []
