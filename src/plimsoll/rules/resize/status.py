"""The resources in the status of a container and of a pod (03 §9).

The runtime reports the actual values in the kernel's units: shares, quota and period, a memory limit. Converted back to
cores and bytes, they replace the allocated values one by one, where they are known. No runtime reports a memory
request; the last actuated one is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.rules.cgroups.rounding import kept, same_value
from plimsoll.rules.model.kernel import CgroupVersion, Weight
from plimsoll.rules.model.objects import CPU, MEMORY, ResourceList, Resources
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resources.cpu import MIN_SHARES, milli_from_quota, milli_from_shares, shares_from_weight
from plimsoll.rules.resources.files import MAX, file_map
from plimsoll.rules.resources.values import Values

# The smallest values that the kernel can express. At or below them the allocated value is shown, not the rounded one.
MIN_LIMIT_MILLI = 10
MIN_REQUEST_MILLI = MIN_SHARES

_Known = Mapping[str, Quantity | None]


def status_resources(
    allocated: Resources,
    *,
    running: bool,
    reported: Values | None = None,
    actuated: Resources | None = None,
    previous: Resources | None = None,
) -> Resources:
    """`resources` of a container's status.

    `reported` is None if the runtime reports nothing. `previous` is the last status of the same running container:
    unknown values are taken from it.
    """
    if not running:
        return allocated
    limits, requests = _known(reported, actuated)
    before = previous if previous is not None else Resources()
    return Resources(
        _shown(allocated.requests, requests, before.requests, MIN_REQUEST_MILLI),
        _shown(allocated.limits, limits, before.limits, MIN_LIMIT_MILLI),
        allocated.claims,
    )


def pod_status_resources(
    own: Resources | None,
    requests: ResourceList,
    limits: ResourceList,
    reported: Values | None,
    actuated: Resources | None,
) -> Resources:
    """`resources` of a pod's status: what its cgroup has while it runs, the effective resources (01 §6) otherwise.

    `own`: the pod-level block, which a pod need not have. `reported` is None while the pod has no cgroup.
    """
    if reported is None:
        return Resources(requests or None, limits or None)
    block = own if own is not None else Resources()
    allocated = Resources(block.requests or {}, block.limits or {}, block.claims)
    shown = status_resources(allocated, running=True, reported=reported, actuated=actuated)
    found = dict(shown.requests or {})
    if MEMORY not in found and MEMORY in requests:
        found[MEMORY] = requests[MEMORY]
    return Resources(found or None, shown.limits or None, shown.claims)


# The cgroup files that a container's status is computed from.
STATUS_FILES: Mapping[CgroupVersion, tuple[str, ...]] = {
    1: ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes"),
    2: ("cpu.weight", "cpu.max", "memory.max"),
}


def kernel_values(
    files: Mapping[str, str], actuated: Values, version: CgroupVersion, weight: Weight = "linear", page_size: int = 4096
) -> Values:
    """The values in a cgroup's files. A file that shows what the kernel makes of the actuated value counts as that
    value: the kernel rounds bytes to pages, and several shares map to one weight."""
    written = {name: str(text) for name, text in file_map(actuated, version, weight).items()}

    def is_actuated(name: str) -> bool:
        return name in written and name in files and same_value(name, written[name], files[name], page_size)

    if version == 1:
        shares = _number(files.get("cpu.shares"))
        quota, period = _number(files.get("cpu.cfs_quota_us")), _number(files.get("cpu.cfs_period_us"))
        limit = "memory.limit_in_bytes"
    else:
        cpu_weight = _number(files.get("cpu.weight"))
        if cpu_weight is None or is_actuated("cpu.weight"):
            shares = actuated.cpu_shares
        else:
            shares = shares_from_weight(cpu_weight)
        words = (files.get("cpu.max") or MAX).split()
        quota, period = _number(words[0]), _number(words[1]) if len(words) > 1 else None
        limit = "memory.max"
    memory = actuated.memory_bytes if is_actuated(limit) else _number(kept(limit, files.get(limit, MAX), page_size))
    return Values(cpu_shares=shares, cpu_quota_us=quota, cpu_period_us=period, memory_bytes=memory)


def _number(text: str | None) -> int | None:
    return None if text is None or text == MAX else int(text)


def _known(reported: Values | None, actuated: Resources | None) -> tuple[_Known, _Known]:
    actuated_limits = (actuated.limits if actuated is not None else None) or {}
    actuated_requests = (actuated.requests if actuated is not None else None) or {}
    memory_request = actuated_requests.get(MEMORY) or None
    if reported is None:
        return (
            {CPU: actuated_limits.get(CPU) or None, MEMORY: actuated_limits.get(MEMORY) or None},
            {CPU: actuated_requests.get(CPU) or None, MEMORY: memory_request},
        )
    cpu_limit = milli_from_quota(reported.cpu_quota_us or 0, reported.cpu_period_us or 0)
    cpu_request = milli_from_shares(reported.cpu_shares or 0)
    memory_limit = reported.memory_bytes or 0
    return (
        {
            CPU: from_milli(cpu_limit) if cpu_limit > 0 else None,
            MEMORY: from_units(memory_limit, "BinarySI") if memory_limit > 0 else None,
        },
        {CPU: from_milli(cpu_request) if cpu_request > 0 else None, MEMORY: memory_request},
    )


def _shown(
    allocated: ResourceList | None, known: _Known, previous: ResourceList | None, floor_milli: int
) -> ResourceList | None:
    """A list that the allocation does not have stays absent."""
    if allocated is None:
        return None
    shown = dict(allocated)
    for name in (CPU, MEMORY):
        value = known[name]
        if value is None:
            value = (previous or {}).get(name)
        elif name == CPU and max(value.milli, allocated.get(CPU, ZERO).milli) <= floor_milli:
            continue
        if value is not None:
            shown[name] = value
    return shown
