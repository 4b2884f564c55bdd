"""The question, a container's limits on a machine, and the answer, what a language runtime chooses."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from plimsoll.rules.cgroups.reasons import human_bytes

App = Literal["jvm", "go", "node", "dotnet"]
Version = tuple[int, ...]


class AppLimits(msgspec.Struct, frozen=True):
    """A container's own control files, and the machine. None: no limit."""

    machine_cpus: int
    machine_memory_bytes: int
    memory_bytes: int | None = None
    cpu_milli: int | None = None
    cpu_shares: int | None = None
    cgroup_version: Literal[1, 2] = 2
    kernel: tuple[int, int] | None = None
    # Whether /proc/cgroups lists the memory controller; None: not known, then the kernel's version decides.
    listed_in_proc: bool | None = None
    # Limits that only ancestors have: the kernel enforces them, the runtime does not see them.
    effective_memory_bytes: int | None = None
    effective_cpu_milli: int | None = None

    @property
    def quota_cpus(self) -> float | None:
        return None if self.cpu_milli is None else self.cpu_milli / 1000


class AppFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """`formula`: how the value comes about, with the numbers."""

    name: str
    value: str
    formula: str = ""
    source: str = ""


class AppWarning(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    advice: str
    severe: bool = True  # it will be killed or throttled; otherwise only worth knowing


class AppAnswer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    app: App
    version: str
    memory_seen_bytes: int
    cpus_seen: int
    heap_bytes: int | None = None  # None: the runtime sets no limit
    facts: tuple[AppFact, ...] = ()
    warnings: tuple[AppWarning, ...] = ()


def version_of(text: str) -> Version:
    """`17.0.8+7` → (17, 0, 8); `1.8.0_372` and `8u372` → (8, 372); `go1.25.1` → (1, 25, 1)."""
    java = re.match(r"(?:1\.)?8(?:u|\.0_)(\d+)", text)
    if java is not None:
        return (8, int(java[1]))
    if text.startswith("1.8"):
        return (8, 0)
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found is not None else ()


def amount(text: str) -> int | None:
    """`512m`, `2g`, `1048576`, `900MiB` → bytes."""
    found = re.fullmatch(r"(\d+)([kmgtKMGT]?)(?:i?[bB])?", text.strip())
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2].lower()] if found is not None else None


def seen_limit_warning(limits: AppLimits, why: str, advice: str) -> AppWarning | None:
    """A warning if the runtime takes the machine's memory although the container has a limit."""
    if limits.memory_bytes is None or limits.memory_bytes >= limits.machine_memory_bytes:
        return None
    shown = f"it takes the memory of the machine ({human_bytes(limits.machine_memory_bytes)}) for its own"
    return AppWarning(f"{shown}, not the limit ({human_bytes(limits.memory_bytes)}): {why}", advice)


def ancestor_warnings(limits: AppLimits) -> list[AppWarning]:
    """Limits of the pod or of the node that are lower than the container's own."""
    found = []
    memory, own = limits.effective_memory_bytes, limits.memory_bytes
    if memory is not None and memory < (own if own is not None else limits.machine_memory_bytes):
        found.append(
            AppWarning(
                f"the pod's or node's memory limit ({human_bytes(memory)}) applies, and it does not see it",
                "set a memory limit for the container too",
            )
        )
    milli = limits.effective_cpu_milli
    if milli is not None and milli < (limits.cpu_milli or limits.machine_cpus * 1000):
        found.append(
            AppWarning(
                f"the pod's CPU limit ({milli}m) applies, and it does not see it",
                "set a CPU limit for the container too, or the number of threads by hand",
            )
        )
    return found


def crowd_warning(limits: AppLimits, threads: int, what: str, advice: str) -> AppWarning | None:
    """A warning if many more threads run than the quota pays for."""
    quota = limits.quota_cpus
    if quota is None or threads <= max(2.0, 2 * quota):
        return None
    within_ms = quota * 100 / threads
    return AppWarning(
        f"{threads} {what} share {quota:g} CPUs: together they use up a period of 100 ms within {within_ms:.1f} ms "
        "and are throttled for the rest",
        advice,
    )
