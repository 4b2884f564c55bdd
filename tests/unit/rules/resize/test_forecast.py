"""The forecast of a resize: verdict, largest request, and the pods that would have to go."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod, Taint
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import Quantity, parse
from plimsoll.rules.resize.forecast import Forecast, forecast, forecast_without_node
from plimsoll.rules.resize.verdict import ResizeSetting
from plimsoll.rules.scheduling.fit import allocated_load
from tests.unit.rules.resize.forecast_pods import ALLOCATABLE, NODE, SMALL, asked, other, version


def shown(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def most(found: Forecast) -> list[tuple[str, str, str, str]]:
    return [(each.container, each.resource, str(each.ever), str(each.now)) for each in found.most]


def test_it_fits() -> None:
    assert asked(version({"cpu": "2", "memory": "1Gi"})).outcome == "accepted"
    assert asked(version(SMALL)).outcome == "unchanged"


@pytest.mark.parametrize(
    ("others", "pods"),
    [
        ([other("a", "1700m"), other("b", "400m"), other("c", "600m")], ("ns/c",)),
        ([other("a", "1900m"), other("b", "300m"), other("c", "300m")], ("ns/b",)),
        ([other("a", "400m"), other("b", "400m"), other("c", "400m"), other("d", "1"), other("e", "900m")], ("ns/e",)),
    ],
    ids=["the smallest that frees enough", "not the one that holds most", "of several the smallest"],
)
def test_pods_to_remove(others: list[Pod], pods: tuple[str, ...]) -> None:
    found = asked(version({"cpu": "1800m", "memory": "1Gi"}), *others)
    assert found.outcome == "deferred"
    assert found.leaving is not None
    assert (list(found.short), found.leaving.pods, found.leaving.then) == (["cpu"], pods, "")


def test_several_pods_to_remove() -> None:
    found = asked(version({"cpu": "3500m", "memory": "1Gi"}), other("a", "1"), other("b", "900m"), other("c", "800m"))
    assert found.leaving is not None
    assert shown(found.short) == {"cpu": "2200m"}
    assert (found.leaving.pods, shown(found.leaving.freed)) == (("ns/a", "ns/b", "ns/c"), {"cpu": "2700m"})


def test_both_are_short() -> None:
    """No single pod frees enough: the pods are named together, and only those that are needed."""
    others = [other("a", "2"), other("b", "100m", "2Gi"), other("small", "100m", "100Mi")]
    found = asked(version({"cpu": "3", "memory": "3Gi"}), *others)
    assert found.leaving is not None
    assert set(found.short) == {"cpu", "memory"}
    assert sorted(found.leaving.pods) == ["ns/a", "ns/b"]
    assert shown(found.leaving.freed) == {"cpu": "2100m", "memory": "2049Mi"}
    alone = asked(version({"cpu": "3", "memory": "3Gi"}), *others, other("all", "1800m", "2000Mi"))
    assert alone.leaving is not None
    assert "ns/all" in alone.leaving.pods


def test_removing_pods_does_not_help() -> None:
    """A taint keeps the pod out however much is free; and the others may have too little."""
    taint = Taint("gone", "", "NoExecute")
    tainted = msgspec.structs.replace(NODE, spec=msgspec.structs.replace(NODE.spec, taints=(taint,)))
    setting = ResizeSetting(allocated_load(tainted, [other("a", "3")]), profile_named("documents"))
    found = forecast(version(SMALL), version({"cpu": "2", "memory": "1Gi"}), setting)
    assert found.leaving is not None
    assert (found.leaving.pods, found.leaving.then) == (("ns/a",), "Predicate TaintToleration failed")


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=6),
    st.integers(1, 4000),
    st.integers(1, 4096),
)
def test_the_forecast_agrees_with_the_verdict(others: list[tuple[int, int]], cpu: int, memory: int) -> None:
    """The pods that are named make room, none of them is named in vain, and the largest amount is the largest."""
    pods = [other(f"p{index}", f"{cpu}m", f"{memory}Mi") for index, (cpu, memory) in enumerate(others)]
    new = version({"cpu": f"{cpu}m", "memory": f"{memory}Mi"})
    found = asked(new, *pods)
    if found.leaving is not None and found.leaving.pods:
        gone = set(found.leaving.pods)
        assert asked(new, *without(pods, gone)).outcome == "accepted"
        assert all(asked(new, *without(pods, gone - {each})).outcome == "deferred" for each in gone)
    elif found.leaving is not None:
        assert asked(new).outcome == "accepted" or not pods
    for each in found.most:
        unit, more = ("m", 1) if each.resource == "cpu" else ("", 1)
        for most, beside in ((each.now, pods), (each.ever, [])):
            base = {**SMALL, each.resource: str(most or 0)}
            if most is not None:
                assert asked(version(base), *beside).outcome in ("accepted", "unchanged")
            amount = 0 if most is None else most.milli if each.resource == "cpu" else most.value
            assert asked(version({**base, each.resource: f"{amount + more}{unit}"}), *beside).outcome != "accepted"


def without(pods: list[Pod], gone: set[str]) -> list[Pod]:
    return [each for each in pods if f"ns/{each.metadata.name}" not in gone]


def test_larger_than_the_node() -> None:
    found = asked(version({"cpu": "100", "memory": "1Gi"}), other("a", "1"))
    assert (found.outcome, most(found)) == ("infeasible", [("c", "cpu", "4", "3")])
    modern = asked(version({"cpu": "100", "memory": "1Gi"}), profile="1.36")
    assert (modern.outcome, most(modern)) == ("deferred", [("c", "cpu", "4", "4")])
    assert modern.leaving is None


def test_the_largest_request_of_a_container() -> None:
    """Overhead and the pod's other container have their part already."""

    def both(cpu: str) -> PodVersion:
        one, two = (
            {"name": name, "image": "i", "resources": {"requests": {"cpu": amount}}}
            for name, amount in (("c", cpu), ("d", "2"))
        )
        document = version({}).document
        spec = {**document["spec"], "containers": [one, two], "overhead": {"cpu": "500m"}}
        return PodVersion({**document, "spec": spec}, from_document({**document, "spec": spec}, Pod))

    found = asked(both("2"), old=both("1"))
    assert (found.outcome, most(found)) == ("infeasible", [("c", "cpu", "1500m", "1500m")])
    assert most(asked(both("2"), other("a", "500m"), old=both("500m"))) == [("c", "cpu", "1500m", "1")]


