"""The watchdog on containers of plain files: whom it looks at, what it has done, when it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.node.oom_ledger import Watched
from plimsoll.node.throttle_watchdog import ThrottleWatchdog
from plimsoll.rules.throttle_watch import Policy
from tests.unit.node.played_node import MIB, PlayedCgroups

ID, PATH = "ab" * 32, "/kubepods/burstable/podu1/c"
CONTAINER = Watched(ID, "app", "u1", "ns", "web", PATH)


class Parked:
    """A container at its mark: each look at the clock is a second later and finds more `high` events."""

    def __init__(self, root: Path, policy: Policy, high: str = str(50 * MIB)) -> None:
        self.cgroups, self.now_s, self.high = PlayedCgroups(root), 0.0, high
        self.lifted: list[str] = []
        self.reclaimed: list[int] = []
        self.told: list[tuple[str, str]] = []
        self.helped = asyncio.Event()
        self._put()
        self.watchdog = ThrottleWatchdog(
            self.cgroups,
            lambda: [CONTAINER],
            policy,
            lift=self._lift,
            reclaim=self._reclaim,
            tell=self._tell,
            clock=self._clock,
        )

    def _put(self) -> None:
        self.cgroups.put(
            PATH,
            memory_high=self.high,
            memory_max=str(100 * MIB),
            memory_current=str(51 * MIB),
            memory_events=f"low 0\nhigh {int(self.now_s * 10)}\nmax 0\n",
        )

    def _clock(self) -> float:
        self.now_s += 0.4
        self._put()
        return self.now_s

    async def _lift(self, _: Watched, high: str) -> None:
        self.lifted.append(high)
        self.high = high

    async def _reclaim(self, _: Watched, wanted_bytes: int) -> None:
        self.reclaimed.append(wanted_bytes)

    def _tell(self, _: Watched, reason: str, message: str) -> None:
        self.told.append((reason, message))
        self.helped.set()


async def until_helped(parked: Parked) -> None:
    running = asyncio.create_task(parked.watchdog.run())
    try:
        async with asyncio.timeout(30):
            while not parked.helped.is_set():
                parked.watchdog.changed()  # no need to wait for real seconds
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize(
    ("policy", "lifted", "reclaims", "says"),
    [
        ("event", [], False, "nothing is changed"),
        ("raise", [str(55 * MIB)], False, "memory.high is raised to"),
        ("release", ["max"], False, "memory.high is lifted"),
        ("reclaim", [], True, "bytes are asked back"),
    ],
)
async def test_what_is_done(policy: Policy, lifted: list[str], reclaims: bool, says: str, tmp_path: Path) -> None:
    parked = Parked(tmp_path, policy)
    await until_helped(parked)
    assert parked.lifted == lifted
    assert bool(parked.reclaimed) is reclaims
    ((reason, message), *_) = parked.told
    assert reason == "MemoryThrottled"
    assert says in message


async def test_a_container_without_a_mark_is_not_looked_at(tmp_path: Path) -> None:
    parked = Parked(tmp_path, "release", high="max")
    running = asyncio.create_task(parked.watchdog.run())
    for _ in range(50):
        parked.watchdog.changed()
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert (parked.lifted, parked.told) == ([], [])


@pytest.mark.parametrize("policy", ["off"])
async def test_off_ends_at_once(policy: Policy, tmp_path: Path) -> None:
    async with asyncio.timeout(5):
        await Parked(tmp_path, policy).watchdog.run()
