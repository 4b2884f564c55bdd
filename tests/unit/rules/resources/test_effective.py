"""Effective requests and limits of a pod (spec 01 §6, §6.1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.quantity import Quantity, parse
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.effective import (
    added,
    aggregate,
    container_limits,
    container_requests,
    larger,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_set,
    pod_limits,
    pod_requests,
)
from plimsoll.rules.resources.footprint import counted_limits, counted_requests, resize_infeasible
from tests.examples import examples
from tests.unit.strategies import Json, cpu_texts, lean, memory_texts, plain_pods, valid_pods


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: parse(text) for name, text in texts.items()}


def shown(resources: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in resources.items()}


def container(
    name: str, cpu: str | None = None, *, sidecar: bool = False, kind: str = "requests", **lists: Json
) -> Json:
    block = lists or ({} if cpu is None else {kind: {"cpu": cpu}})
    return {"name": name, "resources": block} | ({"restartPolicy": "Always"} if sidecar else {})


def pod(containers: list[Json], inits: list[Json] = [], **fields: object) -> Json:  # noqa: B006
    return {"spec": {"containers": containers, "initContainers": inits, **fields}}


A, B = container("a", "100m"), container("b", "200m")
I1, I2, S = container("i1", "500m"), container("i2", "400m"), container("s", "50m", sidecar=True)

WORKED = [
    ("§6 worked: sidecar after I1", [I1, S, I2], "510m"),
    ("§6 worked: sidecar before I1", [S, I1, I2], "560m"),
    ("§6: without inits", [], "310m"),
    ("§6: sidecars add up", [S, {**S, "name": "s2"}], "410m"),
    ("E-4: plain inits by maximum", [I1, I2], "510m"),
]


@pytest.mark.parametrize(("inits", "cpu"), [row[1:] for row in WORKED], ids=[row[0] for row in WORKED])
def test_worked(inits: list[Json], cpu: str) -> None:
    assert shown(pod_requests(lean(pod([A, B], inits, overhead={"cpu": "10m"})))) == {"cpu": cpu}
    without = parse(cpu) - parse("10m")
    assert pod_requests(lean(pod([A, B], inits, overhead={"cpu": "10m"})), overhead=False)["cpu"] == without


LIMITED = container("a", limits={"cpu": "1", "memory": "0"}, requests={"cpu": "1"})
ROWS = [
    ("E-1 overhead only on limits that are not zero", pod([LIMITED], overhead={"cpu": "1", "memory": "1Mi", "x.y/z": "1"}),
     {"cpu": "2", "memory": "1Mi", "x.y/z": "1"}, {"cpu": "2", "memory": "0"}),
    ("§6 pod level replaces, name by name", pod([LIMITED], resources={"requests": {"cpu": "5"}, "limits": {"memory": "1Gi"}}),
     {"cpu": "5"}, {"cpu": "1", "memory": "1Gi"}),
    ("§6 a replacement may be lower", pod([LIMITED], resources={"requests": {"cpu": "500m"}}),
     {"cpu": "500m"}, {"cpu": "1", "memory": "0"}),
    ("§6 pod level and overhead", pod([LIMITED], overhead={"cpu": "1"}, resources={"requests": {"cpu": "5"}, "limits": {"cpu": "6"}}),
     {"cpu": "6"}, {"cpu": "7", "memory": "0"}),
    ("E-2 unsupported names do not count", pod([LIMITED], resources={"requests": {"ephemeral-storage": "5"}}),
     {"cpu": "1"}, {"cpu": "1", "memory": "0"}),
    ("E-2 empty maps do not count", pod([LIMITED], resources={"requests": {}, "limits": {}}),
     {"cpu": "1"}, {"cpu": "1", "memory": "0"}),
    ("E-2 limits of pod level where only requests are named", pod([LIMITED], resources={"requests": {"memory": "1"}, "limits": {"x.y/z": "1"}}),
     {"cpu": "1", "memory": "1"}, {"cpu": "1", "memory": "0"}),
    ("E-3 ephemeral containers", pod([LIMITED], ephemeralContainers=[container("e", "64")]), {"cpu": "1"}, {"cpu": "1", "memory": "0"}),
    ("keys of one side are kept", pod([A, container("m", requests={"memory": "1Mi"})]), {"cpu": "100m", "memory": "1Mi"}, {}),
    ("nothing", pod([container("n")]), {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "requests", "limits"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_requests_and_limits(document: Json, requests: dict[str, str], limits: dict[str, str]) -> None:
    assert shown(pod_requests(lean(document))) == requests
    assert shown(pod_limits(lean(document))) == limits


def test_the_gate_off_ignores_pod_level() -> None:
    document = pod([LIMITED], resources={"requests": {"cpu": "5"}, "limits": {"cpu": "6"}})
    assert shown(pod_requests(lean(document), gates=Gates(pod_level=False))) == {"cpu": "1"}
    assert shown(pod_limits(lean(document), gates=Gates(pod_level=False))) == {"cpu": "1", "memory": "0"}


def test_missing_requests_for_scoring() -> None:
    """E-15: substituted per container, also for a name another container has."""
    absent = amounts(cpu="100m", memory="200Mi")
    total = pod_requests(lean(pod([container("a"), container("b", "1")])), absent=absent)
    assert shown(total) == {"cpu": "1100m", "memory": "400Mi"}


SET = [
    ("none", None, (False, False, False)),
    ("empty", Resources(), (False, False, False)),
    ("requests", Resources(requests=amounts(cpu="1")), (True, False, True)),
    ("limits", Resources(limits=amounts(memory="0")), (False, True, True)),
    ("unsupported", Resources(requests={"x.y/z": parse("1")}), (False, False, False)),
]


@pytest.mark.parametrize(("resources", "expected"), [row[1:] for row in SET], ids=[f"E-2 {row[0]}" for row in SET])
def test_pod_level_is_set(resources: Resources | None, expected: tuple[bool, bool, bool]) -> None:
    assert (pod_level_requests_set(resources), pod_level_limits_set(resources), pod_level_set(resources)) == expected


# --- §6.1 ---


def resized(reason: str = "", *, allocated: Json | None = None, actual: Json | None = None, **fields: object) -> Json:
    status: Json = {
        "containerStatuses": [{"name": "a", "allocatedResources": allocated, "resources": actual}],
        **fields,
    }
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "status": "False", "reason": reason}]
    spec = {"containers": [container("a", requests={"cpu": "1500m"}, limits={"cpu": "2"})]}
    return {"spec": spec, "status": status}


IN_USE = {"allocated": {"cpu": "1"}, "actual": {"requests": {"cpu": "800m"}, "limits": {"cpu": "900m"}}}
RESIZED = [
    ("E-13 spec is the largest", resized(**IN_USE), "1500m", "2"),
    ("E-13 Infeasible", resized("Infeasible", **IN_USE), "1", "900m"),
    ("E-10 Deferred keeps the spec", resized("Deferred", **IN_USE), "1500m", "2"),
    ("E-10 actual is the largest", resized(allocated={"cpu": "1"}, actual={"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}), "3", "4"),
    ("E-10 allocated is the largest", resized(allocated={"cpu": "7"}, actual={"requests": {"cpu": "3"}}), "7", "2"),
    ("E-10 no status resources", resized("Infeasible", allocated={"cpu": "7"}), "1500m", "2"),
    ("E-10 empty status resources count", resized("Infeasible", allocated={"cpu": "7"}, actual={}), "7", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "request_", "limit"), [row[1:] for row in RESIZED], ids=[row[0] for row in RESIZED]
)
def test_counted(document: Json, request_: str, limit: str | None) -> None:
    assert shown(counted_requests(lean(document))) == {"cpu": request_}
    assert shown(counted_limits(lean(document))) == ({} if limit is None else {"cpu": limit})


def test_the_first_condition_decides() -> None:
    conditions = [
        {"type": "PodResizePending", "reason": "Deferred"},
        {"type": "PodResizePending", "reason": "Infeasible"},
    ]
    assert not resize_infeasible(lean({"status": {"conditions": conditions}}))
    assert resize_infeasible(lean({"status": {"conditions": conditions[::-1]}}))
    assert not resize_infeasible(lean({}))


OLD = [
    ("E-12 max(spec, allocated)", "", "2", "2"),
    ("E-12 max(spec, allocated), spec larger", "", "1", "1500m"),
    ("E-12 Infeasible", "Infeasible", "1", "1"),
    ("05 A1 InProgress", "InProgress", "1", "1"),
    ("05 A1 Deferred", "Deferred", "1", "1500m"),
]


@pytest.mark.parametrize(("resize", "allocated", "counted"), [row[1:] for row in OLD], ids=[row[0] for row in OLD])
def test_counted_as_documented(resize: str, allocated: str, counted: str) -> None:
    document = resized(allocated={"cpu": allocated}, actual={"requests": {"cpu": "9"}}, resize=resize)
    assert shown(counted_requests(lean(document), "documents")) == {"cpu": counted}


ADDITIVE = [
    ("Infeasible: what is allocated", "Infeasible", "1", "3"),
    ("InProgress: what is allocated", "InProgress", "1", "3"),
    ("Deferred: the larger", "Deferred", "100", "102"),
    ("no status: the larger", "", "100", "102"),
]


@pytest.mark.parametrize(("resize", "level", "total"), [row[1:] for row in ADDITIVE], ids=[row[0] for row in ADDITIVE])
def test_sidecars_and_the_pod_level_are_counted_alike(resize: str, level: str, total: str) -> None:
    """05 A1, the documents' rule; an ordinary init container counts with its spec."""
    side = {**container("s", requests={"cpu": "100"}), "restartPolicy": "Always"}
    status = {
        "resize": resize,
        "containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"}}],
        "initContainerStatuses": [
            {"name": "s", "allocatedResources": {"cpu": "1"}},
            {"name": "i", "allocatedResources": {"cpu": "50"}},
        ],
    }
    init = container("i", requests={"cpu": "1"})
    spec = {"containers": [container("a", requests={"cpu": "2"})], "initContainers": [init, side]}
    assert shown(counted_requests(lean({"spec": spec, "status": status}), "documents")) == {"cpu": total}
    spec = {"containers": [container("a")], "resources": {"requests": {"cpu": "100"}}, "overhead": {"cpu": "2"}}
    status = {"resize": resize, "allocatedResources": {"cpu": "1", "memory": "1Gi"}}
    counted = shown(counted_requests(lean({"spec": spec, "status": status}), "documents"))
    assert counted == {"cpu": shown({"cpu": parse(level) + parse("2")})["cpu"]}


