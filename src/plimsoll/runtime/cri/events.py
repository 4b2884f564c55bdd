"""When to look again: the runtime's events where it sends any, else looks of our own, and ended processes at once.

Events name their pod. A look is compared with the one before: whatever differs names its pod. After a time in which the
runtime could not be reached every pod is to be looked at, which is what "" says.

Instant news of ended processes: one pidfd per container and sandbox, readable once its first process is gone.

That is no exit code (the process is a child of the runtime's shim), only a reason to ask the runtime at once instead of
at the next look. A pid that went to another process in between costs nothing but such a reason.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress

from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.calls import GET_CONTAINER_EVENTS, CallRefusedError, CriClient
from plimsoll.runtime.cri.grpc import UNIMPLEMENTED
from plimsoll.runtime.cri.snapshot import Look
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox, RuntimeSnapshot


class Exits:
    def __init__(self, noticed: Callable[[str], None]) -> None:
        """`noticed` is called with the id, by the event loop; again and again where the process was gone before."""
        self._noticed = noticed
        self._fds: dict[str, int] = {}

    def follow(self, pids: Mapping[str, int]) -> bool:
        """Watch exactly these, id → pid; whether all of them can be."""
        for gone in self._fds.keys() - pids.keys():
            self._drop(gone)
        complete = True
        for each, pid in pids.items():
            if each not in self._fds:
                complete &= self._watch(each, pid)
        return complete

    def close(self) -> None:
        for each in [*self._fds]:
            self._drop(each)

    def _watch(self, each: str, pid: int) -> bool:
        if pid <= 0:
            return False
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:  # gone already
            self._noticed(each)
            return True
        except OSError:  # no more file descriptors, or no pidfds here
            return False
        self._fds[each] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, each)
        return True

    def _ended(self, each: str) -> None:
        # The descriptor stays readable, so it is not watched any more; it stays open so that the id counts as followed.
        asyncio.get_running_loop().remove_reader(self._fds[each])
        self._noticed(each)

    def _drop(self, each: str) -> None:
        fd = self._fds.pop(each)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


BUSY_S, QUIET_S = 1.0, 10.0  # between looks, while something happens or somebody cannot be followed; else
BUSY_FOR_S = 10.0
SOON_S, LATE_S = 0.005, 5.0  # a process has ended: until the runtime says so, from short pauses to long ones
RETRY_S, LONGEST_RETRY_S = 0.1, 5.0
ALL = ""


class Changes:
    def __init__(self, client: CriClient, look: Look) -> None:
        self._client, self._look = client, look
        self._exits = Exits(self._ended)
        self._stirred = asyncio.Event()
        self._named: set[str] = set()  # pods of which an event has come
        self._ending: set[str] = set()  # ids whose process is gone, and of which the runtime does not know yet
        self._soon_s = SOON_S
        self._events = False  # whether the runtime sends them
        self._closed = False

    def looked(self) -> None:
        """Somebody else has: what runs now is followed from now on."""
        if not self._closed and not self._exits.follow(self._look.pids()):
            self._stirred.set()

    def close(self) -> None:
        self._closed = True
        self._exits.close()
        self._stirred.set()

    async def follow(self) -> AsyncIterator[str]:
        listening = asyncio.create_task(self._listen(), name="cri events")
        clock = asyncio.get_running_loop().time
        before: RuntimeSnapshot | None = None
        busy_until_s = clock() + BUSY_FOR_S
        pause_s = retry_s = 0.0
        reachable = True
        try:
            while not self._closed:
                await self._pause(pause_s)
                if self._closed:
                    return
                for uid in self._take_named():
                    yield uid
                try:
                    seen = await self._look.now()
                except CallRefusedError:
                    reachable, retry_s = False, min(max(2 * retry_s, RETRY_S), LONGEST_RETRY_S)
                    pause_s = retry_s
                    continue
                pids = self._look.pids()
                followed = self._exits.follow(pids)
                changed = {ALL} if before is None or not reachable else differing(before, seen)
                before, reachable, retry_s = seen, True, 0.0
                for uid in changed:
                    yield uid
                if changed:
                    busy_until_s = clock() + BUSY_FOR_S
                self._ending &= pids.keys()
                if self._ending:
                    pause_s, self._soon_s = self._soon_s, min(2 * self._soon_s, LATE_S)
                elif followed and (self._events or clock() > busy_until_s):
                    pause_s = QUIET_S
                else:
                    pause_s = BUSY_S
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stirred.wait()
        self._stirred.clear()

    def _take_named(self) -> set[str]:
        named, self._named = self._named, set()
        return named

    def _ended(self, each: str) -> None:
        if each not in self._ending:
            self._ending.add(each)
            self._soon_s = SOON_S
        self._stirred.set()

    async def _listen(self) -> None:
        """Until the runtime says that it has no events."""
        retry_s = RETRY_S
        while True:
            try:
                async for event in self._client.follow(GET_CONTAINER_EVENTS, m.Empty()):
                    self._events, retry_s = True, RETRY_S
                    sandbox = event.pod_sandbox_status
                    if sandbox is not None and sandbox.metadata is not None and sandbox.metadata.uid:
                        self._named.add(sandbox.metadata.uid)
                    self._stirred.set()
            except CallRefusedError as refused:
                if refused.code == UNIMPLEMENTED:
                    return
            self._events = False
            self._stirred.set()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)


def differing(before: RuntimeSnapshot, after: RuntimeSnapshot) -> set[str]:
    """Uids of the pods of which anything came, went or changed."""
    return _differing(before.sandboxes, after.sandboxes) | _differing(before.containers, after.containers)


def _differing(
    before: Iterable[ObservedSandbox | ObservedContainer], after: Iterable[ObservedSandbox | ObservedContainer]
) -> set[str]:
    earlier, later = {each.id: each for each in before}, {each.id: each for each in after}
    ids = [each for each in earlier.keys() | later.keys() if earlier.get(each) != later.get(each)]
    return {(later.get(each) or earlier[each]).pod_uid for each in ids}
