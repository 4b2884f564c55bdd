"""What is left of a value once the whole tree is there: ancestors and siblings decide as well.

A limit above is a limit. Protection (`memory.min`, `memory.low`) is capped by what the parent has, and where siblings
together claim more than that, it is divided by their claims. CPU weights only compare siblings, so a cgroup's worst
case is its share of its parent's share, all the way up. Exclusive CPUs (02 §10) are out of that contest: who owns some
has them, and everybody else shares the rest. These are the kernel's rules for a full machine: the floor.
"""

from __future__ import annotations

import math

import msgspec

from plimsoll.rules.desired import Cgroup, Effective

SHARED_CPUS = "shared CPUs"


class _Above(msgspec.Struct, frozen=True):
    """What the ancestors leave. Protection None: nothing above restricts it (the root has no protection to give)."""

    cpu_milli: float
    minimum: float | None = None
    low: float | None = None
    limit: int | None = None
    limit_from: str = ""
    ceiling: float | None = None
    ceiling_from: str = ""


def with_effective(tree: Cgroup, cpu_milli: int, shared_cpus: int | None = None) -> Cgroup:
    """The same tree, `effective` filled in. `cpu_milli` is what all pods share; `shared_cpus` excludes owned ones."""
    if shared_cpus is None:
        return _filled(tree, _Above(float(cpu_milli)))
    pool = shared_cpus * 1000.0
    return _filled(tree, _Above(min(float(cpu_milli), pool), ceiling=pool, ceiling_from=SHARED_CPUS))


def _filled(cgroup: Cgroup, above: _Above) -> Cgroup:
    children = []
    for child in cgroup.children:
        beside = [each for each in cgroup.children if each is child or _runs_beside(child, each)]
        weights = sum(_weight(each) for each in beside if _contends(each))
        minimums = sum(_number(each, "memory.min") for each in beside)
        lows = sum(_number(each, "memory.low") for each in beside)
        here = _below(child, above, weights, minimums, lows)
        effective = Effective(
            math.floor(here.minimum or 0),
            math.floor(here.low or 0),
            here.limit,
            here.limit_from,
            math.floor(here.cpu_milli),
            None if here.ceiling is None else math.floor(here.ceiling),
            here.ceiling_from,
        )
        children.append(msgspec.structs.replace(_filled(child, here), effective=effective))
    return msgspec.structs.replace(cgroup, children=tuple(children))


def _below(child: Cgroup, above: _Above, weights: int, minimums: int, lows: int) -> _Above:
    ceiling, ceiling_from = above.ceiling, above.ceiling_from
    if child.exclusive_cpus:
        share = ceiling = child.exclusive_cpus * 1000.0
        ceiling_from = child.name
    elif child.level in ("pods", "reserved"):  # these do not contend here: `cpu_milli` is already what the pods have
        share = above.cpu_milli
    else:
        share = above.cpu_milli * _weight(child) / weights if weights and _contends(child) else 0.0
    quota = quota_milli(child)
    if quota is not None and (ceiling is None or quota < ceiling):
        ceiling, ceiling_from = quota, child.name
    limit, limit_from = above.limit, above.limit_from
    own = memory_limit(child)
    if own is not None and (limit is None or own < limit):
        limit, limit_from = own, child.name
    return _Above(
        share if ceiling is None else min(share, ceiling),
        _protected(_number(child, "memory.min"), minimums, above.minimum),
        _protected(_number(child, "memory.low"), lows, above.low),
        limit,
        limit_from,
        ceiling,
        ceiling_from,
    )


def _runs_beside(child: Cgroup, other: Cgroup) -> bool:
    """An init container runs with sidecars only; all the rest run together, without it."""
    return other.stage == "sidecar" if child.stage == "init" else other.stage != "init"


def _contends(child: Cgroup) -> bool:
    """Owners of CPUs do not, nor does a class that is empty here: a weight without processes weighs nothing."""
    return not child.exclusive_cpus and (child.level != "class" or bool(child.children))


def _protected(own: int, siblings: int, parent: float | None) -> float:
    """Own claim, capped by the parent; divided by claims where the siblings' claims exceed the parent's."""
    if parent is None or siblings <= parent:
        return float(own)
    return own * parent / siblings


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
