"""Which pods have changed: from the runtime's events, from polling, and from ended processes.

Events name their pod. Polling compares two snapshots. After the runtime could not be reached, all pods have to be
synced, which "" stands for.

One pidfd per container and sandbox becomes readable when its first process ends. That gives no exit code (the process
is a child of the runtime's shim), only a reason to read the runtime's state at once. If the pid was reused, the only
cost is one extra read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress

from plimsoll.aio import ExponentialBackoff, Wakeup
from plimsoll.net.grpc.status import UNIMPLEMENTED
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.calls import GET_CONTAINER_EVENTS, CallRefusedError, CriClient
from plimsoll.runtime.cri.snapshot import SnapshotReader
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox, RuntimeSnapshot


class Exits:
    def __init__(self, noticed: Callable[[str], None]) -> None:
        """`noticed` is called with the id, by the event loop; on each `follow` if the process was gone before."""
        self._noticed = noticed
        self._fds: dict[str, int] = {}

    def follow(self, pids: Mapping[str, int]) -> bool:
        """Watch exactly these, id → pid; False if one cannot be watched."""
        for gone in self._fds.keys() - pids.keys():
            self._drop(gone)
        complete = True
        for name, pid in pids.items():
            if name not in self._fds:
                complete &= self._watch(name, pid)
        return complete

    def close(self) -> None:
        for name in [*self._fds]:
            self._drop(name)

    def _watch(self, name: str, pid: int) -> bool:
        if pid <= 0:
            return False
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:  # gone already
            self._noticed(name)
            return True
        except OSError:  # no more file descriptors, or no pidfds here
            return False
        self._fds[name] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, name)
        return True

    def _ended(self, name: str) -> None:
        # The descriptor stays readable, so it is not watched any more; it stays open because the id is still followed.
        asyncio.get_running_loop().remove_reader(self._fds[name])
        self._noticed(name)

    def _drop(self, name: str) -> None:
        fd = self._fds.pop(name)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


BUSY_S, QUIET_S = 1.0, 10.0  # between polls: while something changes or a process cannot be watched; otherwise
BUSY_FOR_S = 10.0
SOON_S, LATE_S = 0.005, 5.0  # a process has ended: growing pauses until the runtime reports it
RETRY_S, LONGEST_RETRY_S = 0.1, 5.0
ALL = ""


class Changes:
    def __init__(self, client: CriClient, snapshots: SnapshotReader) -> None:
        self._client, self._snapshots = client, snapshots
        self._exits = Exits(self._ended)
        self._stirred = Wakeup()
        self._named: set[str] = set()  # pods that events have named
        self._ending: set[str] = set()  # ids whose process is gone, but which the runtime still reports as running
        self._until_reported = ExponentialBackoff(SOON_S, LATE_S)
        self._events = False  # whether the runtime sends events
        self._closed = False

    def snapshot_taken(self) -> None:
        """Another caller has read a snapshot: follow what runs now."""
        if not self._closed and not self._exits.follow(self._snapshots.pids()):
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
        pause_s, retries = 0.0, ExponentialBackoff(RETRY_S, LONGEST_RETRY_S)
        reachable = True
        try:
            while not self._closed:
                await self._stirred.wait(pause_s)
                if self._closed:
                    return
                named, self._named = self._named, set()
                for uid in named:
                    yield uid
                try:
                    seen = await self._snapshots.read()
                except CallRefusedError:
                    reachable, pause_s = False, retries.next_s()
                    continue
                pids = self._snapshots.pids()
                followed = self._exits.follow(pids)
                changed = {ALL} if before is None or not reachable else differing(before, seen)
                before, reachable = seen, True
                retries.reset()
                for uid in changed:
                    yield uid
                if changed:
                    busy_until_s = clock() + BUSY_FOR_S
                self._ending &= pids.keys()
                if self._ending:
                    pause_s = self._until_reported.next_s()
                elif followed and (self._events or clock() > busy_until_s):
                    pause_s = QUIET_S
                else:
                    pause_s = BUSY_S
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    def _ended(self, name: str) -> None:
        if name not in self._ending:
            self._ending.add(name)
            self._until_reported.reset()
        self._stirred.set()

    async def _listen(self) -> None:
        """Until the runtime reports that it has no events."""
        retries = ExponentialBackoff(RETRY_S, LONGEST_RETRY_S)
        while True:
            try:
                async for event in self._client.follow(GET_CONTAINER_EVENTS, m.Empty()):
                    self._events = True
                    retries.reset()
                    sandbox = event.pod_sandbox_status
                    if sandbox is not None and sandbox.metadata is not None and sandbox.metadata.uid:
                        self._named.add(sandbox.metadata.uid)
                    self._stirred.set()
            except CallRefusedError as refused:
                if refused.code == UNIMPLEMENTED:
                    return
            self._events = False
            self._stirred.set()
            await asyncio.sleep(retries.next_s())


def differing(before: RuntimeSnapshot, after: RuntimeSnapshot) -> set[str]:
    """Uids of the pods with an added, removed or changed sandbox or container."""
    return _differing(before.sandboxes, after.sandboxes) | _differing(before.containers, after.containers)


def _differing(
    before: Iterable[ObservedSandbox | ObservedContainer], after: Iterable[ObservedSandbox | ObservedContainer]
) -> set[str]:
    earlier, later = {state.id: state for state in before}, {state.id: state for state in after}
    ids = [name for name in earlier.keys() | later.keys() if earlier.get(name) != later.get(name)]
    return {(later.get(name) or earlier[name]).pod_uid for name in ids}
