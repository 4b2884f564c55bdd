"""E-5: a pod whose pod-level amounts have had overhead added in place, as the real code does with big quantities.

The aggregate copies the struct of a pod-level quantity. A big one is a pointer inside, so adding overhead to the copy
changes the pod as well. An int64 is copied.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.rules.model.objects import Pod, listed
from tests import go_quantity

Json = dict[str, Any]


def big_names(pod: Json) -> set[str]:
    """Resources with overhead that pod level has, or gets by defaulting, in the big representation."""
    spec = pod.get("spec") or {}
    found: dict[str, list[go_quantity.GoQuantity]] = {}
    for block in blocks(spec):
        for kind in ("requests", "limits"):
            for name, text in (block.get(kind) or {}).items():
                found.setdefault(name, []).append(go_quantity.parse(str(text).strip()))
    if not any((spec.get("resources") or {}).values()):
        return set()
    big = {name for name, terms in found.items() if any(each.is_big for each in terms) or _sum(terms).is_big}
    return big & set(spec.get("overhead") or {})


def _sum(terms: list[go_quantity.GoQuantity]) -> go_quantity.GoQuantity:
    total = terms[0]
    for each in terms[1:]:
        total += each
    return total


def aged(pod: Pod, names: set[str], times: dict[str, int]) -> Pod:
    """E-5: pod-level amounts to which the real code has added overhead so many times."""
    if pod.spec.resources is None:
        return pod
    lists = {}
    for kind, count in times.items():
        amounts = dict(listed(pod.spec.resources, kind))
        for name in names & amounts.keys():
            for _ in range(count):
                amounts[name] += (pod.spec.overhead or {})[name]
        lists[kind] = amounts
    resources = msgspec.structs.replace(pod.spec.resources, **lists)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=resources))


def blocks(spec: Json) -> list[Json]:
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    return [each.get("resources") or {} for each in containers] + [spec.get("resources") or {}]
