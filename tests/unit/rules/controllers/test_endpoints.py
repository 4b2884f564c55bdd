"""Endpoints and EndpointSlices: which pods, how many in a slice, and how little changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.rules.controllers.endpoints import (
    Condition,
    PodMetadata,
    PodSpec,
    PodStatus,
    Port,
    PortOwner,
    ServedPod,
    endpoints,
    selected,
    slices,
    target_port,
)
from plimsoll.rules.controllers.mirrored_endpoints import mirrored


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]
    metadata = {"name": "web", "namespace": "ns", "uid": "u", "labels": {"l": "1"}}
    return {"metadata": metadata, "spec": {"selector": {"a": "b"}, "ports": ports, "ipFamilies": ["IPv4"], **spec}}


def pod(number: int, *, ready: bool = True, phase: str = "Running", deleted: bool = False) -> ServedPod:
    metadata = PodMetadata(f"p{number:04}", "ns", f"u{number}", {"a": "b"}, "2026-01-01T00:00:00Z" if deleted else None)
    conditions = (Condition("Ready", "True" if ready else "False"),)
    spec = PodSpec("n1", containers=(PortOwner((Port(9000 + number, "http"),)),))
    return ServedPod(metadata, spec, PodStatus(phase, conditions, f"10.0.{number // 250}.{number % 250 + 1}"))


def stored(made: dict[str, Any], name: str) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "name": name}}


def test_a_service_without_a_selector_selects_none() -> None:
    assert selected(service(), {"a": "b", "c": "d"})
    assert not selected(service(selector={}), {"a": "b"})
    assert not selected(service(), None)


def test_a_named_port_is_that_of_the_pod() -> None:
    assert target_port(pod(1), {"targetPort": "http", "protocol": "TCP"}) == 9001
    assert target_port(pod(1), {"targetPort": "http", "protocol": "UDP"}) == 0
    assert target_port(pod(1), {"targetPort": 80}) == 80


def test_a_slice_has_at_most_100_endpoints_and_the_others_stay() -> None:
    pods = [pod(number) for number in range(250)]
    plan = slices(service(), pods, {"n1": "z"}, [])
    assert [len(each["endpoints"]) for each in plan.create] == [100, 100, 50]
    assert plan.create[0]["endpoints"][0]["zone"] == "z"
    existing = [stored(each, f"web-{index}") for index, each in enumerate(plan.create)]
    assert slices(service(), pods, {"n1": "z"}, existing) == slices(service(), pods, {"n1": "z"}, existing[::-1])
    unchanged = slices(service(), pods, {"n1": "z"}, existing)
    assert (unchanged.create, unchanged.update, unchanged.delete) == ([], [], [])
    one_less = slices(service(), pods[1:], {"n1": "z"}, existing)
    assert [each["metadata"]["name"] for each in one_less.update] == ["web-0"]
    assert (one_less.create, one_less.delete) == ([], [])
    none = slices(service(), [], {}, existing)
    assert [each["endpoints"] for each in none.update] == [[]]
    assert [each["metadata"]["name"] for each in none.delete] == ["web-1", "web-2"]


def test_what_a_pod_s_state_means() -> None:
    pods = [pod(1), pod(2, ready=False), pod(3, phase="Succeeded"), pod(4, deleted=True)]
    (made,) = slices(service(), pods, {}, []).create
    found = {each["targetRef"]["name"]: tuple(each["conditions"].values()) for each in made["endpoints"]}
    # ready, serving, terminating
    assert found == {"p0001": (True, True, False), "p0002": (False, False, False), "p0004": (False, True, True)}
    (subset,) = endpoints(service(), pods)["subsets"]
    assert [each["targetRef"]["name"] for each in subset["addresses"]] == ["p0001"]
    assert [each["targetRef"]["name"] for each in subset["notReadyAddresses"]] == ["p0002"]
    (subset,) = endpoints(service(publishNotReadyAddresses=True), pods)["subsets"]
    assert [each["targetRef"]["name"] for each in subset["addresses"]] == ["p0001", "p0002", "p0004"]


def test_ports_that_differ_are_subsets_of_their_own() -> None:
    named = service(ports=[{"name": "w", "port": 80, "targetPort": "http", "protocol": "TCP"}])
    found = endpoints(named, [pod(1), pod(2)])["subsets"]
    assert sorted(each["ports"][0]["port"] for each in found) == [9001, 9002]


def test_a_loopback_address_is_none() -> None:
    local = ServedPod(PodMetadata("p", "ns", "u", {"a": "b"}), status=PodStatus("Running", pod_ip="127.0.0.1"))
    assert endpoints(service(), [local])["subsets"] == []


def _calls(run: Callable[[], object]) -> int:
    seen: list[str] = []
    sys.setprofile(lambda frame, event, argument: seen.append(event) if event in ("call", "c_call") else None)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(seen)


@pytest.mark.parametrize("what", ["slices", "endpoints", "mirrored"])
def test_the_work_grows_with_the_ports_and_the_pods_and_not_with_their_product(what: str) -> None:
    """A service of 400 KB has 10,000 ports, and its controller runs in the API server."""

    def work(count: int) -> int:
        ports = [{"name": f"p{n}", "port": n + 1, "targetPort": n + 1, "protocol": "TCP"} for n in range(count)]
        pods = [pod(number) for number in range(count)]
        with_ports = service(ports=ports)
        if what == "slices":
            return _calls(lambda: slices(with_ports, pods, {}, []))
        made = endpoints(with_ports, pods)
        if what == "mirrored":
            made["metadata"]["uid"] = "u"
            return _calls(lambda: mirrored(made, []))
        assert [len(made["subsets"][0][field]) for field in ("addresses", "ports")] == [count, count]
        return _calls(lambda: endpoints(with_ports, pods))

    assert work(200) < 6 * work(50)


def test_ports_that_some_pods_have_by_name_share_the_addresses_of_the_others() -> None:
    ports = [
        {"name": "one", "port": 1, "targetPort": 8080, "protocol": "TCP"},
        {"name": "two", "port": 2, "targetPort": "http", "protocol": "TCP"},
    ]
    made = endpoints(service(ports=ports), [pod(1), pod(2, ready=False)])
    shown = [
        (
            [each["ip"] for each in subset.get("addresses", [])],
            [each["ip"] for each in subset.get("notReadyAddresses", [])],
            [(each["name"], each["port"]) for each in subset["ports"]],
        )
        for subset in made["subsets"]
    ]
    assert sorted(shown) == [
        ([], ["10.0.0.3"], [("two", 9002)]),
        (["10.0.0.2"], [], [("two", 9001)]),
        (["10.0.0.2"], ["10.0.0.3"], [("one", 8080)]),
    ]
