"""The JVM (OpenJDK's HotSpot): heap, CPUs and collector.

Heap, if nothing is set: 25 % of the memory it sees (MaxRAMPercentage), but 50 % (MinRAMPercentage) where that is less
than the default MaxHeapSize of 64-bit machines, 96 MiB · 1.3. 1Gi: 256Mi; 200Mi: 100Mi. CPUs: the quota, rounded up;
before JDK-8281181 (19, 17.0.5, 11.0.17, 8u362) without a quota also ⌈shares / 1024⌉.

Sources: JDK-8146115 (containers, 10 and 8u191), JDK-8230305 (cgroup v2, 15, 11.0.16 and 8u372), JDK-8349988
(/proc/cgroups, 25; merged in April and May 2026 into 21u, 17u, 11u and 8u).
"""

from __future__ import annotations

import math

from plimsoll.rules.applications.answer import (
    AppAnswer,
    AppFact,
    AppLimits,
    AppWarning,
    Version,
    amount,
    ancestor_warnings,
    crowd_warning,
    seen_limit_warning,
    version_of,
)
from plimsoll.rules.cgroups.reasons import human_bytes

NEWEST = "25"
DEFAULT_MAX_HEAP = 96 * (1 << 20) * 13 // 10 // 8 * 8  # 124.8 MiB
SERVER_MEMORY = 1792 << 20  # with 2 CPUs: a server-class machine
KERNEL_WITHOUT_LIST = (7, 0)  # /proc/cgroups shows no v2 controllers
_SHARES_PER_CPU = 1024
_ADVICE = "use a newer JDK, or set -Xmx and -XX:ActiveProcessorCount"


def _since(
    version: Version, eight: int, eleven: int, seventeen: int | None, twenty_one: int | None, first: int
) -> bool:
    """Whether a change is in: since `first`, or since these updates of the long-lived lines (None: from the start)."""
    major = version[0] if version else first
    update = version[2] if len(version) > 2 else 0
    if major >= first:
        return True
    if major == 8:
        return len(version) > 1 and version[1] >= eight
    known = {11: eleven, 17: seventeen, 21: twenty_one}
    if major not in known:
        return False
    least = known[major]
    return least is None or update >= least


def knows_containers(version: Version) -> bool:
    return not version or version[0] >= 10 or (version[0] == 8 and len(version) > 1 and version[1] >= 191)


def knows_v2(version: Version) -> bool:
    return _since(version, 372, 16, None, None, 15)


def needs_proc_cgroups(version: Version) -> bool:
    return not _since(version, 502, 32, 20, 12, 25)


def counts_shares(version: Version) -> bool:
    return not _since(version, 362, 17, 5, None, 18)


def jvm(text: str, limits: AppLimits, settings: dict[str, str]) -> AppAnswer:
    version = version_of(text or NEWEST)
    warnings: list[AppWarning | None] = []
    why = _blind(version, limits, settings)
    aware = not why
    memory = limits.machine_memory_bytes
    if aware and limits.memory_bytes is not None:
        memory = min(memory, limits.memory_bytes)
    if why:
        warnings.append(seen_limit_warning(limits, why, _ADVICE))
    cpus, cpu_formula = _cpus(version, limits, settings, aware=aware)
    heap, heap_formula = _heap(memory, settings)
    collector = "G1" if cpus >= 2 and memory >= SERVER_MEMORY else "Serial"
    if version and version[0] == 8 and collector == "G1":
        collector = "Parallel"
    workers = cpus if cpus <= 8 else 8 + (cpus - 8) * 5 // 8
    limit = limits.effective_memory_bytes or limits.memory_bytes
    if limit is not None and heap >= limit:
        warnings.append(
            AppWarning(
                f"the heap may grow to {human_bytes(heap)}, the limit is {human_bytes(limit)}: it is OOM-killed first",
                "set -XX:MaxRAMPercentage=75 or -Xmx below the limit; metaspace, threads and buffers need room too",
            )
        )
    elif limit is not None and aware and "default" in heap_formula and limit >= 1 << 30:
        warnings.append(
            AppWarning(
                f"only {human_bytes(heap)} of {human_bytes(limit)} are used for the heap",
                "set -XX:MaxRAMPercentage=75 if the container runs nothing else",
                severe=False,
            )
        )
    if aware and counts_shares(version) and limits.cpu_milli is None and limits.cpu_shares is not None:
        warnings.append(
            AppWarning(
                f"this release takes the CPU request for a number of CPUs: {cpus}",
                "use a newer update of the JDK, or set -XX:ActiveProcessorCount",
                severe=cpus < limits.machine_cpus,
            )
        )
    warnings.append(crowd_warning(limits, workers, "collector threads", "set -XX:ActiveProcessorCount"))
    return AppAnswer(
        "jvm",
        text or NEWEST,
        memory,
        cpus,
        heap,
        (
            AppFact(
                "memory",
                human_bytes(memory),
                "the container's limit" if aware and memory != limits.machine_memory_bytes else "of the machine",
                "JDK-8146115",
            ),
            AppFact("maximum heap", human_bytes(heap), heap_formula, "MaxRAMPercentage"),
            AppFact("CPUs", str(cpus), cpu_formula, "JDK-8281181"),
            AppFact("collector", collector, f"server class: at least 2 CPUs and {human_bytes(SERVER_MEMORY)}"),
            AppFact(
                "collector threads", str(workers if collector != "Serial" else 1), "CPUs up to 8, then 5 of 8 more"
            ),
            AppFact("common pool", str(max(1, cpus - 1)), "CPUs − 1"),
        ),
        tuple(each for each in (*warnings, *ancestor_warnings(limits)) if each is not None),
    )


