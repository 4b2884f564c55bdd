"""Node.js: V8's heap and libuv's threads.

V8 chooses half of the memory it sees for the old generation, at most 2 GiB, or 4 GiB on machines with more than 15 GiB.
Node.js passes it the container's limit on v1 since 12, on v2 since 20.3 (libuv 1.45). os.availableParallelism() knows
the quota since 22.12 (libuv 1.49), rounded down; from 23.11 and 22.16 on (libuv 1.50.1) never below 1.

Sources: nodejs/node#27508, nodejs/node#47259, libuv/libuv#3744, libuv/libuv#4740, kubernetes#118916
"""

from __future__ import annotations

from plimsoll.rules.applications.answer import (
    AppAnswer,
    AppFact,
    AppLimits,
    AppWarning,
    Version,
    ancestor_warnings,
    crowd_warning,
    seen_limit_warning,
    version_of,
)
from plimsoll.rules.cgroups.reasons import human_bytes

NEWEST = "24"
V1_SINCE, V2_SINCE, QUOTA_SINCE = (12,), (20, 3), (22, 12)
_GIB = 1 << 30
LARGE_MACHINE, MOST, MOST_LARGE = 15 * _GIB, 2 * _GIB, 4 * _GIB
POOL = 4


def nodejs(text: str, limits: AppLimits, settings: dict[str, str]) -> AppAnswer:
    version = version_of(text or NEWEST)
    aware = version >= (V2_SINCE if limits.cgroup_version == 2 else V1_SINCE)
    memory = limits.machine_memory_bytes
    warnings: list[AppWarning | None] = []
    if aware and limits.memory_bytes is not None:
        memory = min(memory, limits.memory_bytes)
    old, formula = _old_generation(memory, settings)
    fixed = "max-old-space-size" in settings
    if not aware and not fixed:
        why = f"Node.js knows cgroup v{limits.cgroup_version} since {'20.3' if limits.cgroup_version == 2 else '12'}"
        warnings.append(seen_limit_warning(limits, why, "use a newer Node.js, or set --max-old-space-size"))
    limit = limits.effective_memory_bytes or limits.memory_bytes
    if limit is not None and old >= limit:
        warnings.append(
            AppWarning(
                f"the old generation may grow to {human_bytes(old)}, the limit is {human_bytes(limit)}: it is "
                "OOM-killed first",
                f"set --max-old-space-size={int(limit * 0.75) >> 20}",
            )
        )
    cpus, cpu_formula = _parallelism(version, limits)
    pool = settings.get("UV_THREADPOOL_SIZE", "")
    threads = int(pool) if pool.isdecimal() else POOL
    warnings.append(
        crowd_warning(limits, cpus, "workers, if it starts one per CPU", "set the number of workers by hand")
    )
    return AppAnswer(
        "node",
        text or NEWEST,
        memory,
        cpus,
        old,
        (
            AppFact(
                "memory",
                human_bytes(memory),
                "the container's limit" if memory != limits.machine_memory_bytes else "of the machine",
                "nodejs/node#27508",
            ),
            AppFact("old generation", human_bytes(old), formula, "V8"),
            AppFact("os.availableParallelism()", str(cpus), cpu_formula, "libuv/libuv#4740"),
            AppFact("libuv's thread pool", str(threads), "UV_THREADPOOL_SIZE" if pool.isdecimal() else "always 4"),
        ),
        tuple(each for each in (*warnings, *ancestor_warnings(limits)) if each is not None),
    )


def _old_generation(memory: int, settings: dict[str, str]) -> tuple[int, str]:
    given = settings.get("max-old-space-size", "")
    if given.isdecimal() and int(given):
        return int(given) << 20, "--max-old-space-size"
    most = MOST_LARGE if memory > LARGE_MACHINE else MOST
    return min(memory // 2, most), f"min({human_bytes(memory)} / 2, {human_bytes(most)})"


def _parallelism(version: Version, limits: AppLimits) -> tuple[int, str]:
    if version < QUOTA_SINCE or limits.quota_cpus is None:
        why = "no quota" if limits.quota_cpus is None else "the quota is read since 22.12"
        return limits.machine_cpus, f"CPUs of the machine: {why}"
    whole = int(limits.quota_cpus)
    if not whole:
        return limits.machine_cpus if version < (22, 16) else 1, f"⌊{limits.quota_cpus:g}⌋ = 0: a quota below 1 CPU"
    return min(limits.machine_cpus, whole), f"⌊{limits.quota_cpus:g}⌋"