POD_LEVEL_STATUS = [
    ("E-11 the largest", "", {"requests": {"cpu": "7"}, "limits": {"cpu": "9"}}, {"cpu": "8"}, True, "8", "9"),
    ("E-11 gate off", "", {"requests": {"cpu": "7"}, "limits": {"cpu": "9"}}, {"cpu": "8"}, False, "5", "6"),
    ("E-11 Infeasible", "Infeasible", {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}, {}, True, "2", "3"),
    ("E-11 Infeasible, key missing", "Infeasible", {"requests": {"memory": "2"}, "limits": {}}, {}, True, "0", "0"),
    ("E-11 Infeasible without limits: the spec's", "Infeasible", {"requests": {"cpu": "2"}}, {}, True, "2", "6"),
    ("E-11 only the status has memory", "", {"requests": {"cpu": "2", "memory": "9"}}, {}, True, "5", "6"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "actual", "allocated", "gate", "request_", "limit"),
    [row[1:] for row in POD_LEVEL_STATUS],
    ids=[row[0] for row in POD_LEVEL_STATUS],
)
def test_counted_pod_level(reason, actual, allocated, gate, request_, limit) -> None:
    conditions = [{"type": "PodResizePending", "reason": reason}] if reason else []
    document = pod([container("a", "1")], resources={"requests": {"cpu": "5"}, "limits": {"cpu": "6"}})
    document["status"] = {"resources": actual, "allocatedResources": allocated, "conditions": conditions}
    assert shown(counted_requests(lean(document), gates=Gates(pod_level_status_counted=gate))) == {"cpu": request_}
    assert shown(counted_limits(lean(document), gates=Gates(pod_level_status_counted=gate))) == {"cpu": limit}


