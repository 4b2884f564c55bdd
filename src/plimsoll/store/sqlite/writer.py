"""Group commit: one thread writes one transaction at a time; changes that arrive meanwhile go into the next one.

The loop keeps the queue, the thread sees complete batches and reports each with one call into the loop. A call
that merely has to wait until everything before it is durable queues an empty write.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from plimsoll.store.errors import WriteFailedError
from plimsoll.store.records import Change, StoreMetrics
from plimsoll.store.sqlite.batch import Batch
from plimsoll.store.sqlite.disk import PASSING, Disk, is_full
from plimsoll.store.sqlite.schema import State

_BATCH_CHANGES = 256  # a longer queue is split: an answer should not wait for a thousand others
_CHECKPOINT_BYTES = 16 * 1024 * 1024
_RETRY_S = 2.0
_FULL = "the disk is full: only deletions are accepted until it has room again"

log = logging.getLogger("plimsoll.api")


class _Write(msgspec.Struct, frozen=True):
    changes: list[Change]
    answer: asyncio.Future[None]


def _is_deletion(change: Change) -> bool:
    """It removes an object, or is a step of its removal: such an object has a time of deletion."""
    return change.kind == "DELETED" or b'"deletionTimestamp":"' in change.body


class Writer:
    """`state_after` makes the state row of a batch, `commit` takes over a durable one, `discard` drops the rest."""

    def __init__(
        self,
        disk: Disk,
        *,
        state_after: Callable[[list[Change]], State],
        commit: Callable[[Batch], None],
        discard: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._state_after = state_after
        self._commit = commit
        self._discard = discard
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._mover = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-checkpoint")
        self._queue: list[_Write] = []
        self._writing: list[_Write] = []
        self._hand_over_due = self._is_closing = False
        self._unmoved_bytes = 0  # about what the WAL has taken since the last checkpoint
        self._deletions_only = _FULL if disk.is_full else ""
        self._failure = ""  # of the last transaction
        self._check_timer: asyncio.TimerHandle | None = None
        self.checkpoint_fault = ""  # why the last checkpoint failed; empty: it did not
        self._move_timer: asyncio.TimerHandle | None = None
        self.refusal: str | None = disk.refusal
        self.meter = StoreMetrics()
        if disk.is_full:
            self._check_later()
        self.on_commit: Callable[[int, float], None] | None = None

    @property
    def fault(self) -> str:
        """Why writes fail now, or are refused; empty while all is well."""
        return self.refusal or self._deletions_only or self._failure

    def check(self, changes: list[Change]) -> None:
        """Raise `WriteFailedError` for changes that would not be written."""
        if self.refusal is not None:
            raise WriteFailedError(self._disk.path, self.refusal, lasting=True)
        if self._deletions_only and not all(map(_is_deletion, changes)):
            raise WriteFailedError(self._disk.path, self._deletions_only, lasting=False)

    async def durable(self, changes: list[Change]) -> None:
        """Return when these and all earlier changes are on disk; raise `WriteFailedError` when they never will be."""
        self.check(changes)
        write = _Write(changes, self._loop.create_future())
        self._queue.append(write)
        self.meter.waiting += len(changes)
        self._hand_over_soon()
        await write.answer

    async def close(self, used: int) -> None:
        """Stop the thread and close the database; `used` is the highest version that was assigned."""
        self._is_closing = True
        for timer in (self._check_timer, self._move_timer):
            if timer is not None:
                timer.cancel()
        if self._queue or self._writing:
            try:
                await self.durable([])
            except WriteFailedError:
                pass  # the callers of these changes have got the error
        try:
            await asyncio.to_thread(self._mover.shutdown)
            if self.refusal is None:
                await self._loop.run_in_executor(self._thread, self._disk.close, used)
            else:
                await self._loop.run_in_executor(self._thread, self._disk.abandon)
        finally:
            self._thread.shutdown()

    def _hand_over_soon(self) -> None:
        # After the callbacks that are ready now: writers that woke together get into one transaction.
        if self._queue and not self._writing and not self._hand_over_due:
            self._hand_over_due = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._hand_over_due = False
        size = taken = 0
        while taken < len(self._queue) and (not taken or size + len(self._queue[taken].changes) <= _BATCH_CHANGES):
            size += len(self._queue[taken].changes)
            taken += 1
        self._writing, self._queue = self._queue[:taken], self._queue[taken:]
        changes = [change for write in self._writing for change in write.changes]
        if not changes:  # everything before them is durable
            self._answer(None)
            return
        batch = Batch(changes, self._state_after(changes))
        future = self._thread.submit(self._write, batch)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._written, batch, done))

    def _write(self, batch: Batch) -> float:
        """In the writer thread."""
        began = time.perf_counter()
        try:
            self._disk.write(batch)
        except sqlite3.Error as error:
            if not is_full(error) or not self._disk.reserve.release():
                raise
            self._deletions_only = _FULL
            if not all(map(_is_deletion, batch.changes)):
                raise
            self._disk.write(batch)
        return time.perf_counter() - began

    def _written(self, batch: Batch, done: Future[float]) -> None:
        error = done.exception()
        if error is not None:
            self._failed(error)
            return
        self._failure = ""
        if self._deletions_only:
            self._check_later()
        seconds, size = done.result(), len(batch.changes)
        self.meter.commits += 1
        self.meter.committed_changes += size
        self.meter.largest_batch = max(self.meter.largest_batch, size)
        self._commit(batch)
        self._answer(None)
        if self.on_commit is not None:
            self.on_commit(size, seconds)
        self._unmoved_bytes += sum(2 * (len(change.body) + 4096) for change in batch.changes)
        if self._unmoved_bytes > _CHECKPOINT_BYTES:
            self._unmoved_bytes = 0
            self._move_soon()

    def _move_soon(self) -> None:
        self._move_timer = None
        self._mover.submit(self._move_log).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._moved, done)
        )

    def _move_log(self) -> None:
        """In the mover's thread, where a slow disk blocks no transaction; the writer moves only the small rest."""
        self._disk.move_log()
        self._thread.submit(self._disk.move_rest).result()

    def _moved(self, done: Future[None]) -> None:
        """A checkpoint that failed loses nothing: the WAL stays, and grows until one succeeds or the disk is full."""
        self.meter.checkpoints += 1
        error, before = done.exception(), self.checkpoint_fault
        if error is None:
            self.checkpoint_fault = ""
            if before:
                log.warning("the write-ahead log is moved into %s again", self._disk.path)
            return
        self.meter.failed_checkpoints += 1
        self.checkpoint_fault = (
            f"the write-ahead log cannot be moved into {self._disk.path} and grows: {error}; nothing is lost, and it "
            "is tried again until it succeeds"
        )
        if self.checkpoint_fault != before:
            log.error("%s", self.checkpoint_fault)
        if self._move_timer is None and not self._is_closing:
            self._move_timer = self._loop.call_later(_RETRY_S, self._move_soon)

    def _failed(self, error: BaseException) -> None:
        code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
        lasting = code is None or (code & 0xFF not in PASSING and not is_full(error))
        reason = str(error) or repr(error)
        if lasting:
            # What SQLite and the kernel have in memory may differ from the disk, and only a restart can tell.
            self.refusal = reason
        else:
            self._failure = reason
            self._check_later()
        self.meter.failed_commits += 1
        self._discard()
        # Those behind it in the queue were decided on states that will never be stored.
        self._writing, self._queue = self._writing + self._queue, []
        self._answer(lambda: WriteFailedError(self._disk.path, reason, lasting=lasting))

    def _check_later(self) -> None:
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(_RETRY_S, self._check_again)

    def _check_again(self) -> None:
        """While writes fail: check whether they would succeed, as there may be no client that tries."""
        self._check_timer = None
        if self.refusal is None and self.fault and not self._is_closing:
            self._thread.submit(self._disk.has_room_again).add_done_callback(
                lambda done: self._loop.call_soon_threadsafe(self._checked, done)
            )

    def _checked(self, done: Future[bool]) -> None:
        if done.exception() is None and done.result():
            self._deletions_only = self._failure = ""
        else:
            self._check_later()

    def _answer(self, error: Callable[[], WriteFailedError] | None) -> None:
        writes, self._writing = self._writing, []
        for write in writes:
            self.meter.waiting -= len(write.changes)
            if write.answer.done():
                continue  # its caller was cancelled
            if error is None:
                write.answer.set_result(None)
            else:
                write.answer.set_exception(error())
        self._hand_over_soon()
