"""The report of an out-of-memory kill: which process, which limit, which other candidates, and the source.

The level is that of the limit that was reached: the container's, its pod's, its class's, that of all pods, or none (the
machine was out of memory). A record names the source of its figures: the kernel log has the process and the limit;
without it, the counters show only that a process was killed, and the last sample before shows the usage, with its age.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner
from plimsoll.rules.quantity import from_units

Level = Literal["container", "pod", "class", "pods", "node", "system", "unknown"]
Source = Literal["kernel log", "counters"]

_LEVELS: dict[str, Level] = {
    "container": "container",
    "inside": "container",
    "pod": "pod",
    "class": "class",
    "pods": "pods",
}
_LIMIT_OF: dict[Level, str] = {
    "container": "the container's memory limit",
    "pod": "the pod's memory limit",
    "class": "the limit of its QoS class",
    "pods": "the limit of all pods together (node allocatable)",
    "node": "a limit above all pods",
    "system": "the memory of the whole machine",
    "unknown": "a limit that is not known",
}


class Victim(msgspec.Struct, frozen=True, rename="camel"):
    """A candidate process with the kernel's figures."""

    pid: int
    name: str
    resident_bytes: int
    oom_score_adj: int


class OomKill(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    time_s: float
    source: Source
    level: Level
    pod_uid: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    container_id: str = ""
    process: str = ""
    pid: int = 0
    killed: int = 1  # how many processes were killed
    container_lives: bool | None = None  # None: not known yet
    limit_path: str = ""
    limit_bytes: int | None = None
    usage_bytes: int | None = None
    sample_age_s: float | None = None  # of `usage_bytes`, if it is the last sample before the kill
    oom_score_adj: int | None = None
    whole_container: bool = False
    while_away: bool = False  # it happened while no agent ran
    stat: dict[str, int] = {}
    candidates: tuple[Victim, ...] = ()


def level_of(limit: CgroupOwner | None, limit_path: str | None) -> Level:
    """`limit_path` None: the machine's memory. `limit`: the owner of that path."""
    if limit_path is None:
        return "system"
    if limit is None:
        return "unknown"
    return _LEVELS.get(limit.kind, "system" if limit_path == "/" else "node")


def oom_sentence(kill: OomKill) -> str:
    """For an event: which process was killed at which limit, and what remains."""
    who = f"Process {kill.process} (pid {kill.pid})" if kill.process else _counted(kill.killed)
    where = f" in container {kill.container}" if kill.container else ""
    was = "were" if kill.killed > 1 and not kill.process else "was"
    text = f"{who}{where} {was} killed by the kernel: out of memory at {_LIMIT_OF[kill.level]}"
    if kill.limit_bytes is not None:
        text += f" ({from_units(kill.limit_bytes, 'BinarySI')})"
    if kill.while_away:
        text += ", while no agent was running"
    if kill.whole_container:
        text += "; the whole container was killed with it"
    elif kill.container_lives is not None:
        text += "; the container continues" if kill.container_lives else "; the container ended with it"
    if kill.source == "counters":
        age = "" if kill.sample_age_s is None else f", last seen {kill.sample_age_s:.1f} s before"
        used = "" if kill.usage_bytes is None else f" (usage {from_units(kill.usage_bytes, 'BinarySI')}{age})"
        text += f"; known from the kernel's counters{used}"
    return text


def system_oom_message(process: str, pid: int) -> str:
    """The node's event SystemOOM (04 §10)."""
    return f"System OOM encountered, victim process: {process}, pid: {pid}"


def _counted(number: int) -> str:
    return "A process" if number == 1 else f"{number} processes"