# --- properties ---

lists = st.dictionaries(st.sampled_from(("cpu", "memory", "x.y/z")), cpu_texts | memory_texts).map(
    lambda texts: {name: parse(text) for name, text in texts.items()}
)


def nanos(resources: dict[str, Quantity]) -> dict[str, int]:
    return {name: quantity.nanos for name, quantity in resources.items()}


@settings(max_examples=examples(150), deadline=None)
@given(lists, lists, lists)
def test_sum_and_maximum(one, two, three) -> None:
    assert nanos(added(one, two)) == nanos(added(two, one))
    assert nanos(added(added(one, two), three)) == nanos(added(one, added(two, three)))
    assert nanos(larger(one, two)) == nanos(larger(two, one))
    assert nanos(larger(one, one)) == nanos(one)
    for name in one.keys() | two.keys():
        total, most = added(one, two)[name], larger(one, two)[name]
        assert total.nanos == sum(each[name].nanos for each in (one, two) if name in each)
        assert most.nanos == max(each[name].nanos for each in (one, two) if name in each)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(lists, max_size=4), st.lists(st.tuples(st.booleans(), lists), max_size=4))
def test_aggregate_is_the_largest_moment(containers, inits) -> None:
    """A second writing of §6: play the pod's life and take the most it ever needs of each resource."""

    def need(moment: list[dict[str, Quantity]]) -> dict[str, int]:
        names = {name for each in moment for name in each}
        return {name: sum(each[name].nanos for each in moment if name in each) for name in names}

    running: list[dict[str, Quantity]] = []
    moments = []
    for sidecar, own in inits:
        moments.append(need([*running, own]))
        if sidecar:
            running.append(own)
    moments.append(need([*running, *containers]))
    names = {name for moment in moments for name in moment}
    expected = {name: max(moment.get(name, 0) for moment in moments) for name in names}
    assert nanos(aggregate(containers, inits)) == expected


