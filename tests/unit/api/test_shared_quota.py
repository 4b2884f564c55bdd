"""Two API servers on one real etcd charge one quota: never above it, also while a charged object is on its way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.controllers import quotas
from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.controllers.quotas import CHARGE_S, Charges
from plimsoll.api.server.services import client_of
from plimsoll.rules.quantity import Quantity
from plimsoll.store.etcd.location import location
from plimsoll.store.etcd.transactions import Transactions
from tests.e2e.etcd_process import NoEtcdError, running_etcd
from tests.unit.api.api_client import PODS, ApiClient, api, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
Two = tuple[ApiClient, ApiClient]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    try:
        where = location(f"{running_etcd()}?prefix=/{uuid.uuid4().hex}&compact=off")
    except NoEtcdError as error:
        pytest.skip(str(error))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with api(tmp_path / "a", etcd=where) as one, api(tmp_path / "b", etcd=where) as other:
        context = ControllerContext(one.app.cluster.store, client_of(one.app, "test"))
        clock = asyncio.get_running_loop().time
        running = asyncio.create_task(quotas.controller(context, one.app.cluster.profile, clock).run())
        try:
            yield one, other
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def used(ask: ApiClient, expected: str) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await ask.ok("GET", f"{QUOTAS}/q")
            if found.get("status", {}).get("used", {}).get("pods") == expected:
                return
            await asyncio.sleep(0.02)


async def limited(ask: ApiClient, amount: str) -> None:
    await ask.ok("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": amount}}})
    await used(ask, "0")


async def test_two_servers_never_admit_more_than_the_quota(two: Two) -> None:
    await limited(two[0], "5")
    said = await asyncio.gather(*(two[each % 2]("POST", PODS, pod(f"p{each}")) for each in range(24)))
    assert sorted(each.code for each in said) == [201] * 5 + [403] * 19
    await used(two[1], "5")
    for each in (await two[1].ok("GET", PODS))["items"]:
        await two[0].ok("DELETE", f"{PODS}/{each['metadata']['name']}")
    await used(two[1], "0")
    await two[1].ok("POST", PODS, pod("again"))


async def test_a_charge_stays_while_its_object_is_on_its_way(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write of the pod waits; meanwhile the controller counts again and another server wants the place."""
    one, other = two
    await limited(one, "1")
    is_waiting, resumed = asyncio.Event(), asyncio.Event()
    send = Transactions.write

    async def write(self: Transactions, path: bytes, *more: Any) -> Any:
        if path.endswith(b"/pods/default/slow"):
            is_waiting.set()
            await resumed.wait()
        return await send(self, path, *more)

    monkeypatch.setattr(Transactions, "write", write)
    async with asyncio.timeout(60):
        slow = asyncio.create_task(other("POST", PODS, pod("slow")))
        await is_waiting.wait()
        await used(one, "1")
        for number in range(20):  # each one is a reason to count again
            await one.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"m{number}"}})
        await asyncio.sleep(1.5)
        said = [await one("POST", PODS, pod("fast")) for _ in range(3)]
        assert [each.code for each in said] == [403] * 3
        resumed.set()
        assert (await slow).code == 201
    assert [each["metadata"]["name"] for each in (await one.ok("GET", PODS))["items"]] == ["slow"]


def amounts(pods: int) -> dict[str, Quantity]:
    return {"pods": Quantity.parse(str(pods))}


def test_what_is_charged_and_not_there_yet() -> None:
    charges = Charges()
    charges.note(1, amounts(3), 0.0)
    assert charges.corrected(amounts(2), 1.0) == amounts(3)  # one of the three may be on its way
    assert charges.is_pending
    charges.note(2, amounts(4), 2.0)
    assert charges.corrected(amounts(3), 3.0) == amounts(4)  # one has arrived
    assert charges.corrected(amounts(1), 4.0) == amounts(2)  # two have ended
    charges.note(3, amounts(2), 4.0)
    assert charges.corrected(amounts(1), 2.0 + CHARGE_S) == amounts(1)  # the last one never came
    assert not charges.is_pending
    charges.note(4, amounts(1), 20.0)
    assert charges.corrected(amounts(2), 21.0) == amounts(2)
    charges.note(5, amounts(2), 21.0)  # written by the controller: no charge
    assert charges.corrected(amounts(0), 22.0) == amounts(0)
