"""Long work in pieces: one piece in each round of the event loop, of alternating users."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from plimsoll.api.machinery.rounds import ClientLostError, Pace, Rounds, Worker


async def test_one_piece_in_each_round_and_users_alternate() -> None:
    scheduler, pieces, rounds = Rounds(), list[str](), 0

    async def work(user: str) -> None:
        for _ in range(3):
            await scheduler.next(user)
            pieces.append(f"{user}{rounds}")

    tasks = [asyncio.create_task(work(user)) for user in ("a", "a", "a", "b")]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds += 1
    at = [int(piece[1:]) for piece in pieces]
    assert at == sorted(set(at)), "two pieces in one round"
    assert [piece[0] for piece in pieces[:6]] == ["a", "b", "a", "b", "a", "b"]
    assert [piece[0] for piece in pieces[6:]] == ["a"] * 6


async def test_a_cancelled_wait_takes_no_round() -> None:
    scheduler = Rounds()
    given_up, next_one = (asyncio.create_task(scheduler.next("a")) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(60):
        await next_one


async def test_work_for_a_client_that_has_left_ends() -> None:
    pace = Pace(Rounds(), "a", is_lost=lambda: True)
    with pytest.raises(ClientLostError):
        await pace.pause()


async def test_the_worker_serves_users_alternate_and_the_loop_runs_meanwhile() -> None:
    worker, order, started, may_end = Worker("test"), list[str](), threading.Event(), threading.Event()
    interval_s = sys.getswitchinterval()

    def first() -> None:
        started.set()
        assert may_end.wait(10)

    tasks = [asyncio.create_task(worker.run("a", first))]
    await asyncio.to_thread(started.wait, 10)
    assert sys.getswitchinterval() < interval_s
    for name in ("a1", "a2", "a3", "b1"):
        tasks.append(asyncio.create_task(worker.run(name[0], lambda name=name: order.append(name))))
        await asyncio.sleep(0)
    assert not tasks[0].done()
    may_end.set()
    await asyncio.gather(*tasks)
    assert order == ["a1", "b1", "a2", "a3"]
    assert sys.getswitchinterval() == interval_s
    worker.close()


async def test_an_error_in_the_worker_reaches_its_caller_and_frees_it() -> None:
    worker = Worker("test")
    with pytest.raises(ZeroDivisionError):
        await worker.run("a", lambda: 1 // 0)
    assert await worker.run("a", time.monotonic) > 0
    worker.close()
