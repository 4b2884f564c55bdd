"""Proactive reclaim: how much cold memory to reclaim from a container now, if any.

The kernel reclaims only when memory is short. Reclaiming a little at a time before that keeps memory free and costs the
container nothing, as long as it does not need the pages again. PSI shows whether it does: a container that waits for
memory is not reclaimed from. The CPU time of the reclaim has a budget, because the kernel spends it on our account.

One step is 1 % of the usage, at least 1 MiB, never below the protection (memory.min and memory.low), and only if the
container stalled for less than 0.1 % of the time since the last sample.
Usage 1 GiB, protection 256 MiB, no stall in 10 s: 10.24 MiB.

Kernel: Documentation/admin-guide/cgroup-v2.rst, memory.reclaim; Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import msgspec

STEP_SHARE = 0.01  # of the usage
LEAST_BYTES = 1 << 20
STALL_SHARE = 0.001  # of the time since the last sample
CPU_SHARE = 0.002  # of one CPU, for all containers together


class ReclaimSample(msgspec.Struct, frozen=True):
    time_s: float
    usage_bytes: int
    stalled_us: int  # memory.pressure, "some" total


def reclaim_bytes(before: ReclaimSample | None, sample: ReclaimSample, protected_bytes: int, page_size: int) -> int:
    """0: nothing now. The first sample of a container only starts the observation."""
    if before is None or sample.time_s <= before.time_s:
        return 0
    stalled_s = (sample.stalled_us - before.stalled_us) / 1e6
    if stalled_s < 0 or stalled_s > STALL_SHARE * (sample.time_s - before.time_s):
        return 0
    step = max(int(sample.usage_bytes * STEP_SHARE), LEAST_BYTES)
    room = sample.usage_bytes - protected_bytes
    return step // page_size * page_size if room >= step else 0


def within_budget(spent_s: float, elapsed_s: float) -> bool:
    """Whether another step may be made, by the CPU time of the steps so far."""
    return spent_s <= CPU_SHARE * elapsed_s
