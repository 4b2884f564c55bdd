"""The processes of containers: scores, threads, and whether they may write cgroups.

A container without hostPID sees other processes as 0 in cgroup.procs; then nothing is known, and the reason says so.
"""

from __future__ import annotations

import os

from plimsoll.audit.applications import application
from plimsoll.audit.cgroups import Driver
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.codec.kernel.files import mountinfo
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.processes import oom_score_adj, stat
from plimsoll.rules.audit.evidence import ProcessFacts
from plimsoll.rules.cgroups.cgroup_owner import owner_of

HIDDEN = "processes of other pid namespaces cannot be seen: run with hostPID, or on the node itself"
MOST_READ = 64  # processes of one container that are looked at


def container_processes(driver: Driver, paths: list[str]) -> tuple[tuple[ProcessFacts, ...] | None, str]:
    """The processes in container cgroups, or None and why they cannot be seen."""
    found: list[ProcessFacts] = []
    mount = driver.mount if isinstance(driver, CgroupsV2) else driver.mount_of("memory.limit_in_bytes")
    if mount is None:
        return None, "there is no memory controller"
    hidden = 0
    for path in paths:
        if owner_of(path).kind not in ("container", "inside", "monitor"):
            continue
        try:
            with mount.directory(path) as directory:
                pids = [int(pid) for pid in directory.read("cgroup.procs").split()]
        except CgroupError:
            continue  # the cgroup is gone, or of threads
        hidden += pids.count(0)
        for pid in sorted(pid for pid in pids if pid)[:MOST_READ]:
            facts = _facts(pid, path)
            if facts is not None:
                found.append(facts)
    if hidden and not found:
        return None, HIDDEN
    return tuple(_with_first(found)), ""


def _facts(pid: int, path: str) -> ProcessFacts | None:
    process = stat(pid)
    if process is None:
        return None
    try:
        score = oom_score_adj(pid)
    except OSError:
        score = None
    status = _status(pid)
    return ProcessFacts(
        pid,
        path,
        process.name,
        score,
        _innermost(status.get("NSpid", "")) == 1,
        int(status.get("Threads", "0") or 0),
        _writes_cgroups(pid),
        application(pid, process.name),
    )


def _with_first(found: list[ProcessFacts]) -> list[ProcessFacts]:
    """A container that shares its pod's or the host's pid namespace has no process 1: the oldest counts."""
    import msgspec

    having = {each.cgroup for each in found if each.first}
    seen: set[str] = set()
    result = []
    for each in found:
        oldest = each.cgroup not in having and each.cgroup not in seen
        seen.add(each.cgroup)
        result.append(msgspec.structs.replace(each, first=True) if oldest else each)
    return result


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            lines = (line.partition(":") for line in file)
            return {name: value.strip() for name, _, value in lines if name in ("NSpid", "Threads")}
    except OSError:
        return {}


def _innermost(nspid: str) -> int:
    words = nspid.split()
    return int(words[-1]) if len(words) > 1 and words[-1].isdecimal() else 0


def _writes_cgroups(pid: int) -> bool | None:
    """Whether its mount namespace has a writable cgroup file system; None if that cannot be read."""
    try:
        own = os.readlink("/proc/self/ns/mnt")
        if os.readlink(f"/proc/{pid}/ns/mnt") == own:
            return None  # it shares ours: not a container's own view
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as file:
            lines = mountinfo(file.read())
    except OSError:
        return None
    return any(line.file_system in ("cgroup", "cgroup2") and not line.read_only for line in lines)
