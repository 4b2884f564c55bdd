"""Room for a critical pod (spec 04 §9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import CriticalPodPreemption, freed_amount, is_preemptable, preemption
from plimsoll.rules.scheduling.fit import Shortfall

CRITICAL = 2_000_000_000


def pod(name: str, cpu: str = "", memory: str = "", *, guaranteed: bool = False, **spec: Any) -> Pod:
    amounts = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    resources = {"requests": amounts, "limits": amounts if guaranteed else {}}
    annotations = spec.pop("annotations", None)
    return from_document(
        {
            "metadata": {"name": name, "uid": name, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": resources}], **spec},
        },
        Pod,
    )


PREEMPTOR = pod("critical", "1", "1", priority=CRITICAL)


def short(**amounts: int) -> list[Shortfall]:
    """Shortfalls of exactly these amounts: nothing is free, and that much is asked."""
    return [Shortfall(name.replace("_", "-"), amount, 100, 100) for name, amount in amounts.items()]


def names(found: CriticalPodPreemption) -> list[str]:
    assert not found.failure
    return [each.metadata.name for each in found.victims]


def test_the_shortage_is_what_is_asked_less_what_is_free() -> None:
    others = [pod("small", "400m"), pod("large", "600m")]
    assert names(preemption(PREEMPTOR, others, [Shortfall("cpu", 1000, 500, 900)])) == ["large"]


@pytest.mark.parametrize(
    ("priority", "annotations", "expected"),
    [
        pytest.param(None, None, True, id="an ordinary pod"),
        pytest.param(CRITICAL - 1, None, True, id="high, not critical"),
        pytest.param(CRITICAL, None, False, id="as critical as the other"),
        pytest.param(CRITICAL + 1000, None, False, id="more critical"),
        pytest.param(None, {"kubernetes.io/config.source": "file"}, False, id="static without a priority"),
        pytest.param(5, {"kubernetes.io/config.source": "file"}, True, id="static of lower priority"),
    ],
)
def test_who_may_be_a_victim(priority: int | None, annotations: dict[str, str] | None, expected: bool) -> None:
    assert is_preemptable(pod("p", priority=priority, annotations=annotations), PREEMPTOR) is expected


def test_a_static_preemptor_without_priority_takes_only_ordinary_pods() -> None:
    static = pod("static", annotations={"kubernetes.io/config.source": "file"})
    assert is_preemptable(pod("p", priority=5), static)
    assert not is_preemptable(pod("p", priority=5, annotations={"kubernetes.io/config.mirror": ""}), static)


def test_guaranteed_pods_are_spared_most() -> None:
    others = [pod("g", "1", "1Gi", guaranteed=True), pod("b", "1"), pod("e")]
    assert names(preemption(PREEMPTOR, others, short(cpu=500))) == ["b"]
    assert names(preemption(PREEMPTOR, others, short(cpu=1500))) == ["b", "g"]
    assert names(preemption(PREEMPTOR, others, short(cpu=1500, pods=3))) == ["e", "b", "g"]


def test_pod_level_decides_the_class_with_its_gate() -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    level = pod("level", resources={"requests": amounts, "limits": amounts})
    others = [level, pod("b", "1")]
    assert names(preemption(PREEMPTOR, others, short(pods=1))) == ["b"]
    assert names(preemption(PREEMPTOR, others, short(pods=1), gates=Gates(pod_level=False))) == ["level"]


def test_best_effort_pods_free_only_their_place() -> None:
    others = [pod("e1"), pod("e2"), pod("b", "1")]
    # Two equal pods: the later one in the list; then the last takes the place of the chosen one.
    assert names(preemption(PREEMPTOR, others, short(pods=1))) == ["e2"]
    assert names(preemption(PREEMPTOR, others, short(cpu=1))) == ["b"]


def test_burstable_pods_are_chosen_as_if_best_effort_ones_were_gone() -> None:
    others = [pod("e"), pod("b1", "1"), pod("b2", "100m")]
    # The BestEffort pod gives one place, b1 the cpu: b1's own place is not needed, so the BestEffort pod goes as well.
    assert names(preemption(PREEMPTOR, others, short(pods=2, cpu=1000))) == ["e", "b1"]


def test_the_nearest_is_taken_first() -> None:
    others = [pod("tiny", "100m"), pod("near", "700m"), pod("small", "300m")]
    # 1000 − 700 = 300 left, and then `small` covers exactly that.
    assert names(preemption(PREEMPTOR, others, short(cpu=1000))) == ["near", "small"]


def test_the_distance_weighs_resources_by_their_share() -> None:
    memory = 1000 * 2**20
    others = [pod("cpu", "900m", "100Mi"), pod("both", "600m", "600Mi"), pod("rest", "100m", "400Mi")]
    # cpu: 0.1² + 0.9² = 0.82; both: 0.4² + 0.4² = 0.32; rest: 0.9² + 0.6² = 1.17
    assert names(preemption(PREEMPTOR, others, short(cpu=1000, memory=memory)))[0] == "both"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(("2", "2Gi"), ("2", "1Gi"), "second", id="less memory"),
        pytest.param(("2", "1Gi"), ("3", "1Gi"), "first", id="then less cpu"),
        pytest.param(("2", "1Gi"), ("2", "1Gi"), "second", id="then the later one"),
    ],
)
def test_ties(first: tuple[str, str], second: tuple[str, str], expected: str) -> None:
    others = [pod("first", *first), pod("second", *second)]
    assert names(preemption(PREEMPTOR, others, short(cpu=1000))) == [expected]


def test_the_last_pod_takes_the_place_of_the_chosen_one() -> None:
    # Equal pods: d is chosen as the latest; of a, b, c again the latest, c; then b.
    others = [pod(name, "1") for name in "abcd"]
    assert names(preemption(PREEMPTOR, others, short(cpu=3000))) == ["d", "c", "b"]
    # x is chosen first (nearest); z takes its place at the front, so y is the later one of the equal rest.
    others = [pod("x", "2"), pod("y", "1"), pod("z", "1")]
    assert names(preemption(PREEMPTOR, others, short(cpu=3000))) == ["x", "y"]


def test_no_set_of_victims() -> None:
    others = [pod("a", "602m", "1Gi"), pod("b", "2", priority=CRITICAL)]
    found = preemption(PREEMPTOR, others, short(cpu=2000, memory=2**30 + 209715200))
    assert found == CriticalPodPreemption(
        (),
        "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 1398), (res: memory, q: 209715200), ]",
    )


def test_only_what_is_still_short_is_named() -> None:
    found = preemption(PREEMPTOR, [pod("a", "2")], short(cpu=2000, ephemeral_storage=5))
    assert found.failure.endswith("[(res: ephemeral-storage, q: 5), ]")


def test_what_a_victim_frees() -> None:
    level = pod("p", "1", "1Gi", resources={"requests": {"cpu": "2500m"}}, overhead={"cpu": "100m", "memory": "1Mi"})
    assert [freed_amount(level, name) for name in ("cpu", "memory", "pods")] == [2600, 0, 1]
    assert freed_amount(level, "memory", gates=Gates(pod_level=False)) == 2**30 + 2**20


_OTHERS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=6)


@given(_OTHERS, st.integers(0, 8), st.integers(0, 8), st.integers(0, 3))
def test_victims_cover_the_shortage_and_each_is_needed_once(
    rows: list[tuple[int, int, bool]], cpu: int, memory: int, pods: int
) -> None:
    others = [
        pod(str(index), str(cores), str(size), guaranteed=exact) for index, (cores, size, exact) in enumerate(rows)
    ]
    wanted = {name: amount for name, amount in (("cpu", cpu * 1000), ("memory", memory), ("pods", pods)) if amount}
    found = preemption(PREEMPTOR, others, short(**wanted))
    freed = {name: sum(freed_amount(each, name) for each in found.victims) for name in wanted}
    possible = all(sum(freed_amount(each, name) for each in others) >= amount for name, amount in wanted.items())
    assert bool(found.failure) is not possible
    if possible:
        assert all(freed[name] >= amount for name, amount in wanted.items())
    else:
        assert not found.victims
    assert len({each.metadata.name for each in found.victims}) == len(found.victims)