def _blind(version: Version, limits: AppLimits, settings: dict[str, str]) -> str:
    """Why it does not see the container; empty if it does."""
    if settings.get("UseContainerSupport") == "-":
        return "-XX:-UseContainerSupport is set"
    if not knows_containers(version):
        return "this release does not know containers (since 8u191 and 10)"
    if limits.cgroup_version == 2 and not knows_v2(version):
        return "this release does not know cgroup v2 (since 8u372, 11.0.16 and 15)"
    unlisted = limits.listed_in_proc is False
    if limits.listed_in_proc is None and limits.kernel is not None:
        unlisted = limits.kernel >= KERNEL_WITHOUT_LIST
    if limits.cgroup_version == 2 and unlisted and needs_proc_cgroups(version):
        return (
            "this kernel lists no v2 controllers in /proc/cgroups, where this release looks (JDK-8349988, fixed in 25)"
        )
    return ""


def _cpus(version: Version, limits: AppLimits, settings: dict[str, str], *, aware: bool) -> tuple[int, str]:
    if (chosen := settings.get("ActiveProcessorCount", "")).isdecimal() and int(chosen):
        return int(chosen), "-XX:ActiveProcessorCount"
    if aware and limits.quota_cpus is not None:
        cpus = min(limits.machine_cpus, max(1, math.ceil(limits.quota_cpus)))
        return cpus, f"⌈{limits.quota_cpus:g}⌉, at most the machine's {limits.machine_cpus}"
    if aware and counts_shares(version) and limits.cpu_shares not in (None, _SHARES_PER_CPU):
        shares = limits.cpu_shares or 0
        cpus = min(limits.machine_cpus, max(1, math.ceil(shares / _SHARES_PER_CPU)))
        return cpus, f"⌈{shares} / {_SHARES_PER_CPU}⌉ of the CPU shares"
    return limits.machine_cpus, "of the machine"


def _heap(memory: int, settings: dict[str, str]) -> tuple[int, str]:
    for name in ("Xmx", "MaxHeapSize"):
        if name in settings and (given := amount(settings[name])) is not None:
            return given, f"-{'XX:' if name != 'Xmx' else ''}{name}"
    most = _percent(settings.get("MaxRAMPercentage"), 25.0)
    least = _percent(settings.get("MinRAMPercentage"), 50.0)
    small = int(memory * least / 100)
    if small < DEFAULT_MAX_HEAP:
        return (
            small,
            f"{least:g} % of {human_bytes(memory)} (MinRAMPercentage: less than {human_bytes(DEFAULT_MAX_HEAP)})",
        )
    note = "default " if "MaxRAMPercentage" not in settings else ""
    return max(
        int(memory * most / 100), DEFAULT_MAX_HEAP
    ), f"{note}{most:g} % of {human_bytes(memory)} (MaxRAMPercentage)"


def _percent(text: str | None, default: float) -> float:
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return value if 0 < value <= 100 else default
