"""Check every second the containers that have a memory.high, and help those that are stuck above it.

Only cgroup v2 has memory.high. Which containers have one is read when containers are created or removed; the others
cost nothing. Of those that have one two files are read each second, `memory.current` and `memory.high`, and more only
where usage is near memory.high. `rules.oom.throttling` decides what that means and what to do. The owner of the
container's cgroup, the cgroup engine or a runtime, writes the new value (`lift`), so that it becomes the desired value
and is not reverted as drift; the next attempt of the container starts with the rules' own value. Success is what the
kernel then has in memory.high. See https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from plimsoll.aio import Wakeup
from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.codec.kernel.files import flat_keyed, number_or_max, pressure
from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, KeptFile
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.oom.throttling import (
    NEAR_SHARE,
    Policy,
    Throttled,
    ThrottleFinding,
    ThrottleSample,
    helped,
    throttle_sentence,
    watched,
)
from plimsoll.rules.resources.files import MAX

EVERY_S = 1.0
DISCOVER_S = 10.0
THROTTLED = "MemoryThrottled"
_HIGH, _MAX, _CURRENT = "memory.high", "memory.max", "memory.current"
_EVENTS, _PRESSURE = "memory.events", "memory.pressure"
log = logging.getLogger(__name__)

Lift = Callable[[MonitoredContainer, str], Awaitable[None]]
Reclaim = Callable[[MonitoredContainer, int], Awaitable[None]]
Warn = Callable[[MonitoredContainer, str, str], None]


class ThrottleWatchdog:
    def __init__(
        self,
        files: CgroupOpener | None,
        containers: Callable[[], Iterable[MonitoredContainer]],
        policy: Policy,
        *,
        lift: Lift,
        reclaim: Reclaim,
        warn: Warn,
        clock: Callable[[], float],
        page_size: int = 4096,
    ) -> None:
        """`lift`: give this container another memory.high. `warn`: emit a Warning about it (reason, message)."""
        self._page_size = page_size
        self._files, self._containers, self._policy = files, containers, policy
        self._lift, self._reclaim, self._warn, self._clock = lift, reclaim, warn, clock
        self._monitors: dict[str, _Monitor] = {}
        self._changed = Wakeup()

    async def run(self) -> None:
        """Until cancelled; returns at once where the kernel or the policy leaves nothing to watch."""
        if self._files is None or self._files.version == 1 or self._policy == "off":
            return
        try:
            while True:
                self._follow()
                await self._poll()
        finally:
            for monitor in self._monitors.values():
                monitor.close()
            self._monitors.clear()

    async def _poll(self) -> None:
        """Until containers have changed, or it is time to check whether they have."""
        end_s = self._clock() + DISCOVER_S
        while self._clock() < end_s:
            for monitor in list(self._monitors.values()):
                await self._check(monitor)
            if await self._changed.wait(EVERY_S if self._monitors else DISCOVER_S):
                return

    # --- CgroupListener ---

    def changing(self, uid: str) -> None:
        """No state of single pods is kept here."""

    def changed(self) -> None:
        self._changed.set()

    # ---

    def _follow(self) -> None:
        now = {container.id: container for container in self._containers()}
        for gone in self._monitors.keys() - now.keys():
            self._monitors.pop(gone).close()
        assert self._files is not None
        for container_id, container in now.items():
            if container_id in self._monitors:
                continue
            monitor = None
            try:
                monitor = _Monitor(self._files, container)
                has_high = monitor.high() != MAX
            except CgroupError as error:
                log.debug("%s is not watched for throttling: %s", container.path, error)
                has_high = False
            if monitor is not None and has_high:
                self._monitors[container_id] = monitor
            elif monitor is not None:
                monitor.close()

    async def _check(self, monitor: _Monitor) -> None:
        try:
            sample = monitor.sample(self._clock())
            monitor.memory, finding = watched(monitor.memory, sample, self._policy)
            if finding is not None:
                await self._act(monitor, finding)
        except CgroupError as error:
            if not isinstance(error, CgroupGoneError):
                log.warning("%s is not watched for throttling until the next check: %s", monitor.container.path, error)
            self._monitors.pop(monitor.container.id, None)
            monitor.close()

    async def _act(self, monitor: _Monitor, finding: ThrottleFinding) -> None:
        container, failure = monitor.container, ""
        try:
            await self._help(container, finding)
        except (PlimsollError, OSError) as error:
            failure = str(error)
        high = monitor.high()  # raises where the container has ended: no failure, and nothing to report
        if not failure and finding.lifts_to and not same_value(_HIGH, finding.lifts_to, high, self._page_size):
            failure = f"the update was accepted, but memory.high is {high}, not {finding.lifts_to}"
        assert monitor.memory is not None
        is_known = bool(failure) and failure == monitor.memory.failure
        monitor.memory = helped(monitor.memory, finding, failure)
        if failure:
            log.warning("container %s is throttled at memory.high and could not be helped: %s", container.name, failure)
        if not is_known:
            self._warn(container, THROTTLED, throttle_sentence(container.name, finding, failure))

    async def _help(self, container: MonitoredContainer, finding: ThrottleFinding) -> None:
        if finding.lifts_to:
            await self._lift(container, finding.lifts_to)
        elif finding.action == "reclaim":
            await self._reclaim(container, finding.reclaim_bytes)


class _Monitor:
    """The files of one container, open while its cgroup exists."""

    def __init__(self, files: CgroupOpener, container: MonitoredContainer) -> None:
        self.container = container
        self.memory: Throttled | None = None
        with files.directory(container.path, _HIGH) as directory:
            names = [_HIGH, _MAX, _CURRENT, _EVENTS]
            if directory.read_if_there(_PRESSURE) is not None:
                names.append(_PRESSURE)
            self._files: dict[str, KeptFile] = {}
            try:
                for name in names:
                    self._files[name] = KeptFile(directory, name)
            except CgroupError:
                self.close()
                raise

    def high(self) -> str:
        return self._files[_HIGH].read().decode().strip()

    def sample(self, now_s: float) -> ThrottleSample:
        usage, high = int(self._files[_CURRENT].read()), number_or_max(self._files[_HIGH].read())
        if high is None or usage < NEAR_SHARE * high:
            return ThrottleSample(now_s, usage, high, None, 0)
        stalled = pressure(self._files[_PRESSURE].read()) if _PRESSURE in self._files else None
        return ThrottleSample(
            now_s,
            usage,
            high,
            number_or_max(self._files[_MAX].read()),
            flat_keyed(self._files[_EVENTS].read()).get("high", 0),
            None if stalled is None or stalled.some is None else stalled.some.total_us,
        )

    def close(self) -> None:
        for file in self._files.values():
            file.close()
