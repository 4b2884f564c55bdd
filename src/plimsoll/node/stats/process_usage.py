"""Usage of processes, from /proc: of the agent and its supervisor, and of containers where cgroups are simulated."""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.cgroups.stats.usage import CgroupUsage, CpuUsage, MemoryUsage, Pids

PROC = Path("/proc")
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_numbers(proc: Path = PROC) -> tuple[int, int]:
    """How many processes and threads the kernel allows, and how many there are."""
    limits = ((proc / "sys/kernel" / name).read_text() for name in ("pid_max", "threads-max"))
    return min(map(int, limits)), int((proc / "loadavg").read_text().split()[3].partition("/")[2])


def process_usage(pid: int, *, deep: bool = False, proc: Path = PROC) -> CgroupUsage | None:
    """The usage of a process, with `deep` also of its descendants; None where it has ended. Reaped children count."""
    user = system = resident = faults = major = count = 0
    for process in _descendants(pid, proc) if deep else [pid]:
        stats = _read(process, proc)
        if stats is None:
            continue
        count += 1
        fields, pages = stats
        # After the name: state, ppid, … minflt and majflt are the 8th and 10th, the times the 12th to 15th.
        faults, major = faults + int(fields[7]), major + int(fields[9])
        user, system = user + int(fields[11]) + int(fields[13]), system + int(fields[12]) + int(fields[14])
        resident += pages * _PAGE
    if not count:
        return None
    memory = MemoryUsage(resident, resident, None, resident, 0, 0, faults + major, major)
    cpu = CpuUsage((user + system) * _TICK_US, user * _TICK_US, system * _TICK_US)
    return CgroupUsage(memory, cpu=cpu, pids=Pids(count))


def _read(pid: int, proc: Path) -> tuple[list[str], int] | None:
    try:
        stat, statm = (proc / str(pid) / "stat").read_text(), (proc / str(pid) / "statm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat[stat.rindex(")") + 1 :].split(), int(statm.split()[1])


def _descendants(pid: int, proc: Path) -> list[int]:
    """The process itself first."""
    pids = [pid]
    for process in pids:
        for thread in _entries(proc / str(process) / "task"):
            try:
                pids += map(int, (proc / str(process) / "task" / thread / "children").read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return pids


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, ProcessLookupError):
        return []
