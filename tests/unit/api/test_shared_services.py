"""Two API servers on one real etcd choose addresses of services: never the same one, and none is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery import service_addresses
from plimsoll.api.machinery.service_addresses import CLAIMS
from plimsoll.rules.admission.service_addresses import ServiceRanges
from plimsoll.store.etcd.location import location
from tests.e2e.etcd_process import NoEtcdError, running_etcd
from tests.unit.api.api_client import MERGE, ApiClient, api

SERVICES = "/api/v1/namespaces/default/services"
RANGES = ServiceRanges("10.0.0.0/28", 30000, 30019)
Two = tuple[ApiClient, ApiClient]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    try:
        where = location(f"{running_etcd()}?prefix=/{uuid.uuid4().hex}&compact=off")
    except NoEtcdError as error:
        pytest.skip(str(error))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with (
        api(tmp_path / "a", service_ranges=RANGES, etcd=where) as one,
        api(tmp_path / "b", service_ranges=RANGES, etcd=where) as other,
    ):
        yield one, other


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def claimed(ask: ApiClient) -> list[str]:
    return sorted(record.key.rpartition("/")[2] for record in ask.app.cluster.store.list(CLAIMS)[1])


async def test_two_servers_never_choose_the_same(two: Two) -> None:
    """All 14 addresses of the range, for 14 services at once."""
    made = await asyncio.gather(
        *(two[each % 2].ok("POST", SERVICES, service(f"s{each}", type="NodePort")) for each in range(14))
    )
    assert len({each["spec"]["clusterIP"] for each in made}) == 14
    assert len({each["spec"]["ports"][0]["nodePort"] for each in made}) == 14
    assert "range is full" in (await two[1]("POST", SERVICES, service("more"))).message
    for each in range(14):
        await two[each % 2].ok("DELETE", f"{SERVICES}/s{each}")
    assert await two[0].app.cluster.store.fresh()
    assert claimed(two[0]) == []
    await two[0].ok("POST", SERVICES, service("more", clusterIP=made[0]["spec"]["clusterIP"]))


async def test_one_of_several_requests_for_an_address_wins(two: Two) -> None:
    said = await asyncio.gather(
        *(two[each % 2]("POST", SERVICES, service(f"s{each}", clusterIP="10.0.0.7")) for each in range(6))
    )
    assert sorted(each.code for each in said) == [201, *[422] * 5]
    assert "provided IP is already allocated" in next(each.message for each in said if each.code == 422)
    assert claimed(two[0]) == ["10.0.0.7"]


async def test_an_update_claims_and_gives_back(two: Two) -> None:
    one, other = two
    await one.ok("POST", SERVICES, service("web", clusterIP="10.0.0.7"))
    changed = await other.ok("PATCH", f"{SERVICES}/web", {"spec": {"type": "NodePort"}}, MERGE)
    port = changed["spec"]["ports"][0]["nodePort"]
    assert claimed(other) == ["10.0.0.7", str(port)]
    await other.ok("PATCH", f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}}, MERGE)
    assert claimed(other) == ["10.0.0.7"]
    refused = await one("POST", SERVICES, service("web", type="NodePort"))
    assert refused.code == 409
    assert await one.app.cluster.store.fresh()
    assert claimed(one) == ["10.0.0.7"]


async def test_the_leader_removes_claims_without_a_service(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    one = two[0]
    await one.ok("POST", SERVICES, service("web", clusterIP="10.0.0.7"))
    addresses = one.app.cluster.service_addresses
    await addresses.claim(service_addresses.UnclaimedError("killed", ["10.0.0.8"]))
    assert addresses.surplus() == ([], True)  # its service may be on its way
    monkeypatch.setattr(service_addresses, "CLAIM_S", 0.0)
    assert addresses.surplus() == ([("10.0.0.8", "killed")], True)
    await addresses.give_back("killed", ["10.0.0.8", "10.0.0.7"])
    assert claimed(one) == ["10.0.0.7"]
    monkeypatch.undo()
    assert addresses.surplus() == ([], False)
