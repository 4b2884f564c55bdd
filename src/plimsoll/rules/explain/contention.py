"""The effective values of a cgroup under full contention: ancestors and siblings count as well.

A limit of an ancestor applies below it. Protection (`memory.min`, `memory.low`) is capped by the parent's, and divided
in proportion if the siblings claim more than that. CPU weights only compare siblings, so a cgroup's worst case is its
share of its parent's share, up to the root: weight 100 of 400 below a parent with 2 CPUs: 0.5 CPU. Exclusive CPUs (02
§10) are not contended for; all other containers share the rest.

Kernel: Documentation/admin-guide/cgroup-v2.rst, "Resource Distribution Models".
"""

from __future__ import annotations

import math

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup, Effective

SHARED_CPUS = "shared CPUs"


class _Above(msgspec.Struct, frozen=True):
    """What the ancestors leave. Protection None: no ancestor restricts it (the root has no protection)."""

    shared_milli: float  # of the contended CPUs
    pool_milli: float | None = None  # the most that a container without exclusive CPUs can have; None: all
    minimum: float | None = None
    low: float | None = None
    limit: int | None = None
    limit_from: str = ""
    quota_milli: float | None = None
    quota_from: str = ""


def with_effective(tree: Cgroup, cpu_milli: int, shared_cpus: int | None = None) -> Cgroup:
    """The tree with `effective` set. `cpu_milli` is shared by all pods; `shared_cpus` excludes exclusive CPUs."""
    if shared_cpus is None:
        return _filled(tree, _Above(float(cpu_milli)))
    pool = shared_cpus * 1000.0
    return _filled(tree, _Above(min(float(cpu_milli), pool), pool))


class _Beside(msgspec.Struct, frozen=True):
    """The sums over a cgroup and the siblings that contend with it."""

    weights: int
    minimums: int
    lows: int


def _filled(cgroup: Cgroup, above: _Above) -> Cgroup:
    together = [each for each in cgroup.children if each.stage != "init"]
    sums = _beside(together)
    children = []
    sidecars: list[Cgroup] = []  # only sidecars started before an init container run beside it
    for child in cgroup.children:
        beside = _beside([*sidecars, child]) if child.stage == "init" else sums
        if child.stage == "sidecar":
            sidecars.append(child)
        here = _below(child, above, beside)
        children.append(msgspec.structs.replace(_filled(child, here), effective=_effective(child, here)))
    return msgspec.structs.replace(cgroup, children=tuple(children))


def _beside(cgroups: list[Cgroup]) -> _Beside:
    return _Beside(
        sum(_weight(each) for each in cgroups if _contends(each)),
        sum(_number(each, "memory.min") for each in cgroups),
        sum(_number(each, "memory.low") for each in cgroups),
    )


def _below(child: Cgroup, above: _Above, beside: _Beside) -> _Above:
    if child.level in ("pods", "reserved"):  # these do not contend: the share of pods is known
        share = above.shared_milli
    else:
        contends = beside.weights and _contends(child)
        share = above.shared_milli * _weight(child) / beside.weights if contends else 0.0
    quota, quota_from = above.quota_milli, above.quota_from
    own_quota = quota_milli(child)
    if own_quota is not None and (quota is None or own_quota < quota):
        quota, quota_from = own_quota, child.name
    limit, limit_from = above.limit, above.limit_from
    own_limit = memory_limit(child)
    if own_limit is not None and (limit is None or own_limit < limit):
        limit, limit_from = own_limit, child.name
    return _Above(
        share if quota is None else min(share, quota),
        above.pool_milli,
        _protected(_number(child, "memory.min"), beside.minimums, above.minimum),
        _protected(_number(child, "memory.low"), beside.lows, above.low),
        limit,
        limit_from,
        quota,
        quota_from,
    )


def _effective(child: Cgroup, here: _Above) -> Effective:
    owned = child.exclusive_cpus * 1000.0
    ceiling, ceiling_from = here.quota_milli, here.quota_from
    # Exclusive CPUs are certain; beside them a cgroup has at most the shared pool.
    most = None if here.pool_milli is None else owned + (here.pool_milli if _contends(child) else 0.0)
    if most is not None and child.level in ("pod", "container", "class") and (ceiling is None or most < ceiling):
        ceiling, ceiling_from = most, child.name if owned else SHARED_CPUS
    floor = owned + here.shared_milli
    return Effective(
        math.floor(here.minimum or 0),
        math.floor(here.low or 0),
        here.limit,
        here.limit_from,
        math.floor(floor if ceiling is None else min(floor, ceiling)),
        None if ceiling is None else math.floor(ceiling),
        ceiling_from,
    )


def _contends(child: Cgroup) -> bool:
    """False for owners of exclusive CPUs, unless a part of them owns none, and for an empty class."""
    if child.level == "class":
        return bool(child.children)  # a weight without processes has no effect
    if not child.exclusive_cpus:
        return True
    return any(not each.exclusive_cpus for each in child.children)


def _protected(own: int, claims: int, parent: float | None) -> float:
    """The cgroup's claim, capped by the parent's; in proportion if the siblings claim more.

    Claims 2Gi and 6Gi below a parent with 4Gi: 1Gi and 3Gi.
    """
    return float(own) if parent is None or claims <= parent else own * parent / claims


def memory_limit(cgroup: Cgroup) -> int | None:
    return _number(cgroup, "memory.max") or _number(cgroup, "memory.limit_in_bytes") or None


def quota_milli(cgroup: Cgroup) -> float | None:
    """The cgroup's own cpu limit, in milli-cores; None without one."""
    both = cgroup.value("cpu.max")
    if isinstance(both, str):
        quota, _, period = both.partition(" ")
        return None if quota == "max" else int(quota) * 1000 / int(period)
    quota_us, period_us = _number(cgroup, "cpu.cfs_quota_us"), _number(cgroup, "cpu.cfs_period_us")
    return quota_us * 1000 / period_us if quota_us > 0 and period_us else None


def _weight(cgroup: Cgroup) -> int:
    return _number(cgroup, "cpu.weight") or _number(cgroup, "cpu.shares")


def _number(cgroup: Cgroup, name: str) -> int:
    value = cgroup.value(name)
    return value if isinstance(value, int) else 0
