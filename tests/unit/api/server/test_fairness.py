"""Limits by user and cost: rate, seats of long requests, watches; administrators and nodes are exempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.metrics import RequestMetrics
from plimsoll.api.machinery.rounds import Rounds
from plimsoll.api.machinery.selectors import Selection, selection
from plimsoll.api.machinery.status import StatusError
from plimsoll.api.machinery.users import AUTHENTICATED, MASTERS, NODES, VIEWERS, User
from plimsoll.api.server.costs import watch_cost
from plimsoll.api.server.fairness import COST, LONG_OBJECTS, PAUSE_S, SEAT_WAIT_S, Fairness
from tests.virtual_time import run_in_virtual_time

EVE, BOB = (User(name, frozenset({VIEWERS, AUTHENTICATED})) for name in ("eve", "bob"))
ADMIN = User("root", frozenset({MASTERS, AUTHENTICATED}))
NODE = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))
MANY = LONG_OBJECTS + 1


def fairness(**limits: float) -> Fairness:
    return Fairness(
        Limits(**limits),  # type: ignore[arg-type]
        RequestMetrics(),
        Rounds(),
        lambda: asyncio.get_running_loop().time(),
    )


async def refused_after_s(request: Awaitable[object]) -> float:
    """When a request is refused with 429; -1 if it is not."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        await request
    except StatusError as error:
        assert (error.code, error.reason) == (429, "TooManyRequests")
        assert error.retry_after_s > 0
        return loop.time() - began_s
    return -1


@pytest.mark.parametrize(("verb", "allowed"), [("get", 20), ("list", 2), ("watch", 2), ("create", 4)])
def test_a_burst_counts_by_cost_and_a_refusal_takes_its_time(verb: str, allowed: int) -> None:
    assert allowed == 20 // COST.get(verb, 1)

    async def run() -> None:
        limits = fairness(user_burst=20, user_per_s=0.001)
        for _ in range(allowed):
            assert await refused_after_s(limits.admit(EVE, verb)) == -1
        assert await refused_after_s(limits.admit(EVE, verb)) == pytest.approx(PAUSE_S)
        assert await refused_after_s(limits.admit(BOB, verb)) == -1, "another user"
        for _ in range(100):
            assert await refused_after_s(limits.admit(ADMIN, verb)) == -1
            assert await refused_after_s(limits.admit(NODE, verb)) == -1

    run_in_virtual_time(run())


def test_the_rate_comes_back() -> None:
    async def run() -> None:
        limits = fairness(user_burst=1, user_per_s=1.0)
        assert await refused_after_s(limits.admit(EVE, "get")) == -1
        await asyncio.sleep(1.0)
        assert await refused_after_s(limits.admit(EVE, "get")) == -1

    run_in_virtual_time(run())


def test_pages_above_the_rate_are_answered_later() -> None:
    async def run() -> None:
        limits, loop = fairness(user_burst=1, user_per_s=0.001), asyncio.get_running_loop()
        await limits.slow_down(EVE)
        before_s = loop.time()
        await limits.slow_down(EVE)
        assert loop.time() - before_s == pytest.approx(PAUSE_S)
        await limits.slow_down(ADMIN)
        assert loop.time() - before_s == pytest.approx(PAUSE_S)

    run_in_virtual_time(run())


def test_long_requests_wait_for_a_seat_in_their_order() -> None:
    async def run() -> None:
        limits = fairness(user_seats=2, user_waiting=2)
        first, second = [await limits.take_seat(EVE, MANY) for _ in range(2)]
        waiting = [asyncio.create_task(limits.take_seat(EVE, MANY)) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        assert await refused_after_s(limits.take_seat(EVE, MANY)) == pytest.approx(PAUSE_S), "the queue is full"
        for other in (limits.take_seat(BOB, MANY), limits.take_seat(ADMIN, MANY), limits.take_seat(EVE, LONG_OBJECTS)):
            assert await refused_after_s(other) == -1
        first.leave()
        first.leave()
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True, False]
        second.leave()
        await asyncio.sleep(0)
        assert waiting[1].done()

    run_in_virtual_time(run())


def test_large_bodies_of_all_users_have_a_limit() -> None:
    async def run() -> None:
        limits = fairness(large_body_bytes=10)
        first = await limits.take_seat(EVE, MANY, 6)
        assert await refused_after_s(limits.take_seat(BOB, MANY, 6)) == pytest.approx(PAUSE_S)
        for other in (limits.take_seat(BOB, MANY, 4), limits.take_seat(ADMIN, MANY, 6), limits.take_seat(EVE, 1, 6)):
            assert await refused_after_s(other) == -1
        first.leave()
        first.leave()
        assert await refused_after_s(limits.take_seat(BOB, MANY, 6)) == -1

    run_in_virtual_time(run())


def test_a_wait_for_a_seat_ends_and_loses_no_seat() -> None:
    async def run() -> None:
        limits = fairness(user_seats=1, user_waiting=2)
        seat = await limits.take_seat(EVE, MANY)
        assert await refused_after_s(limits.take_seat(EVE, MANY)) == pytest.approx(SEAT_WAIT_S)
        given_up, kept = (asyncio.create_task(limits.take_seat(EVE, MANY)) for _ in range(2))
        await asyncio.sleep(0.1)
        seat.leave()  # handed to the first, which is cancelled before it runs
        given_up.cancel()
        async with asyncio.timeout(1):
            (await kept).leave()
            (await limits.take_seat(EVE, MANY)).leave()

    run_in_virtual_time(run())


def test_watches_of_one_user() -> None:
    async def run() -> None:
        limits = fairness(user_watches=1)
        async with limits.watch(EVE):
            assert await refused_after_s(limits.watch(EVE).__aenter__()) == pytest.approx(PAUSE_S)
            async with limits.watch(BOB), limits.watch(NODE), limits.watch(NODE):
                pass
        async with limits.watch(EVE):
            pass

    run_in_virtual_time(run())


def test_a_watch_with_a_long_selector_counts_as_several() -> None:
    """Each change costs the time that its selector takes."""
    long, short = (selection(stored_resource("pods"), ",".join(["a!=x"] * count), "") for count in (500, 5))
    one_set = selection(stored_resource("pods"), f"a in ({','.join(f'v{n}' for n in range(500))})", "")
    assert [watch_cost(each) for each in (Selection("pods"), short, long, one_set)] == [1, 1, 21, 11]

    async def run() -> None:
        limits = fairness(user_watches=30)
        async with limits.watch(EVE, watch_cost(long)):
            assert await refused_after_s(limits.watch(EVE, watch_cost(long)).__aenter__()) == pytest.approx(PAUSE_S)
            async with limits.watch(EVE), limits.watch(BOB, 1_000):
                pass
        async with limits.watch(EVE, watch_cost(long)):
            pass

    run_in_virtual_time(run())
