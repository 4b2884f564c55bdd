"""The forecast of a resize, before it is requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus, Pod, Taint
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import Quantity, parse
from plimsoll.rules.resize.forecast import Api, Forecast, forecast, forecast_without_node
from plimsoll.rules.resize.request import patch_between
from plimsoll.rules.resize.verdict import ResizeSetting
from plimsoll.rules.scheduling.fit import allocated_load

ALLOCATABLE = {"cpu": parse("4"), "memory": parse("4Gi"), "pods": parse("110")}
NODE = Node(Metadata("n1"), status=NodeStatus(ALLOCATABLE, ALLOCATABLE))


def version(requests: dict[str, str], limits: dict[str, str] | None = None, **extra: Any) -> PodVersion:
    resources = {"requests": requests, "limits": limits if limits is not None else requests}
    container = {"name": "c", "image": "i", "resources": resources, **extra}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u0"},
        "spec": {"containers": [container], "restartPolicy": "Always"},
        "status": {"phase": "Running"},
    }
    return PodVersion(document, from_document(document, Pod))


def other(name: str, cpu: str, memory: str = "1Mi") -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return from_document({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}, Pod)


def shown(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def most(found: Forecast) -> list[tuple[str, str, str, str]]:
    return [(each.container, each.resource, str(each.ever), str(each.now)) for each in found.most]


SMALL = {"cpu": "1", "memory": "1Gi"}
HALF = {"cpu": "1", "memory": "512Mi"}


def asked(
    new: PodVersion, *others: Pod, old: PodVersion | None = None, profile: str = "documents", used: int | None = None
) -> Forecast:
    setting = ResizeSetting(allocated_load(NODE, others), profile_named(profile))
    return forecast(old or version(SMALL), new, setting, working_sets=None if used is None else {"c": used})


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


def test_a_critical_pod_preempts_others() -> None:
    def critical(amounts: dict[str, str]) -> PodVersion:
        document = version(amounts).document
        document = {**document, "spec": {**document["spec"], "priority": 2_000_001_000}}
        return PodVersion(document, from_document(document, Pod))

    found = asked(critical({**SMALL, "cpu": "2"}), other("a", "3"), old=critical(SMALL))
    assert (found.outcome, found.victims) == ("accepted", ("ns/a",))


def test_the_class_would_change() -> None:
    found = asked(version({"cpu": "2", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}))
    assert found.outcome == "refused"
    assert found.nearest is not None
    resources = found.nearest.spec.containers[0].resources
    assert resources.requests == resources.limits == {"cpu": parse("3"), "memory": parse("1Gi")}


def test_a_burstable_pod_must_not_become_guaranteed() -> None:
    old = version({"cpu": "1", "memory": "512Mi"}, SMALL)
    found = asked(version(SMALL), old=old)
    assert found.outcome == "refused"
    assert found.nearest is not None
    assert found.nearest.spec.containers[0].resources.requests == {"cpu": parse("1"), "memory": parse("1023Mi")}


def test_a_burstable_request_up_to_its_limit() -> None:
    """A hair below is the nearest that keeps the class."""
    old = version({"cpu": "500m", "memory": "1Gi"}, SMALL)
    found = asked(version(SMALL), old=old)
    assert found.nearest is not None
    assert patch_between(old.pod, found.nearest) == {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "999m"}}}]}
    }


@pytest.mark.parametrize("profile", ["documents", "1.36"])
def test_a_best_effort_pod_stays_one(profile: str) -> None:
    found = asked(version({"cpu": "1"}, {}), old=version({}, {}), profile=profile)
    assert (found.outcome, found.nearest) == ("refused", None)
    assert "would change the QoS class of a BestEffort pod" in found.hint


def test_an_api_server_without_resize() -> None:
    """The gate is off, or the server is too new for a plain PATCH and has no subresource."""
    larger = version({**SMALL, "cpu": "2"})
    for api, profile in ((Api(in_place=False), "documents"), (Api(subresource=False), "1.36")):
        setting = ResizeSetting(allocated_load(NODE, []), profile_named(profile))
        found = forecast(version(SMALL), larger, setting, api=api)
        assert (found.outcome, "does not change the resources of a running pod" in found.hint) == ("refused", True)
    setting = ResizeSetting(allocated_load(NODE, []), profile_named("documents"))
    assert forecast(version(SMALL), larger, setting, api=Api(subresource=False)).outcome == "accepted"


@pytest.mark.parametrize(
    ("requests", "limits", "nearest"),
    [
        ({"cpu": "3"}, {"cpu": "2"}, ("3", "3")),
        ({"cpu": "1"}, {"cpu": "500m"}, ("500m", "500m")),
    ],
    ids=["a request above the limit raises it", "a limit below the request lowers it"],
)
def test_limits_are_no_lower_than_requests(
    requests: dict[str, str], limits: dict[str, str], nearest: tuple[str, str]
) -> None:
    """Of a Burstable pod, by its memory."""
    old = version({"cpu": "1", "memory": "512Mi"}, {"cpu": "2", "memory": "1Gi"})
    found = asked(version({**requests, "memory": "512Mi"}, {**limits, "memory": "1Gi"}), old=old)
    assert (found.outcome, found.nearest is not None) == ("refused", True)
    assert found.nearest is not None
    resources = found.nearest.spec.containers[0].resources
    assert resources.requests is not None
    assert resources.limits is not None
    assert (str(resources.requests["cpu"]), str(resources.limits["cpu"])) == nearest


def test_no_nearest_request() -> None:
    found = asked(version({"cpu": "-1", "memory": "1Gi"}))
    assert (found.outcome, found.nearest) == ("refused", None)


def test_a_pending_resize_is_not_allocated() -> None:
    """An earlier resize is pending: the node compares with what it has allocated, the API with the spec."""
    pending = {**SMALL, "cpu": "100"}
    status = {
        "resize": "Infeasible",
        "containerStatuses": [
            {"name": "c", "allocatedResources": SMALL, "resources": {"requests": SMALL, "limits": SMALL}}
        ],
    }
    document = {**version(pending).document, "status": status}
    old = PodVersion(document, from_document(document, Pod))
    back = asked(version(SMALL), old=old)
    assert (back.outcome, "the pending resize is withdrawn" in back.hint) == ("accepted", True)
    assert asked(version({**SMALL, "cpu": "2"}), old=old).outcome == "accepted"


@pytest.mark.parametrize(
    ("policy", "restarts", "unsafe"),
    [("NotRequired", (), 1), ("RestartContainer", ("c",), 0)],
    ids=["in place", "restart"],
)
def test_a_shrink_below_the_usage(policy: str, restarts: tuple[str, ...], unsafe: int) -> None:
    rules = [{"resourceName": "memory", "restartPolicy": policy}]
    old = version(SMALL, resizePolicy=rules)
    found = asked(version({"cpu": "1", "memory": "512Mi"}, resizePolicy=rules), old=old, used=600 << 20)
    assert found.outcome == "accepted"
    assert (found.restarts, len(found.unsafe)) == (restarts, unsafe)


def test_adding_a_zero_restarts_no_container() -> None:
    """03 §10: actuated amounts are compared by value, and absent is 0."""
    rules = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    old = version({"cpu": "1"}, resizePolicy=rules)
    found = asked(version({"cpu": "2", "memory": "0"}, {"cpu": "2"}, resizePolicy=rules), old=old)
    assert (found.outcome, found.restarts) == ("accepted", ())
    assert asked(version({"cpu": "2", "memory": "1Mi"}, {"cpu": "2"}, resizePolicy=rules), old=old).restarts == ("c",)


def test_a_stopped_container_is_not_restarted() -> None:
    """Gotcha 16 of 03: nothing is handed to it; it has the new amounts whenever it starts."""
    rules = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    document = version(SMALL, resizePolicy=rules).document
    new = version({**SMALL, "cpu": "2"}, resizePolicy=rules)
    for state, restarts in (({"waiting": {}}, ()), ({"running": {}}, ("c",))):
        status = {"name": "c", "state": state, "resources": {}}
        stored = {**document, "status": {"phase": "Running", "containerStatuses": [status]}}
        assert asked(new, old=PodVersion(stored, from_document(stored, Pod))).restarts == restarts


@pytest.mark.parametrize(
    ("limits", "unsafe"),
    [("0", 0), ("1Gi", 0), ("2Gi", 0), ("900Mi", 0), ("600Mi", 1), ("599Mi", 1)],
    ids=["none", "as it was", "raised", "above", "at", "below"],
)
def test_limits_that_are_no_shrink(limits: str, unsafe: int) -> None:
    """03 §10: checked where a limit is added or lowered, and 0 is no limit."""
    old = version({"cpu": "1", "memory": "100Mi"}, {"memory": "1Gi"})
    found = asked(version({"cpu": "1", "memory": "0"}, {"memory": limits}), old=old, used=600 << 20)
    assert (found.outcome, len(found.unsafe)) == ("accepted", unsafe)


def test_a_shrink_of_the_pod_level() -> None:
    def level(memory: str) -> PodVersion:
        document = version({"cpu": "1"}, {}).document
        own = {"requests": {"memory": "100Mi"}, "limits": {"memory": memory}}
        document = {**document, "spec": {**document["spec"], "resources": own}}
        return PodVersion(document, from_document(document, Pod))

    gates = Gates(pod_level_resize=True)
    setting = ResizeSetting(allocated_load(NODE, []), profile_named("1.36"), gates)
    for limit, unsafe in (("600Mi", [("c", "600Mi"), ("", "600Mi")]), ("601Mi", []), ("2Gi", [])):
        found = forecast(level("1Gi"), level(limit), setting, working_sets={"c": 600 << 20})
        assert [(each.container, str(each.limit)) for each in found.unsafe] == unsafe


def on_node(found: PodVersion) -> PodVersion:
    document = {**found.document, "spec": {**found.document["spec"], "nodeName": "n1"}}
    return PodVersion(document, from_document(document, Pod))


@pytest.mark.parametrize(
    ("old", "new", "nearest"),
    [
        ((HALF, SMALL), ({**HALF, "cpu": "100"}, SMALL), {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}),
        ((SMALL, SMALL), (SMALL, {**SMALL, "cpu": "100"}), {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}),
        ((HALF, SMALL), ({"cpu": "3", "memory": "5Gi"}, SMALL), {
            "requests": {"cpu": "3", "memory": "4Gi"}, "limits": {"cpu": "3", "memory": "5Gi"}}),
        ((SMALL, SMALL), (SMALL, {**SMALL, "cpu": "3"}), {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}),
    ],
    ids=["a request", "a limit", "one of two", "small enough"],
)  # fmt: skip
def test_the_nearest_is_no_larger_than_the_node(
    old: tuple[dict[str, str], ...], new: tuple[dict[str, str], ...], nearest: dict[str, dict[str, str]]
) -> None:
    """1.36's admission would refuse that as well (03 §4.2); in documents the node has to say it."""
    before, requested = on_node(version(*old)), on_node(version(*new))
    found = asked(requested, other("a", "1"), old=before, profile="1.36")
    assert (found.outcome, found.nearest is not None) == ("refused", True)
    assert found.nearest is not None
    assert patch_between(before.pod, found.nearest) == {"spec": {"containers": [{"name": "c", "resources": nearest}]}}
    older = asked(requested, old=before)
    assert older.nearest is not None
    assert older.nearest.spec.containers[0].resources.limits == {
        name: max(parse(each.get(name, "0")) for each in new) for name in SMALL
    }