@pytest.mark.parametrize("containers", ["1", "3500m", "3"])
def test_the_largest_request_of_the_pod_level(containers: str) -> None:
    """Its level may not be less than its containers ask for: an amount that is too small proves nothing of larger ones."""

    def level(cpu: str) -> PodVersion:
        document = version({}).document
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": containers}}}
        spec = {**document["spec"], "containers": [container], "resources": {"requests": {"cpu": cpu}}}
        return PodVersion({**document, "spec": spec}, from_document({**document, "spec": spec}, Pod))

    setting = ResizeSetting(
        allocated_load(NODE, [other("a", "250m")]), profile_named("1.36"), Gates(pod_level_resize=True)
    )
    found = forecast(level("3500m"), level("4"), setting)
    assert (found.outcome, most(found)) == ("deferred", [("", "cpu", "4", "3750m")])


def test_the_absolute_allocatable_is_what_counts() -> None:
    """N-9: the bound of Infeasible leaves the eviction threshold out, that of admission does not."""
    setting = ResizeSetting(
        allocated_load(NODE, []),
        profile_named("documents"),
        absolute_allocatable={**ALLOCATABLE, "memory": parse("5Gi")},
    )
    found = forecast(version(SMALL), version({**SMALL, "memory": "4500Mi"}), setting)
    assert (found.outcome, most(found), found.leaving) == ("deferred", [("c", "memory", "4Gi", "4Gi")], None)
    assert forecast(version(SMALL), version({**SMALL, "memory": "6Gi"}), setting).outcome == "infeasible"


@pytest.mark.parametrize(
    ("had", "cpu", "hint"),
    [("1", "1500m", "request 2 (container c)"), ("3", "2500m", "request 2 ("), ("3", "3900m", "request 4 (")],
    ids=["up", "not what is there already", "the last"],
)
def test_only_whole_cpus(had: str, cpu: str, hint: str) -> None:
    setting = ResizeSetting(allocated_load(NODE, []), profile_named("documents"), static_cpus=True)
    found = forecast(version({**SMALL, "cpu": had}), version({**SMALL, "cpu": cpu}), setting)
    assert (found.outcome, found.most) == ("infeasible", ())
    assert hint in found.hint


def test_no_next_whole_cpu_where_cpus_are_fixed() -> None:
    setting = ResizeSetting(allocated_load(NODE, []), profile_named("1.36"), static_cpus=True)
    found = forecast(version(SMALL), version({**SMALL, "cpu": "1500m"}), setting)
    assert (found.outcome, "does not change the CPUs" in found.hint) == ("infeasible", True)


def test_the_largest_request_is_a_whole_number_of_exclusive_cpus() -> None:
    setting = ResizeSetting(allocated_load(NODE, [other("a", "500m")]), profile_named("documents"), static_cpus=True)
    found = forecast(version(SMALL), version({**SMALL, "cpu": "8"}), setting)
    assert most(found) == [("c", "cpu", "4", "3")]


@pytest.mark.parametrize(
    ("status", "metadata", "message"),
    [
        ({"phase": "Succeeded"}, {}, "its phase is Succeeded"),
        ({"phase": "Failed"}, {}, "its phase is Failed"),
        ({"phase": "Running"}, {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "it is being deleted"),
    ],
    ids=["succeeded", "failed", "being deleted"],
)
def test_no_node_judges_what_has_ended(status: dict[str, str], metadata: dict[str, str], message: str) -> None:
    def ended(amounts: dict[str, str]) -> PodVersion:
        document = version(amounts).document
        document = {**document, "status": status, "metadata": {**document["metadata"], **metadata}}
        return PodVersion(document, from_document(document, Pod))

    larger = ended({**SMALL, "cpu": "2"})
    found = asked(larger, old=ended(SMALL))
    assert (found.outcome, found.message) == ("ended", message)
    assert asked(ended(SMALL), old=ended(SMALL)).outcome == "unchanged"
    assert forecast_without_node(ended(SMALL), larger, profile_named("documents")).outcome == "ended"


def test_without_a_node() -> None:
    larger, profile = version({**SMALL, "cpu": "100"}), profile_named("1.36")
    assert forecast_without_node(version(SMALL), larger, profile).outcome == "unscheduled"
    assert forecast_without_node(version(SMALL), larger, profile, bound=True).outcome == "unknown"
    assert forecast_without_node(version(SMALL), version(SMALL), profile).outcome == "unchanged"
    bad = version({**SMALL, "cpu": "2"}, {**SMALL, "cpu": "1"})
    assert forecast_without_node(version(SMALL), bad, profile).outcome == "refused"
