"""The differences between two explanations of the same pods: releases, drivers, cgroup versions, runtimes.

`explain --diff` prints them, and `upgrade` looks for their causes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup, Effective
from plimsoll.rules.explain.explanation import Explanation, PodExplanation

# Files of v1 and v2 with the same meaning (02 §4.6): one row of the comparison.
MEANINGS = {
    "cpu.shares": "cpu weight",
    "cpu.weight": "cpu weight",
    "cpu.cfs_quota_us": "cpu limit",
    "cpu.cfs_period_us": "cpu limit",
    "cpu.max": "cpu limit",
    "memory.limit_in_bytes": "memory limit",
    "memory.max": "memory limit",
    "memory.memsw.limit_in_bytes": "swap limit",
    "memory.swap.max": "swap limit",
}
ABSENT = "–"
NODE = "node"
CLASS, SCORE, PATH = "QoS class", "oom_score_adj", "path"
PROTECTED, CPU_FLOOR = "protected memory", "cpu under contention"
COUNTED, LIMITS, EVICTION, STORAGE = "counted", "limit", "eviction", "enforced storage limit"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    where: str
    what: str
    first: str
    second: str
    note: str = ""
    formula: str = ""  # of the second value; of the first where there is no second


class Fact(msgspec.Struct, frozen=True):
    value: str
    note: str = ""
    formula: str = ""


Facts = dict[tuple[str, str], Fact]  # by (where, what)
_NONE = Fact(ABSENT)


def differences(first: Explanation, second: Explanation) -> list[Difference]:
    return differing(facts(first), facts(second))


def differing(left: Facts, right: Facts) -> list[Difference]:
    places = {where: index for index, where in enumerate(dict.fromkeys(where for where, _ in [*left, *right]))}
    changed = [key for key in dict.fromkeys([*left, *right]) if value_of(left, key) != value_of(right, key)]
    rows = []
    for key in sorted(changed, key=lambda key: places[key[0]]):
        before, after = left.get(key, _NONE), right.get(key, _NONE)
        formula = after.formula if after is not _NONE else before.formula
        rows.append(Difference(*key, before.value, after.value, before.note or after.note, formula))
    return rows


def value_of(found: Facts, key: tuple[str, str]) -> str:
    return found.get(key, _NONE).value


def facts(found: Explanation) -> Facts:
    """Everything that is compared, in the order of the tree."""
    collected: Facts = {}
    for name, text in found.node.allocatable.items():
        collected[NODE, f"allocatable {name}"] = Fact(text)
    if found.node.withheld_memory:
        collected[NODE, "memory.available without"] = Fact(found.node.withheld_memory, formula="Σ huge pages")
    for pod in found.pods:
        collected.update(_pod_facts(pod))
    _collect(found.tree, "", collected)
    return collected


def pod_facts(found: PodExplanation, cgroup: Cgroup) -> Facts:
    """The same of one pod."""
    collected = dict(_pod_facts(found))
    _collect(cgroup, "", collected)
    return collected


def _pod_facts(pod: PodExplanation) -> Iterator[tuple[tuple[str, str], Fact]]:
    yield (pod.name, CLASS), Fact(pod.qos_class, formula=pod.because)
    for name, text in pod.requests.items():
        yield (pod.name, f"{COUNTED} {name}"), Fact(text)
    for name, text in pod.limits.items():
        yield (pod.name, f"{LIMITS} {name}"), Fact(text)
    yield (pod.name, EVICTION), Fact(pod.eviction.place())
    for container, text in pod.storage_limits.items():
        yield (f"{pod.name} / {container}", STORAGE), Fact(text)


def _collect(cgroup: Cgroup, above: str, collected: Facts) -> None:
    where = {"pods": NODE, "class": cgroup.name, "pod": cgroup.name}.get(cgroup.level, f"{above} / {cgroup.name}")
    if cgroup.level != "node":
        collected[where, PATH] = Fact(cgroup.path)
        if cgroup.oom_score_adj is not None:
            collected[where, SCORE] = Fact(str(cgroup.oom_score_adj), formula=cgroup.oom_steps)
        for file in cgroup.files:
            key = (where, MEANINGS.get(file.name, file.name))
            text = f"{file.name} {file.value}" if key[1] != file.name else str(file.value)
            if key in collected:  # on v1, quota and period are two files
                text = f"{collected[key].value}, {text}"
            collected[key] = Fact(text, file.reason.note, file.reason.formula)
        if cgroup.level in ("pod", "container") and cgroup.effective is not None:
            collected.update(_effective_facts(where, cgroup.effective))
    for child in cgroup.children:
        _collect(child, where, collected)


def _effective_facts(where: str, effective: Effective) -> Iterator[tuple[tuple[str, str], Fact]]:
    protected = effective.memory_min_bytes + effective.memory_low_bytes
    if protected:
        yield (where, PROTECTED), Fact(str(protected), formula="after what ancestors and siblings leave")
    yield (where, CPU_FLOOR), Fact(f"{effective.cpu_floor_milli}m")