@pytest.mark.parametrize(
    ("requested", "nearest"),
    [
        ({"requests": {"cpu": "3"}}, {"requests": {"cpu": "1500m"}}),
        ({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}}),
        (
            {"limits": {"cpu": "3"}, "requests": {"cpu": "3"}},
            {"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}},
        ),
        ({"requests": {"cpu": "1", "memory": "2Gi"}}, {"requests": {"memory": "924Mi"}}),
    ],
    ids=["a request", "a limit", "both", "memory"],
)
def test_the_nearest_request_is_within_the_pod_level(
    requested: dict[str, dict[str, str]], nearest: dict[str, dict[str, str]]
) -> None:
    """Two CPUs for the pod, half of one is another container's."""

    def inside(resources: dict[str, dict[str, str]]) -> PodVersion:
        document = version({}).document
        beside = {"name": "d", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "100Mi"}}}
        containers = [{"name": "c", "image": "i", "resources": resources}, beside]
        own = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
        spec = {**document["spec"], "containers": containers, "resources": own}
        return PodVersion({**document, "spec": spec}, from_document({**document, "spec": spec}, Pod))

    old = inside({"requests": {"cpu": "1"}})
    found = asked(inside(requested), old=old, profile="1.36")
    assert (found.outcome, found.nearest is not None) == ("refused", True)
    assert found.nearest is not None
    assert patch_between(old.pod, found.nearest) == {"spec": {"containers": [{"name": "c", "resources": nearest}]}}
    found = asked(inside({"requests": {"cpu": "1501m"}}), old=inside({"requests": {"cpu": "1500m"}}), profile="1.36")
    assert (found.nearest, "(spec.resources) leave no more for its containers" in found.hint) == (None, True)


