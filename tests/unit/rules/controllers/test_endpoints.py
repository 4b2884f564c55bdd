"""Endpoints and EndpointSlices: which pods, how many in a slice, and how little changes."""

from __future__ import annotations

from typing import Any

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
