"""The watchdog on containers of plain files: which it reads, what it does, when it stops."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, KeptFile
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.pressure.throttle_watchdog import ThrottleWatchdog
from plimsoll.rules.oom.throttling import Policy
from tests.unit.node.played_node import MIB, PlayedCgroups

ID, PATH = "ab" * 32, "/kubepods/burstable/podu1/c"
CONTAINER = MonitoredContainer(ID, "app", "u1", "ns", "web", PATH)


class Parked:
    """A container at memory.high: each read of the clock is a second later and finds more `high` events."""

    def __init__(self, root: Path, policy: Policy, high: str = str(50 * MIB)) -> None:
        self.cgroups, self.now_s, self.high = PlayedCgroups(root), 0.0, high
        self.lifted: list[str] = []
        self.reclaimed: list[int] = []
        self.warnings: list[tuple[str, str]] = []
        self.helped = asyncio.Event()
        self.refusal: PlimsollError | None = None
        self.is_heeded = True
        self._put()
        self.watchdog = ThrottleWatchdog(
            self.cgroups,
            lambda: [CONTAINER],
            policy,
            lift=self._lift,
            reclaim=self._reclaim,
            warn=self._record,
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

    async def _lift(self, _: MonitoredContainer, high: str) -> None:
        self.lifted.append(high)
        if self.refusal is not None:
            raise self.refusal
        if self.is_heeded:
            self.high = high
            self._put()

    async def _reclaim(self, _: MonitoredContainer, wanted_bytes: int) -> None:
        self.reclaimed.append(wanted_bytes)

    def _record(self, _: MonitoredContainer, reason: str, message: str) -> None:
        self.warnings.append((reason, message))
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
        ("release", ["max"], False, "memory.high is removed"),
        ("reclaim", [], True, "bytes are reclaimed"),
    ],
)
async def test_what_is_done(policy: Policy, lifted: list[str], reclaims: bool, says: str, tmp_path: Path) -> None:
    parked = Parked(tmp_path, policy)
    await until_helped(parked)
    assert parked.lifted == lifted
    assert bool(parked.reclaimed) is reclaims
    ((reason, message), *_) = parked.warnings
    assert reason == "MemoryThrottled"
    assert says in message


async def passes(parked: Parked, enough: Callable[[], bool]) -> None:
    running = asyncio.create_task(parked.watchdog.run())
    try:
        async with asyncio.timeout(30):
            while not enough():
                assert not running.done(), running
                parked.watchdog.changed()
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize("policy", ["raise", "release"])
@pytest.mark.parametrize("refusal", [CgroupError("write", PATH, "x", errno.EBUSY), None], ids=["refused", "ignored"])
async def test_what_the_kernel_does_not_have_is_not_done(
    refusal: PlimsollError | None, policy: Policy, tmp_path: Path
) -> None:
    """A writer that fails, and one that accepts and writes nothing: reported once, tried again, then done."""
    parked = Parked(tmp_path, policy)
    parked.refusal, parked.is_heeded = refusal, False
    await passes(parked, lambda: len(parked.lifted) == 3)
    ((_, message),) = parked.warnings
    assert "failed to" in message and "retried" in message
    assert ("EBUSY" if refusal else "memory.high is 52428800, not") in message
    parked.refusal, parked.is_heeded = None, True
    parked.warnings.clear()
    await passes(parked, lambda: bool(parked.warnings))
    assert ("is raised to" if policy == "raise" else "is removed") in parked.warnings[0][1]


async def test_a_container_removed_between_two_reads_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked, asked = Parked(tmp_path, "release"), 0

    def gone(self: KeptFile) -> bytes:
        nonlocal asked
        asked += 1
        raise CgroupGoneError("read", PATH, "memory.high", errno.ENODEV)

    monkeypatch.setattr(KeptFile, "read", gone)
    await passes(parked, lambda: asked > 5)
    assert (parked.lifted, parked.warnings) == ([], [])


async def test_a_container_without_memory_high_is_not_read(tmp_path: Path) -> None:
    parked = Parked(tmp_path, "release", high="max")
    running = asyncio.create_task(parked.watchdog.run())
    for _ in range(50):
        parked.watchdog.changed()
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert (parked.lifted, parked.warnings) == ([], [])


@pytest.mark.parametrize("policy", ["off"])
async def test_off_ends_at_once(policy: Policy, tmp_path: Path) -> None:
    parked = Parked(tmp_path, policy)
    async with asyncio.timeout(30):
        await parked.watchdog.run()
    assert (parked.lifted, parked.reclaimed, parked.warnings) == ([], [], [])
    assert parked.now_s == 0.0  # no sample was taken
