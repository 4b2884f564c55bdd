"""Differences that are no disagreement: what the real code answers by a quirk that Plimsoll does not copy.

For each quirk (docs/quirks.md, "Not copied") the answer of the real code is computed. A difference is let through only
if the vector has exactly this answer:

    Q-12, Q-13   the texts and roundings of the real Quantity (`tests.go_quantity`)
    E-5          the aggregates of a pod whose pod-level amounts have had overhead added in place before

Only int64 arithmetic (Q-14) is not computed again: a difference counts apart if a total of the input, times the factor
that the real code multiplies it with, is beyond int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import MAX_INT64, parse
from tests import go_quantity
from tests.conformance import topics
from tests.conformance.aging import big_names, blocks

Json = dict[str, Any]
Translate = Callable[[Json, Profile], Json]

AGED_TOPICS = frozenset({"b_aggregate", "d_pod_cgroup", "h_node"})  # that compute several aggregates on one object
MOST_ADDED = 3  # aggregates of one object before the last of a vector's


def quirk(topic: str, translate: Translate, given: Json, expected: Json, profile: Profile) -> str:
    """The clause that explains why the real code answers otherwise; "" if none does."""
    if topic == "g_quantity":
        return "Q-13" if _as_real_quantities(given, expected) else ""
    if topic in AGED_TOPICS and _as_aged(translate, given, expected, profile):
        return "E-5"
    return "Q-14" if any(_overflows(pod, given) for pod in _pods(given)) else ""


# --- Q-12, Q-13 ---


def _as_real_quantities(given: Json, expected: Json) -> bool:
    """Every field that the model of the real type computes; the others have to be Plimsoll's own."""
    own = topics.quantity(given, topics.ANY_PROFILE)
    read = {}
    for key in ("a", "b"):
        if (expected.get(key) or {}).get("ok"):
            read[key] = real = go_quantity.parse(given[key])
            own[key] |= {
                "value": str(real.as_int64()),
                "milliValue": str(real.as_int64(go_quantity.MILLI)),
                "string": str(real),
                "format": real.format,
                "roundUpMilli": str(real.rounded_to_milli()),
            }
    if len(read) == 2:
        total = read["a"] + read["b"]
        own |= {
            "add": str(total),
            "sub": str(read["a"] - read["b"]),
            "addValue": str(total.as_int64()),
            "addMilliValue": str(total.as_int64(go_quantity.MILLI)),
        }
    return own == expected


# --- E-5 ---


def _as_aged(translate: Translate, given: Json, expected: Json, profile: Profile) -> bool:
    """Every part that differs is what the real code answers after some aggregates on the same object."""
    if not any(map(big_names, _pods(given))):
        return False
    got = dict(_leaves(translate(given, profile)))
    wanted = dict(_leaves(expected))
    different = {path for path in got.keys() | wanted.keys() if got.get(path) != wanted.get(path)}
    for requests in range(MOST_ADDED + 1):
        for limits in range(MOST_ADDED + 1):
            if different and (requests or limits):
                aged = dict(_leaves(translate({**given, "aged": {"requests": requests, "limits": limits}}, profile)))
                different -= {path for path in different if aged.get(path) == wanted.get(path)}
    return not different


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    else:
        yield path, value


# --- Q-14 ---


def _overflows(pod: Json, given: Json) -> bool:
    """A total in thousandths that is beyond int64, of cpu times the period that quotas are computed with."""
    period = (given.get("kubelet") or {}).get("cpuCFSQuotaPeriodUs") or 100_000
    totals: dict[tuple[str, str], int] = {}
    spec = pod.get("spec") or {}
    for block in (*blocks(spec), {"overhead": spec.get("overhead") or {}}):
        for kind, amounts in block.items():
            for name, text in (amounts or {}).items() if kind in ("requests", "limits", "overhead") else ():
                try:
                    totals[kind, name] = totals.get((kind, name), 0) + abs(parse(str(text).strip()).milli)
                except InvalidQuantityError:
                    return False
    return any(total * (period if name == "cpu" else 1) > MAX_INT64 for (_, name), total in totals.items())


def _pods(given: Json) -> list[Json]:
    return given.get("pods") or [given.get("pod") or {}]
