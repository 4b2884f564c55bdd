""".NET: the heap's hard limit and the number of processors.

In a container with a memory limit the heap is limited to 75 % of it, at least 20 MB. Environment.ProcessorCount is the
quota, rounded up. Both know cgroup v2 since .NET 5. Server collection has a heap per processor.

Sources: https://learn.microsoft.com/dotnet/core/runtime-config/garbage-collector, dotnet/runtime#53149
"""

from __future__ import annotations

import math

from plimsoll.rules.applications.answer import (
    AppAnswer,
    AppFact,
    AppLimits,
    AppWarning,
    ancestor_warnings,
    crowd_warning,
    seen_limit_warning,
    version_of,
)
from plimsoll.rules.cgroups.reasons import human_bytes

NEWEST = "10.0"
V2_SINCE, LIMIT_SINCE = (5,), (3,)
PERCENT, LEAST = 75, 20_000_000


def dotnet(text: str, limits: AppLimits, settings: dict[str, str]) -> AppAnswer:
    version = version_of(text or NEWEST)
    aware = version >= (V2_SINCE if limits.cgroup_version == 2 else LIMIT_SINCE)
    warnings: list[AppWarning | None] = []
    memory = limits.machine_memory_bytes
    if aware and limits.memory_bytes is not None:
        memory = min(memory, limits.memory_bytes)
    elif not aware:
        why = "cgroup v2 is known since .NET 5" if limits.cgroup_version == 2 else "containers are known since 3.0"
        warnings.append(seen_limit_warning(limits, why, "use a newer .NET, or set DOTNET_GCHeapHardLimit"))
    heap, formula = _heap(memory, limited=memory != limits.machine_memory_bytes, settings=settings)
    limit = limits.effective_memory_bytes or limits.memory_bytes
    if limit is not None and (heap is None or heap >= limit):
        shown = "has no limit" if heap is None else f"may grow to {human_bytes(heap)}"
        warnings.append(
            AppWarning(
                f"the heap {shown}, the container's limit is {human_bytes(limit)}: it is OOM-killed first",
                f"set DOTNET_GCHeapHardLimit=0x{int(limit * PERCENT / 100):X}",
            )
        )
    given = settings.get("PROCESSOR_COUNT", "")
    if given.isdecimal() and int(given):
        cpus, cpu_formula = int(given), "DOTNET_PROCESSOR_COUNT"
    elif aware and limits.quota_cpus is not None:
        cpus = min(limits.machine_cpus, max(1, math.ceil(limits.quota_cpus)))
        cpu_formula = f"⌈{limits.quota_cpus:g}⌉, at most the machine's {limits.machine_cpus}"
    else:
        cpus, cpu_formula = limits.machine_cpus, "of the machine"
    server = settings.get("gcServer") == "1"
    warnings.append(crowd_warning(limits, cpus, "pool threads", "set DOTNET_PROCESSOR_COUNT"))
    return AppAnswer(
        "dotnet",
        text or NEWEST,
        memory,
        cpus,
        heap,
        (
            AppFact(
                "heap hard limit", human_bytes(heap) if heap is not None else "none", formula, "GCHeapHardLimitPercent"
            ),
            AppFact("Environment.ProcessorCount", str(cpus), cpu_formula),
            AppFact("heaps", str(cpus) if server else "1", "one per processor" if server else "workstation collection"),
        ),
        tuple(each for each in (*warnings, *ancestor_warnings(limits)) if each is not None),
    )


def _heap(memory: int, *, limited: bool, settings: dict[str, str]) -> tuple[int | None, str]:
    fixed = _hexadecimal(settings.get("GCHeapHardLimit", ""))
    if fixed:
        return fixed, "DOTNET_GCHeapHardLimit"
    percent = _hexadecimal(settings.get("GCHeapHardLimitPercent", ""))
    if percent and percent <= 100:
        return memory * percent // 100, f"{percent} % of {human_bytes(memory)} (DOTNET_GCHeapHardLimitPercent)"
    if not limited:
        return None, "no container limit is seen"
    return max(memory * PERCENT // 100, LEAST), f"max({PERCENT} % of {human_bytes(memory)}, 20 MB)"


def _hexadecimal(text: str) -> int:
    """These variables are hexadecimal, with or without 0x."""
    try:
        return int(text, 16) if text else 0
    except ValueError:
        return 0
