"""Preemption: spec 05 A5."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import profile_named
from plimsoll.rules.scheduling.fit import FitVerdict, NodeLoad, node_load, verdict, waiting_load
from plimsoll.rules.scheduling.preemption import PreemptionCandidate, cheapest, preempt, victims_on

Json = dict[str, Any]
SHORT = FitVerdict(("Insufficient cpu",))


def pod(
    name: str,
    cpu: str = "1",
    priority: int = 0,
    *,
    start: str | None = None,
    labels: Json | None = None,
    status: Json | None = None,
    **metadata: Any,
) -> Pod:
    spec = {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    shown = {"startTime": start, **(status or {})}
    return from_document(
        {"metadata": {"name": name, "namespace": "d", "labels": labels, **metadata}, "spec": spec, "status": shown}, Pod
    )


def node(*residents: Pod, name: str = "n1", cpu: str = "4") -> NodeLoad:
    lean = from_document({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}, Node)
    return node_load(lean, residents, profile_named("1.36"))


def budget(
    allowed: int, *, disrupted: Json | None = None, app: str = "db", namespace: str = "d"
) -> PodDisruptionBudget:
    return from_document(
        {
            "metadata": {"name": "b", "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "disruptedPods": disrupted},
        },
        PodDisruptionBudget,
    )


def at(hour: int) -> str:
    return f"2026-01-01T{hour:02}:00:00Z"


DB = {"app": "db"}


@pytest.mark.parametrize(
    ("residents", "budgets", "victims", "broken"),
    [
        pytest.param([pod("low", "4", 1)], [], ["low"], 0, id="one pod of lower priority"),
        pytest.param([pod("a", "2", 1), pod("b", "2", 2)], [], ["a"], 0, id="the more important one is given back"),
        pytest.param(
            [pod("young", "2", 1, start=at(9)), pod("old", "2", 1, start=at(8))],
            [],
            ["young"],
            0,
            id="same priority: the longer run stays",
        ),
        pytest.param(
            [pod("started", "2", 1, start=at(9)), pod("new", "2", 1)],
            [],
            ["new"],
            0,
            id="a pod without a start is the youngest",
        ),
        pytest.param(
            [pod("small", "1", 1), pod("big", "3", 5)], [], ["big"], 0, id="reprieved: pods that fit beside the new one"
        ),
        pytest.param([pod("low", "2", 1), pod("high", "2", 10)], [], ["low"], 0, id="equal priority is no victim"),
        pytest.param(
            [pod("a", "2", 2, labels=DB), pod("b", "2", 5)],
            [budget(0)],
            ["b"],
            0,
            id="a budget's pod is given back first",
        ),
        pytest.param(
            [pod("a", "2", 2, labels=DB), pod("b", "2", 5)], [budget(1)], ["a"], 0, id="the budget allows one"
        ),
        pytest.param(
            [pod("a", "4", 2, labels=DB)], [budget(0)], ["a"], 1, id="a budget is broken if nothing else helps"
        ),
        pytest.param(
            [pod("a", "2", 2, labels=DB), pod("b", "2", 5)],
            [budget(0, namespace="e")],
            ["a"],
            0,
            id="a budget of another namespace",
        ),
        pytest.param(
            [pod("a", "4", 2, labels=DB)],
            [budget(0, disrupted={"a": at(1)})],
            ["a"],
            0,
            id="already counted by its budget",
        ),
        pytest.param(
            [pod("x", "2", 3, labels=DB), pod("y", "2", 2, labels=DB)],
            [budget(1)],
            ["x"],
            0,
            id="budgets are spent by importance: y breaks it",
        ),
    ],
)
def test_a5_victims(residents: list[Pod], budgets: list[PodDisruptionBudget], victims: list[str], broken: int) -> None:
    found = victims_on(waiting_load(pod("new", "2", 10)), node(*residents), profile_named("1.36"), budgets=budgets)
    assert isinstance(found, PreemptionCandidate)
    assert [each.metadata.name for each in found.victims] == victims
    assert found.broken_budgets == broken


def test_a5_victims_are_listed_by_importance() -> None:
    residents = [pod("c", "1", 1), pod("a", "1", 3, labels=DB), pod("b", "1", 2), pod("d", "1", 0)]
    found = victims_on(waiting_load(pod("new", "4", 10)), node(*residents), profile_named("1.36"), budgets=[budget(0)])
    assert isinstance(found, PreemptionCandidate)
    assert [each.metadata.name for each in found.victims] == ["a", "b", "c", "d"]
    assert found.broken_budgets == 1


@pytest.mark.parametrize(
    ("residents", "expected"),
    [
        pytest.param(
            [pod("same", "4", 10)],
            FitVerdict(("No preemption victims found for incoming pod",), True),
            id="no lower priority",
        ),
        pytest.param([pod("low", "1", 1), pod("high", "3", 20)], SHORT, id="not enough even without them"),
    ],
)
def test_a5_unsuitable_node(residents: list[Pod], expected: FitVerdict) -> None:
    assert victims_on(waiting_load(pod("new", "2", 10)), node(*residents), profile_named("1.36")) == expected


def test_a5_a_nominated_pod_of_higher_priority_keeps_its_place() -> None:
    nominee = [waiting_load(pod("nominee", "3", 50))]
    found = victims_on(
        waiting_load(pod("new", "2", 10)), node(pod("low", "4", 1)), profile_named("1.36"), nominated=nominee
    )
    assert found == SHORT


def candidate(name: str, *victims: Pod, broken: int = 0) -> PreemptionCandidate:
    return PreemptionCandidate(name, victims, broken)


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        pytest.param(
            [candidate("a", pod("1"), broken=1), candidate("b", pod("2", priority=9))],
            "b",
            id="1. fewest broken budgets",
        ),
        pytest.param(
            [candidate("a", pod("1", priority=5)), candidate("b", pod("2", priority=4), pod("3", priority=4))],
            "b",
            id="2. lowest top priority",
        ),
        pytest.param(
            [
                candidate("a", pod("1", priority=5), pod("2", priority=3)),
                candidate("b", pod("3", priority=5), pod("4", priority=2)),
            ],
            "b",
            id="3. smallest sum",
        ),
        pytest.param(
            [candidate("a", pod("1", priority=-5), pod("2", priority=-9)), candidate("b", pod("3", priority=-5))],
            "b",
            id="3. each + 2^31: more victims weigh more",
        ),
        pytest.param(
            [
                candidate("a", pod("1", start=at(3))),
                candidate("b", pod("2", start=at(5))),
                candidate("c", pod("3", start=at(4))),
            ],
            "b",
            id="5. latest start",
        ),
        pytest.param(
            [
                candidate("a", pod("1", priority=2, start=at(4)), pod("2", priority=1, start=at(1))),
                candidate("b", pod("3", priority=2, start=at(3)), pod("4", priority=1, start=at(9))),
            ],
            "a",
            id="5. only the top victims' starts",
        ),
        pytest.param(
            [candidate("a", pod("1")), candidate("b", pod("2", start=at(5)))],
            "a",
            id="5. not started yet is the latest",
        ),
        pytest.param([candidate("b", pod("1")), candidate("a", pod("2"))], "b", id="6. the first"),
    ],
)
def test_a5_choice_of_node(candidates: list[PreemptionCandidate], chosen: str) -> None:
    found = cheapest(candidates)
    assert found is not None and found.node == chosen


def test_a5_a_decision_over_nodes() -> None:
    nodes = [node(pod("a", "4", 3), name="n1"), node(pod("b", "4", 2), name="n2"), node(pod("c", "4", 1), name="n3")]
    verdicts = {"n1": SHORT, "n2": SHORT, "n3": FitVerdict(("node(s) were unschedulable",), True)}
    waiting = waiting_load(pod("new", "2", 10))
    weak, strong = waiting_load(pod("weak", "1", 5)), waiting_load(pod("strong", "1", 50))
    found = preempt(waiting, nodes, verdicts, profile_named("1.36"), {"n2": [weak, strong]})
    assert found.candidate is not None
    assert found.candidate.node == "n2", "n3 would cost less but cannot be helped"
    assert [each.metadata.name for each in found.candidate.victims] == ["b"]
    assert [each.metadata.name for each in found.cleared] == ["weak"]


def test_a5_why_no_pod_can_be_preempted() -> None:
    nodes = [
        node(pod("a", "4", 10), name="n1"),
        node(pod("b", "3", 20), pod("c", "1"), name="n2"),
        node(name="n3", cpu="1"),
    ]
    verdicts = {"n1": SHORT, "n2": SHORT, "n3": FitVerdict(("Insufficient cpu",), True)}
    found = preempt(waiting_load(pod("new", "2", 10)), nodes, verdicts, profile_named("1.36"))
    assert found.candidate is None
    assert {name: each.reasons for name, each in found.verdicts.items()} == {
        "n1": ("No preemption victims found for incoming pod",),
        "n2": ("Insufficient cpu",),
        "n3": ("Preemption is not helpful for scheduling",),
    }


LEAVING = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}


@pytest.mark.parametrize(
    ("resident", "verdicts", "text"),
    [
        pytest.param(
            pod("a", "4", status=LEAVING, deletionTimestamp=at(1)),
            {"n1": SHORT},
            "not eligible due to a terminating pod on the nominated node.",
            id="its victim is still leaving",
        ),
        pytest.param(pod("a", "4", status=LEAVING), {"n1": SHORT}, "", id="marked, but not being deleted"),
        pytest.param(
            pod("a", "4", status=EVICTED, deletionTimestamp=at(1)), {"n1": SHORT}, "", id="leaving for another reason"
        ),
        pytest.param(
            pod("a", "4", 10, status=LEAVING, deletionTimestamp=at(1)), {"n1": SHORT}, "", id="not of lower priority"
        ),
        pytest.param(
            pod("a", "4", status=LEAVING, deletionTimestamp=at(1)),
            {"n1": FitVerdict(("node(s) were unschedulable",), True)},
            "",
            id="the nominated node is of no use any more",
        ),
    ],
)
def test_a5_no_further_preemption_while_victims_leave(
    resident: Pod, verdicts: dict[str, FitVerdict], text: str
) -> None:
    waiting = waiting_load(pod("new", "2", 10, status={"nominatedNodeName": "n1"}))
    assert preempt(waiting, [node(resident)], verdicts, profile_named("1.36")).ineligible == text


RESIDENTS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=5)


@given(RESIDENTS, st.integers(1, 8))
def test_victims_are_lower_sufficient_and_each_is_needed(listed: list[tuple[int, int]], cpu: int) -> None:
    residents = [pod(f"r{index}", str(cores), priority) for index, (cores, priority) in enumerate(listed)]
    load, waiting = node(*residents, cpu="8"), waiting_load(pod("new", str(cpu), 10))
    candidate = victims_on(waiting, load, profile_named("1.36"))
    assume(isinstance(candidate, PreemptionCandidate))
    assert isinstance(candidate, PreemptionCandidate)
    event(f"{len(candidate.victims)} victims of {len(residents)} pods")
    keys = [f"d/{victim.metadata.name}" for victim in candidate.victims]
    assert all((victim.spec.priority or 0) < 10 for victim in candidate.victims)
    assert verdict(waiting, load.without_pods(keys), profile_named("1.36")).fits
    for key in keys:
        assert not verdict(
            waiting, load.without_pods(other for other in keys if other != key), profile_named("1.36")
        ).fits
