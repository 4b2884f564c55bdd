"""EndpointSlices that mirror the Endpoints of services without a selector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from plimsoll.api.server.services import controllers
from plimsoll.rules.controllers.mirrored_endpoints import mirrored
from tests.unit.api.api_client import ApiClient, Watched, api

SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def written(*addresses: str, **metadata: Any) -> dict[str, Any]:
    subset = {"addresses": [{"ip": address} for address in addresses], "ports": [{"port": 80}]}
    return {"metadata": {"name": "own", **metadata}, "subsets": [subset] if addresses else []}


async def service(ask: ApiClient, **spec: Any) -> None:
    await ask.ok("POST", SERVICES, {"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}], **spec}})


async def next_of(watched: Watched, kind: str) -> dict[str, Any]:
    event = await watched.event()
    assert event["type"] == kind
    found: dict[str, Any] = event["object"]
    return found


async def test_create_update_and_delete(tmp_path: Path) -> None:
    """e2e: EndpointSliceMirroring should mirror a custom Endpoints resource through create update and delete."""
    async with api(tmp_path, services=(controllers,)) as ask:
        await service(ask)
        async with ask.watching(f"{SLICES}?watch=1&labelSelector=kubernetes.io/service-name%3Down") as watched:
            annotations = {"a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
            made = await ask.ok("POST", ENDPOINTS, written("10.1.2.3", labels={"x": "y"}, annotations=annotations))
            found = await next_of(watched, "ADDED")
            assert found["endpoints"] == [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
            assert (found["addressType"], found["ports"]) == ("IPv4", [{"name": "", "port": 80, "protocol": "TCP"}])
            metadata = found["metadata"]
            assert metadata["annotations"] == {"a": "1"}
            assert metadata["labels"] == {
                "x": "y",
                "kubernetes.io/service-name": "own",
                "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
            }
            assert metadata["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
            await ask.ok("PUT", f"{ENDPOINTS}/own", {**written("10.2.3.4"), "metadata": made["metadata"]})
            changed = await next_of(watched, "MODIFIED")
            assert [each["addresses"] for each in changed["endpoints"]] == [["10.2.3.4"]]
            assert changed["metadata"]["name"] == metadata["name"]
            await ask.ok("DELETE", f"{ENDPOINTS}/own")
            await next_of(watched, "DELETED")


async def test_two_families_and_what_is_not_ready(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        await service(ask)
        sent = written("10.1.2.3", "2001:db8::1")
        sent["subsets"][0]["notReadyAddresses"] = [{"ip": "10.1.2.4", "hostname": "h"}]
        async with ask.watching(f"{SLICES}?watch=1&labelSelector=kubernetes.io/service-name%3Down") as watched:
            await ask.ok("POST", ENDPOINTS, sent)
            found = [await next_of(watched, "ADDED") for _ in range(2)]
        by_family = {each["addressType"]: each["endpoints"] for each in found}
        assert by_family["IPv4"] == [
            {"addresses": ["10.1.2.3"], "conditions": {"ready": True}},
            {"addresses": ["10.1.2.4"], "conditions": {"ready": False}, "hostname": "h"},
        ]
        assert by_family["IPv6"] == [{"addresses": ["2001:db8::1"], "conditions": {"ready": True}}]


async def test_locks_and_those_that_say_so_are_not_mirrored(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        await service(ask)
        async with ask.watching(f"{SLICES}?watch=1&labelSelector=kubernetes.io/service-name%3Down") as watched:
            made = await ask.ok("POST", ENDPOINTS, written("10.1.2.3"))
            await next_of(watched, "ADDED")
            marked = {**made["metadata"], "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
            made = await ask.ok("PUT", f"{ENDPOINTS}/own", {**made, "metadata": marked})
            await next_of(watched, "DELETED")
            plain = {**made["metadata"], "labels": {}}
            made = await ask.ok("PUT", f"{ENDPOINTS}/own", {**made, "metadata": plain})
            await next_of(watched, "ADDED")
            lock = {**made["metadata"], "annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}
            await ask.ok("PUT", f"{ENDPOINTS}/own", {**made, "metadata": lock})
            await next_of(watched, "DELETED")


async def test_ports_with_the_same_addresses_are_in_one_slice(tmp_path: Path) -> None:
    """e2e: should mirror a custom Endpoint with multiple subsets and same IP address."""
    subsets = [
        {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": name, "port": port}]}
        for name, port in (("a", 1), ("b", 2))
    ]
    endpoints = {"metadata": {"name": "own", "namespace": "default", "uid": "u"}, "subsets": subsets}
    [made] = mirrored(endpoints, []).create
    assert [port["port"] for port in made["ports"]] == [1, 2]
    assert len(made["endpoints"]) == 1


_ADDRESSES = some.lists(some.integers(0, 40).map(lambda number: {"ip": f"10.0.0.{number}"}), max_size=5)
_SUBSETS = some.lists(
    some.builds(
        lambda addresses, port: {"addresses": addresses, "ports": [{"name": f"p{port}", "port": port}]},
        _ADDRESSES,
        some.integers(1, 3),
    ),
    max_size=4,
)


@given(_SUBSETS, _SUBSETS)
def test_the_plan_leads_to_exactly_the_addresses(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    """From any slices to those of any Endpoints; then nothing is left to do."""
    metadata = {"name": "own", "namespace": "default", "uid": "u"}
    existing = mirrored({"metadata": metadata, "subsets": before}, []).create
    for number, each in enumerate(existing):
        each["metadata"]["name"] = f"s{number}"
    wanted = {"metadata": metadata, "subsets": after}
    plan = mirrored(wanted, existing)
    changed = {each["metadata"]["name"] for each in (*plan.update, *plan.delete)}
    left = [each for each in existing if each["metadata"]["name"] not in changed]
    result = [*left, *plan.update, *plan.create]
    pairs = {
        (endpoint["addresses"][0], port["port"])
        for each in result
        for endpoint in each["endpoints"]
        for port in each["ports"]
    }
    assert pairs == {(one["ip"], port["port"]) for each in after for one in each["addresses"] for port in each["ports"]}
    again = mirrored(wanted, result)
    assert (again.create, again.update, again.delete) == ([], [], [])
