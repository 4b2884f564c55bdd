"""Go: GOMAXPROCS and the memory limit.

Up to 1.24 GOMAXPROCS is the number of CPUs that the process may run on. Since 1.25 it is at most the quota of the
process's own cgroup, rounded up, and not below 2 because of it; limits of ancestors are not read (golang/go#81180).
It follows changes of the quota. The memory limit of the container is never read: GOMEMLIMIT must be set.

Sources: golang/go#73193, https://go.dev/blog/container-aware-gomaxprocs, https://go.dev/doc/gc-guide
"""

from __future__ import annotations

import math

from plimsoll.rules.applications.answer import (
    AppAnswer,
    AppFact,
    AppLimits,
    AppWarning,
    amount,
    ancestor_warnings,
    crowd_warning,
    version_of,
)
from plimsoll.rules.cgroups.reasons import human_bytes

NEWEST = "1.25"
QUOTA_SINCE = (1, 25)
LEAST_BY_QUOTA = 2
RECOMMENDED_SHARE = 0.9


def golang(text: str, limits: AppLimits, settings: dict[str, str]) -> AppAnswer:
    version = version_of(text or NEWEST)
    warnings: list[AppWarning | None] = []
    procs, formula = _procs(version, limits, settings)
    given = settings.get("GOMEMLIMIT", "")
    soft = amount(given) if given and given != "off" else None
    limit = limits.effective_memory_bytes or limits.memory_bytes
    if limit is not None and soft is None:
        warnings.append(
            AppWarning(
                f"GOMEMLIMIT is not set: the collector does not know the limit of {human_bytes(limit)}, and the heap "
                "may double between collections (GOGC=100)",
                f"set GOMEMLIMIT={int(limit * RECOMMENDED_SHARE) >> 20}MiB",
                severe=False,
            )
        )
    elif limit is not None and soft is not None and soft > limit:
        warnings.append(
            AppWarning(
                f"GOMEMLIMIT {human_bytes(soft)} is above the limit of {human_bytes(limit)}: it is OOM-killed first",
                f"set GOMEMLIMIT={int(limit * RECOMMENDED_SHARE) >> 20}MiB",
            )
        )
    warnings.append(
        crowd_warning(limits, procs, "running threads (GOMAXPROCS)", "build with Go 1.25 or newer, or set GOMAXPROCS")
    )
    return AppAnswer(
        "go",
        text or NEWEST,
        limits.machine_memory_bytes,
        procs,
        soft,
        (
            AppFact("GOMAXPROCS", str(procs), formula, "golang/go#73193"),
            AppFact(
                "memory limit",
                human_bytes(soft) if soft is not None else "none",
                "GOMEMLIMIT" if soft is not None else "GOMEMLIMIT is not set; Go does not read the container's limit",
                "https://go.dev/doc/gc-guide",
            ),
        ),
        tuple(each for each in (*warnings, *ancestor_warnings(limits)) if each is not None),
    )


def _procs(version: tuple[int, ...], limits: AppLimits, settings: dict[str, str]) -> tuple[int, str]:
    chosen = settings.get("GOMAXPROCS", "")
    if chosen.isdecimal() and int(chosen):
        return int(chosen), "GOMAXPROCS is set"
    if version[:2] < QUOTA_SINCE or settings.get("containermaxprocs") == "0":
        why = "GODEBUG=containermaxprocs=0" if version[:2] >= QUOTA_SINCE else "before 1.25 the quota is not read"
        return limits.machine_cpus, f"CPUs of the machine: {why}"
    if limits.quota_cpus is None:
        return limits.machine_cpus, "CPUs of the machine: no quota"
    by_quota = max(LEAST_BY_QUOTA, math.ceil(limits.quota_cpus))
    procs = min(limits.machine_cpus, by_quota)
    return procs, f"min({limits.machine_cpus}, max({LEAST_BY_QUOTA}, ⌈{limits.quota_cpus:g}⌉)) = {procs}"
