"""The formula tables of expected.yaml: one function per table, whose parameters are the columns.

A table names the rows that all its lines check, a line may name more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.node.allocatable import ClassSums, qos_reserved_limits
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.resources import cpu as cpu_rules
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.oom_score import BEST_EFFORT_SCORE, GUARANTEED_SCORE, KUBELET_SCORE, clamped, oom_scores
from plimsoll.rules.scheduling.fit import resident_load
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    EXPECTED,
    amount,
    container,
    documents_in,
    lean,
    manifest,
    node,
    one_container,
    work,
)


def cpu_line(milli: int, shares: int, weightLinear: int, weightNew: int, quota: int) -> None:
    assert cpu_rules.shares(milli) == shares
    assert cpu_rules.weight_linear(shares) == weightLinear
    assert cpu_rules.weight_quadratic(shares) == weightNew
    assert cpu_rules.quota_us(milli) == quota


def milli_from_shares_line(shares: int, milli: int) -> None:
    assert cpu_rules.milli_from_shares(shares) == milli


def shares_from_weight_line(weight: int, shares: int, milli: int) -> None:
    assert cpu_rules.shares_from_weight(weight) == shares
    assert cpu_rules.milli_from_shares(shares) == milli


def oom_line(request: str, capacity: str, adj: int) -> None:
    pod = lean(one_container({"cpu": "1m", "memory": request}))
    assert oom_scores(pod, "Burstable", NodePolicy(amount(capacity).value)) == [adj]


def oom_constants_line(
    kubelet: int, guaranteed: int, bestEffort: int, nodeCritical: int, burstableMin: int, burstableMax: int
) -> None:
    assert kubelet == KUBELET_SCORE
    assert {default_config(profile).kubelet_oom_score_adj for profile in map(profile_named, ("documents", "1.36"))} == {
        kubelet
    }
    assert (guaranteed, bestEffort) == (GUARANTEED_SCORE, BEST_EFFORT_SCORE)
    assert work("examples/critical.yaml").scores == (nodeCritical,)
    assert {clamped(score) for score in range(-2000, 1001)} == set(range(burstableMin, burstableMax + 1))


def memory_high_line(request: str, limit: str, profile: str, high: int | str) -> None:
    requests, limits = ({"memory": text} if text != "none" else {} for text in (request, limit))
    found = work(one_container(requests, limits), node(profile=profile, gates={"MemoryQoS": True}))
    assert found.container_values[0].memory_high_bytes == (None if high == "unset" else high)


def allocatable_line(evictionHard: str, cpu: str, memory: str, absolute: int, hugepages1Gi: str = "0") -> None:
    setting = node(
        settings={"evictionHard": {"memory.available": evictionHard}}, capacity={"hugepages-1Gi": hugepages1Gi}
    )
    assert setting.allocatable["cpu"] == amount(cpu)
    assert str(setting.allocatable["memory"]) == memory
    assert setting.absolute["memory"].value == absolute
    if evictionHard == "100Mi":  # the default
        assert default_config(setting.profile).eviction_hard["memory.available"] == evictionHard


def qos_reserved_line(A: str, G: str, B: str, percent: int, burstable: str, besteffort: str) -> None:
    total, guaranteed, middle = (amount(text).value for text in (A, G, B))
    limits = qos_reserved_limits(
        ClassSums(0, guaranteed, middle),
        NodePolicy(memory_capacity_bytes=total, allocatable_memory_bytes=total),
        percent,
    )
    assert limits == (amount(burstable).value, amount(besteffort).value)


def timeline_line(T: int, spec: str, allocated: str, resize: str, counted: str) -> None:
    document = manifest("003-timeline.yaml")
    container(document, "app")["resources"]["requests"]["cpu"] = spec
    document["status"] = {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": allocated}}]}
    if resize != "unset":
        document["status"]["resize"] = resize
    assert resident_load(lean(document), PROFILE_DOCUMENTS).requests == {"cpu": amount(counted).milli}, f"T={T}"


FORMULAS: dict[str, Callable[..., None]] = {
    "cpu": cpu_line,
    "milliFromShares": milli_from_shares_line,
    "sharesFromWeight": shares_from_weight_line,
    "oom": oom_line,
    "oomConstants": oom_constants_line,
    "memoryHigh": memory_high_line,
    "allocatable": allocatable_line,
    "qosReserved": qos_reserved_line,
    "timeline": timeline_line,
}
WAITING = {"describePercent"}  # tables that nothing computes yet


def formula_checks() -> Checks:
    (expected,) = documents_in(EXPECTED)
    checks = Checks()
    for name, table in expected["formulas"].items():
        for line in table["lines"]:
            values = {key: value for key, value in line.items() if key != "ids"}
            for row_id in {*table["ids"], *line.get("ids", ())}:
                checks[row_id].append(partial(FORMULAS[name], **values))
    return checks
