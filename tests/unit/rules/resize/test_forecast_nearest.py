"""The forecast of a resize: the nearest request, shrinks and restarts."""

from __future__ import annotations

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.forecast import Api, forecast, forecast_without_node
from plimsoll.rules.resize.request import patch_between
from plimsoll.rules.resize.verdict import ResizeSetting
from plimsoll.rules.scheduling.fit import allocated_load
from tests.unit.rules.resize.forecast_pods import HALF, NODE, SMALL, asked, other, version


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