def test_zero_is_refused_for_a_guaranteed_pod() -> None:
    found = asked(version({**SMALL, "cpu": "0"}))
    assert (found.outcome, found.nearest, "request more than 0" in found.hint) == ("refused", None, True)


def test_a_static_pod_has_a_manifest() -> None:
    document = version(SMALL).document
    document = {**document, "metadata": {**document["metadata"], "annotations": {"kubernetes.io/config.mirror": "h"}}}
    found = asked(version({**SMALL, "cpu": "2"}), old=PodVersion(document, from_document(document, Pod)))
    assert (found.outcome, found.hint) == ("refused", "change its manifest on the node")


@pytest.mark.parametrize(("profile", "outcome"), [("documents", "unknown"), ("1.36", "refused")])
def test_a_node_that_is_gone(profile: str, outcome: str) -> None:
    """1.36's admission has nothing to compare with (03 §4.2)."""
    old, new = on_node(version(SMALL)), on_node(version({**SMALL, "cpu": "2"}))
    found = forecast_without_node(old, new, profile_named(profile), bound=True, missing=True)
    assert (found.outcome, found.message) == (outcome, 'node "n1" not found' if outcome == "refused" else "")


def test_an_infeasible_resize_restarts_no_container() -> None:
    rules = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    old = version(SMALL, resizePolicy=rules)
    for memory, outcome, restarts in (("5Gi", "infeasible", ()), ("2Gi", "accepted", ("c",))):
        found = asked(version({**SMALL, "memory": memory}, resizePolicy=rules), old=old)
        assert (found.outcome, found.restarts) == (outcome, restarts)


def test_the_nearest_request_keeps_what_may_not_be_removed() -> None:
    """03 §4.2 step 9; allowed in documents."""
    old, new = version(HALF, {}), version({"cpu": "2"}, {})
    assert asked(new, old=old).outcome == "accepted"
    found = asked(new, old=old, profile="1.36")
    assert (found.outcome, found.nearest is not None) == ("refused", True)
    assert found.nearest is not None
    assert found.nearest.spec.containers[0].resources.requests == {"cpu": parse("2"), "memory": parse("512Mi")}
    assert asked(version({"cpu": "1"}, {}), old=old, profile="1.36").nearest is None
