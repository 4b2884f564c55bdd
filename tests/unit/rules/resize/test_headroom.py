"""Headroom of a node for a resize, with worked numbers: the shortfall, the pods to remove, the largest request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.rules.resize.headroom import leaving, most_that_fits, short_of, with_request
from plimsoll.rules.resize.verdict import ResizeSetting, resize_verdict
from plimsoll.rules.scheduling.fit import allocated_load

# 4 cores and 4 GiB for pods.
ALLOCATABLE = {"cpu": parse("4"), "memory": parse("4Gi"), "pods": parse("110")}
NODE = Node(Metadata("n1"), status=NodeStatus(ALLOCATABLE, ALLOCATABLE))


def pod(name: str, cpu: str, memory: str = "100Mi", *, limits: bool = False) -> Pod:
    amounts = {"cpu": cpu, "memory": memory}
    resources: dict[str, Any] = {"requests": amounts, **({"limits": amounts} if limits else {})}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return from_document({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}, Pod)


def node(*others: Pod, **extra: Any) -> ResizeSetting:
    return ResizeSetting(allocated_load(NODE, others), profile_named("1.36"), **extra)


OLD = pod("web", "1")


@pytest.mark.parametrize(
    ("cpu", "memory", "others", "short"),
    [
        pytest.param("3", "100Mi", [pod("a", "1")], {}, id="3 + 1 = 4 cores: fits exactly"),
        pytest.param("3001m", "100Mi", [pod("a", "1")], {"cpu": "1m"}, id="one millicore too much"),
        pytest.param("3", "3Gi", [pod("a", "1500m", "2Gi")], {"cpu": "500m", "memory": "1Gi"}, id="both"),
        pytest.param("5", "100Mi", [], {"cpu": "1"}, id="more than the node has"),
    ],
)
def test_the_shortfall(cpu: str, memory: str, others: list[Pod], short: dict[str, str]) -> None:
    result = short_of(pod("web", cpu, memory), node(*others))
    assert {name: str(amount) for name, amount in result.items()} == short


@pytest.mark.parametrize(
    ("cpu", "others", "removed", "freed"),
    [
        # 2 cores requested, 1 free: 1 core is short.
        pytest.param("2", [("a", "2"), ("b", "1")], ("ns/b",), "1", id="the smallest pod that frees enough"),
        pytest.param("2", [("a", "600m"), ("b", "500m"), ("c", "1900m")], ("ns/c",), "1900m", id="one before several"),
        pytest.param("4", [("a", "600m"), ("b", "500m"), ("c", "1900m")], ("ns/c", "ns/a", "ns/b"), "3", id="all"),
        # 3.5 cores requested, 1 free: 2.5 cores are short; 1.5 + 1 suffice, the 500m pod stays.
        pytest.param(
            "3500m", [("a", "500m"), ("b", "1"), ("c", "1500m")], ("ns/c", "ns/b"), "2500m", id="only those needed"
        ),
    ],
)
def test_the_pods_to_remove(cpu: str, others: list[tuple[str, str]], removed: tuple[str, ...], freed: str) -> None:
    result = leaving(pod("web", cpu), allocation_of(OLD), node(*(pod(*row) for row in others)))
    assert result is not None
    assert (result.pods, str(result.freed["cpu"]), result.then) == (removed, freed, "")


def test_no_pods_to_remove() -> None:
    assert leaving(pod("web", "3"), allocation_of(OLD), node()) is None, "nothing is short"
    assert leaving(pod("web", "5"), allocation_of(OLD), node(pod("a", "1"))) is None, "larger than the empty node"


def test_what_still_prevents_the_resize() -> None:
    result = leaving(pod("web", "4"), allocation_of(OLD), node(pod("a", "1"), refusals=("not now",)))
    assert result is not None
    assert (result.pods, result.then) == (("ns/a",), "not now")


@pytest.mark.parametrize(
    ("old", "used", "limits", "ever", "now"),
    [
        pytest.param("1", "1500m", False, "4", "2500m", id="4 cores alone, 2500m beside 1500m"),
        pytest.param("1", "1500m", True, "4", "2500m", id="the limit follows the request"),
        pytest.param("1", "3", False, "4", "1", id="no more than allocated"),
        pytest.param("1", "3500m", False, "4", "1", id="what is allocated stays, though the node is overcommitted"),
        pytest.param("0", "4", False, "4", "None", id="nothing fits"),
    ],
)
def test_the_largest_request(old: str, used: str, limits: bool, ever: str, now: str) -> None:
    desired, allocation = pod("web", "8", limits=limits), allocation_of(pod("web", old, limits=limits))
    (result,) = most_that_fits(desired, allocation, node(pod("a", used)), ["cpu"], lambda _pod: ())
    assert (result.container, result.resource, str(result.ever), str(result.now)) == ("c", "cpu", ever, now)


def test_only_raised_requests_of_the_named_resources() -> None:
    desired, setting = pod("web", "8", "50Mi"), node()
    assert most_that_fits(desired, allocation_of(OLD), setting, ["memory"], lambda _pod: ()) == ()
    assert most_that_fits(OLD, allocation_of(OLD), setting, ["cpu", "memory"], lambda _pod: ()) == ()


def test_the_api_bounds_the_search() -> None:
    def api_errors(candidate: Pod) -> list[Any]:
        requests = candidate.spec.containers[0].resources.requests or {}
        return ["too much"] if requests["cpu"].milli > 1700 else []

    (result,) = most_that_fits(pod("web", "8"), allocation_of(OLD), node(), ["cpu"], api_errors)
    assert (str(result.ever), str(result.now)) == ("1700m", "1700m")


SIZES = st.lists(st.integers(1, 20), max_size=6)  # in 100m


@given(SIZES, st.integers(11, 40))
def test_the_verdict_confirms_every_answer(sizes: list[int], cpu: int) -> None:
    """Without the removed pods the resize is accepted, and with any one of them left it is not; the largest request is
    accepted, and one millicore more is not."""
    others = [pod(f"p{index}", f"{size * 100}m") for index, size in enumerate(sizes)]
    desired, allocation, setting = pod("web", f"{cpu * 100}m"), allocation_of(OLD), node(*others)
    assume(resize_verdict(desired, allocation, setting).decision == "Deferred")
    event(f"{len(others)} other pods")

    def decision(candidate: Pod, without: set[str]) -> str:
        load = allocated_load(NODE, [other for other in others if f"ns/{other.metadata.name}" not in without])
        return resize_verdict(candidate, allocation, msgspec.structs.replace(setting, load=load)).decision

    result = leaving(desired, allocation, setting)
    assert result is not None
    removed = set(result.pods)
    assert decision(desired, removed) == "Accepted"
    assert all(decision(desired, removed - {name}) == "Deferred" for name in removed)
    (largest,) = most_that_fits(desired, allocation, setting, ["cpu"], lambda _pod: ())
    if largest.now is not None:
        event("a largest request")
        assert decision(with_request(desired, "c", "cpu", largest.now), set()) in ("Accepted", "NoChange")
    more = parse(f"{(largest.now.milli if largest.now is not None else 0) + 1}m")
    assert decision(with_request(desired, "c", "cpu", more), set()) in ("Deferred", "NoChange")
