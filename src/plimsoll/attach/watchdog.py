"""Containers that are parked at memory.high, time above a memory.high that is only planned, and proactive reclaim.

The counter `high` of kubepods counts that of all containers: as long as it stands still, no container is throttled and
nothing else is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from plimsoll.attach.report import AboveHigh, AttachMeters
from plimsoll.attach.writer import AttachWriter
from plimsoll.cgroups.drivers.interface import CgroupError
from plimsoll.codec.kernel.files import flat_keyed, pressure
from plimsoll.rules.attach.reclaim import ReclaimSample, reclaim_bytes, within_budget
from plimsoll.rules.attach.values import HIGH, LOW, MIN, Decision, Target
from plimsoll.rules.oom.throttling import Throttled, ThrottleFinding, ThrottleSample, helped, throttle_sentence, watched
from plimsoll.rules.resources.files import MAX

SAMPLE_S = 1.0
RECLAIM_EVERY = 10  # samples
_MOST_ABOVE = 1_000
_FILES = ("memory.current", HIGH, "memory.max", "memory.events", "memory.pressure")

log = logging.getLogger(__name__)


class _Spent(msgspec.Struct):
    subject: str
    high: str
    seconds: float = 0.0


class Watchdog:
    def __init__(self, writer: AttachWriter, meters: AttachMeters, *, acts: bool) -> None:
        self._writer, self._meters, self._acts = writer, meters, acts
        self._states: dict[str, Throttled] = {}
        self._reclaims: dict[str, ReclaimSample] = {}
        self._above: dict[str, _Spent] = {}
        self._high_events = -1
        self._last_s: float | None = None
        self._began_s = time.monotonic()
        self._reclaim_cpu_s = 0.0
        self.lifted: dict[str, str] = {}  # path and file → value: memory.high that the watchdog has raised

    def above_high(self) -> tuple[AboveHigh, ...]:
        return tuple(AboveHigh(each.subject, round(each.seconds, 1), each.high) for each in self._above.values())

    async def run(self, decision: Callable[[], Decision]) -> None:
        """Without end."""
        count = 0
        while True:
            await asyncio.sleep(SAMPLE_S)
            await self.sample(decision(), time.monotonic(), reclaim=count % RECLAIM_EVERY == 0)
            count += 1

    async def sample(self, decision: Decision, now_s: float, *, reclaim: bool = False) -> None:
        containers = [target for target in decision.targets if target.level == "container"]
        paths = {target.path for target in containers}
        self._states = {path: state for path, state in self._states.items() if path in paths}
        self._reclaims = {path: sample for path, sample in self._reclaims.items() if path in paths}
        self.lifted = {key: value for key, value in self.lifted.items() if key.partition("\t")[0] in paths}
        if self._acts:
            if self._throttled(decision):
                for target in containers:
                    if target.switches.watchdog != "off" and HIGH in target.files:
                        await self._watch(target, now_s)
        elif reclaim:
            self._measure(containers, now_s)
        if reclaim and self._acts:
            for target in containers:
                if target.switches.reclaim:
                    await self._reclaim(target, now_s)

    def _throttled(self, decision: Decision) -> bool:
        """Whether any container was throttled since the last sample."""
        top = next((target.path for target in decision.targets if target.level == "pods"), None)
        found = self._writer.read(top, ("memory.events",)) if top is not None else None
        events = flat_keyed(found[0].get("memory.events", "")).get("high", 0) if found is not None else None
        before, self._high_events = self._high_events, events if events is not None else -1
        return events is None or events != before

    async def _watch(self, target: Target, now_s: float) -> None:
        found = self._writer.read(target.path, _FILES)
        if found is None:
            return
        files = found[0]
        stall = pressure(files["memory.pressure"]).some if files.get("memory.pressure") else None
        sample = ThrottleSample(
            now_s,
            int(files.get("memory.current", "0")),
            _bytes(files.get(HIGH)),
            _bytes(files.get("memory.max")),
            flat_keyed(files.get("memory.events", "")).get("high", 0),
            None if stall is None else stall.total_us,
        )
        state, finding = watched(self._states.get(target.path), sample, target.switches.watchdog)
        self._states[target.path] = state
        if finding is not None:
            failure = await self._help(target, finding)
            log.warning("%s", throttle_sentence(target.subject, finding, failure))
            self._meters.parked.add(finding.action)
            self._states[target.path] = helped(state, finding, failure)

    async def _help(self, target: Target, finding: ThrottleFinding) -> str:
        driver = self._writer.driver
        try:
            if finding.action == "reclaim":
                await driver.write(target.path, "memory.reclaim", str(finding.reclaim_bytes))
            elif finding.lifts_to:
                return await self._lift(target, finding.lifts_to)
        except CgroupError as error:
            return str(error)
        return ""

    async def _lift(self, target: Target, value: str) -> str:
        """The reason if it is not done."""
        key = f"{target.path}\t{HIGH}"
        before = self.lifted.get(key)
        self.lifted[key] = value
        problem = await self._writer.rewrite(target.path, HIGH, value)
        if problem and before is None:
            del self.lifted[key]
        elif problem and before is not None:
            self.lifted[key] = before
        return problem

    def _measure(self, containers: list[Target], now_s: float) -> None:
        """How long containers are above the memory.high that they would have."""
        last_s, self._last_s = self._last_s, now_s
        for target in containers:
            high = _bytes(target.files.get(HIGH))
            found = self._writer.read(target.path, ("memory.current",)) if high is not None else None
            if last_s is None or high is None or found is None:
                continue
            if int(found[0].get("memory.current", "0")) > high:
                spent = self._above.setdefault(target.path, _Spent(target.subject, str(high)))
                spent.seconds += now_s - last_s
        if len(self._above) > _MOST_ABOVE:  # containers that have ended count as well, but not without end
            self._above.pop(min(self._above, key=lambda path: self._above[path].seconds))

    async def _reclaim(self, target: Target, now_s: float) -> None:
        found = self._writer.read(target.path, ("memory.current", "memory.pressure"))
        if found is None or "memory.pressure" not in found[0]:
            return
        some = pressure(found[0]["memory.pressure"]).some
        if some is None:
            return
        sample = ReclaimSample(now_s, int(found[0].get("memory.current", "0")), some.total_us)
        protected = max(int(target.files.get(MIN, 0)), int(target.files.get(LOW, 0)))
        step = reclaim_bytes(self._reclaims.get(target.path), sample, protected, self._writer.page_size)
        self._reclaims[target.path] = sample
        if not step or not within_budget(self._reclaim_cpu_s, now_s - self._began_s):
            return
        began_s = time.process_time()
        try:
            await self._writer.driver.write(target.path, "memory.reclaim", str(step))
        except CgroupError as error:  # EAGAIN: less than that could be reclaimed
            log.debug("%s: %s", target.subject, error)
        self._reclaim_cpu_s += time.process_time() - began_s
        self._meters.reclaimed.add(amount=step)


def _bytes(text: str | None) -> int | None:
    return None if text is None or text == MAX else int(text)
