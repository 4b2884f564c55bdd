"""Leadership among servers on one real etcd: one at a time, taken over when it is not renewed, and fenced."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plimsoll.api.controllers.kubernetes_service import Advertised
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.server import leader
from plimsoll.api.server.leader import Leadership, led
from plimsoll.api.server.presence import Presence
from plimsoll.rules.profile import DEFAULT_PROFILE
from plimsoll.store.errors import FencedError
from plimsoll.store.etcd.location import location
from plimsoll.store.fence import FENCE, Fence
from plimsoll.store.store import Store
from tests.e2e.etcd_process import NoEtcdError, running_etcd
from tests.unit.store.bodies import put

POD = "/pods/default/web"
Open = Callable[[], Awaitable[Cluster]]


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    for name, value in (("LEASE_S", 1.0), ("RENEW_S", 0.2), ("DEADLINE_S", 0.8)):
        monkeypatch.setattr(leader, name, value)
    try:
        url = running_etcd()
    except NoEtcdError as error:
        pytest.skip(str(error))
    where, clusters = location(f"{url}?prefix=/{uuid.uuid4().hex}&compact=off"), list[Cluster]()

    async def open_one() -> Cluster:
        clusters.append(Cluster(await Store.open_etcd(where), DEFAULT_PROFILE))
        return clusters[-1]

    yield open_one
    for cluster in clusters:
        cluster.worker.close()
        await cluster.store.close()


class Work:
    """Notes when it runs, and under which term."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self.fence: Fence | None = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self.fence = FENCE.get()
        self.began.set()
        try:
            yield
        finally:
            self.ended.set()


async def test_one_leads_and_another_takes_over_when_it_does_not_renew(opened: Open) -> None:
    one, two = await opened(), await opened()
    first, second = Work(), Work()
    leading = asyncio.create_task(Leadership(one, "test", "one").run(first))
    async with asyncio.timeout(30):
        await first.began.wait()
        waiting = asyncio.create_task(Leadership(two, "test", "two").run(second))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):  # twice the lease: it is renewed meanwhile
                await second.began.wait()
        leading.cancel()  # as a killed server: nothing is released
        await second.began.wait()
    assert first.fence is not None and second.fence is not None
    token = FENCE.set(first.fence)
    try:
        with pytest.raises(FencedError):
            await one.store.change(POD, put("late"))
    finally:
        FENCE.reset(token)
    lease = two.document("leases", "kube-system", "test")
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("two", 1)
    waiting.cancel()
    await asyncio.gather(leading, waiting, return_exceptions=True)


async def test_clocks_that_differ_neither_end_nor_prolong_a_lease(opened: Open) -> None:
    """The leader's clock is a day behind, then that of the next one a day ahead of the third."""
    clusters = [await opened() for _ in range(3)]
    for cluster, hours in zip(clusters, (-24, 24, 0), strict=True):
        cluster.clock = lambda hours=hours: time.time() + hours * 3600  # type: ignore[misc]
    works = [Work() for _ in clusters]
    tasks: list[asyncio.Task[None]] = []
    try:
        for number, (cluster, work) in enumerate(zip(clusters, works, strict=True)):
            tasks.append(asyncio.create_task(Leadership(cluster, "test", f"s{number}").run(work)))
            if number:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(2.0):  # twice the lease: it is renewed meanwhile
                        await work.began.wait()
                tasks[number - 1].cancel()  # as a killed server
            async with asyncio.timeout(60):
                await work.began.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_shutdown_hands_over_at_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "LEASE_S", 600.0)
    one, two = await opened(), await opened()
    first, second = Work(), Work()
    async with asyncio.timeout(60):
        async with led(one, "test", first):
            await first.began.wait()
        assert first.ended.is_set()
        async with led(two, "test", second):
            await second.began.wait()


async def test_a_leader_that_is_overtaken_stops(opened: Open) -> None:
    one, two = await opened(), await opened()
    work = Work()
    async with led(one, "test", work), asyncio.timeout(30):
        await work.began.wait()
        thief = Leadership(two, "test", "thief")
        assert await two.store.fresh()
        record = two.store.get("coordination.k8s.io/leases/kube-system/test")
        assert record is not None
        while not await thief._write(record.version):
            assert await two.store.fresh()
            record = two.store.get("coordination.k8s.io/leases/kube-system/test")
            assert record is not None
        await work.ended.wait()


async def test_a_late_term_does_not_end_that_of_the_next_leader(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes the lease and is paused before it begins its term; meanwhile another has taken the lease over."""
    one, two = await opened(), await opened()
    first, second = Work(), Work()
    is_paused, resumed, begun = asyncio.Event(), asyncio.Event(), asyncio.Event()
    begin = one.store.begin_term

    async def late(*words: Any) -> Fence | None:
        is_paused.set()
        await resumed.wait()
        try:
            return await begin(*words)
        finally:
            begun.set()

    monkeypatch.setattr(one.store, "begin_term", late)
    tasks = [asyncio.create_task(Leadership(one, "test", "one").run(first))]
    try:
        async with asyncio.timeout(60):
            await is_paused.wait()
            tasks.append(asyncio.create_task(Leadership(two, "test", "two").run(second)))
            await second.began.wait()
            resumed.set()
            await begun.wait()
            token = FENCE.set(second.fence)
            try:
                assert await two.store.change(POD, put("of the leader")) is not None
            finally:
                FENCE.reset(token)
        assert not first.began.is_set() and not second.ended.is_set()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_leader_whose_term_was_ended_gives_the_lease_up(opened: Open) -> None:
    one, two = await opened(), await opened()
    work = Work()
    async with led(one, "test", work), asyncio.timeout(60):
        await work.began.wait()
        assert await two.store.begin_term("test", await two.store.last_term("test")) is not None
        await work.ended.wait()
        work.began.clear()
        await work.began.wait()  # it takes the lease again, and begins a term that holds
        token = FENCE.set(work.fence)
        try:
            assert await one.store.change(POD, put("again")) is not None
        finally:
            FENCE.reset(token)


async def test_the_addresses_of_all_servers_are_known(opened: Open) -> None:
    one, two = await opened(), await opened()
    at, other = Advertised("10.0.0.1", 6443), Advertised("10.0.0.2", 6443)
    here, there = Presence(one, at, "one"), Presence(two, other, "two")
    assert here.addresses() == (at,)
    async with here.kept(), asyncio.timeout(30):
        async with there.kept():
            while here.addresses() != (at, other) or there.addresses() != (at, other):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        while here.addresses() != (at,):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