@settings(max_examples=examples(100), deadline=None)
@given(plain_pods())
def test_a_plain_pod_is_the_sum_of_its_containers(document: Json) -> None:
    each = defaulted(lean(document))
    for kind, total in (("requests", pod_requests(each)), ("limits", pod_limits(each))):
        own = [getattr(c.resources, kind) or {} for c in each.spec.containers]
        for name in {name for resources in own for name in resources}:
            assert total[name].nanos == sum(resources[name].nanos for resources in own if name in resources)
        assert total.keys() == {name for resources in own for name in resources}


@settings(max_examples=examples(150), deadline=None)
@given(valid_pods(stored=False))
def test_valid_pods(document: Json) -> None:
    each = defaulted(lean(document))
    requests, limits = pod_requests(each), pod_limits(each)
    overhead = each.spec.overhead or {}
    bare, capped = pod_requests(each, overhead=False), pod_limits(each, overhead=False)
    for name in requests:
        assert requests[name].nanos == (bare[name].nanos if name in bare else 0) + (
            overhead[name].nanos if name in overhead else 0
        )
    for name, quantity in limits.items():
        extra = overhead[name].nanos if name in overhead and capped[name] else 0
        assert quantity.nanos == capped[name].nanos + extra
    gated = pod_requests(each, gates=Gates(pod_level=False), overhead=False)
    assert nanos(gated) == nanos(container_requests(each))
    assert nanos(pod_limits(each, gates=Gates(pod_level=False), overhead=False)) == nanos(container_limits(each))
    assert nanos(counted_requests(each)) == nanos(requests), "without a status nothing is pending"
    assert nanos(counted_limits(each)) == nanos(limits)
