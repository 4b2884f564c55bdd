"""The window of history in memory, and the watches that read from it.

Every change is in one feed of all changes and in the feed of its resource. A watch is a position in a feed: it owns no
buffer, so a watcher that sends slowly costs nothing, and when the window has moved past its position it gets
`ExpiredError`. A watch is registered with its feed only while it waits; a new change that concerns it wakes it, any
other advances its position. Nothing has to be unregistered, and a cancelled wait loses nothing.

Thousands of watches may each concern a small part of a resource, as those of nodes do, which watch their own pods. With
a function that names the parts of a change (`values_of`), a change is offered only to the watches of its parts.

A watcher that can take changes without waiting passes a `push`: it is called with them during the wait, and a change
for thousands of watchers wakes no tasks. Other work of the event loop runs between a few milliseconds of such calls.

Parts of this process that want every change of a resource, as a dozen controllers do of pods, are `Follower`s: one call
for all changes of a commit, behind the watches.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import msgspec

from plimsoll.store.errors import ExpiredError
from plimsoll.store.index import bucket_of
from plimsoll.store.records import Change, History

# The parts of its resource that a change concerns, before it and after it: of a pod, its node.
ValuesOf = Callable[[Change], Collection[str]]
# Takes changes at once. False: not these, and the wait ends with them.
Push = Callable[[list[Change]], bool]

# A watch that is far behind is served in pieces, so that it keeps little outside the window.
PIECE = 256
# How many of the newest changes keep what the layer above has computed for all watchers.
SHARED = 256
PUSH_S = 0.002  # of pushing, before the event loop does something else
# What a change costs in memory besides its bodies: the struct, its numbers, its key, its positions in two feeds.
_OVERHEAD_BYTES = 300


class Follower(msgspec.Struct, frozen=True, eq=False):
    """`take` gets all changes; `again` is called where they are unknown, so that it lists what there is."""

    take: Callable[[Sequence[Change]], None]
    again: Callable[[], None]


class Feed:
    """Changes in version order; `base` is how many have left the window since the start."""

    def __init__(self) -> None:
        self.followers: list[Follower] = []
        self.changes: list[Change] = []
        self.base = 0
        self.values_of: ValuesOf | None = None
        self._waiting: dict[str, set[Watch]] = {}  # by their value; those of all changes have none

    @property
    def end(self) -> int:
        return self.base + len(self.changes)

    def position_after(self, version: int) -> int:
        return self.base + bisect_right(self.changes, version, key=_version)

    def append(self, changes: Sequence[Change]) -> None:
        start = self.end
        self.changes += changes
        end = self.end
        for watch in self._waiting.get("", ()):
            watch.offer(changes, end)
        if self.values_of is not None and len(self._waiting) > ("" in self._waiting):
            for change in changes:
                for value in self.values_of(change):
                    for watch in self._waiting.get(value, ()) if value else ():
                        watch.offer_one(change, start)

    def waiting(self) -> Iterator[Watch]:
        for watches in self._waiting.values():
            yield from watches

    def wait(self, watch: Watch) -> None:
        self._waiting.setdefault(watch.value, set()).add(watch)

    def leave(self, watch: Watch) -> None:
        watches = self._waiting[watch.value]
        watches.discard(watch)
        if not watches:
            del self._waiting[watch.value]

    def drop(self, count: int) -> None:
        del self.changes[:count]
        self.base += count


def _version(change: Change) -> int:
    return change.version


def history_bytes(change: Change) -> int:
    """What only the history keeps in memory: the new body is the current object's or the next change's `before`."""
    before = len(change.before) if change.before is not None else 0
    return before + _OVERHEAD_BYTES + (len(change.body) if change.kind == "DELETED" else 0)


class Feeds:
    """The feed of everything, the feeds of single resources, and their common bounds."""

    def __init__(self, limits: History, oldest: int, changes: Sequence[Change]) -> None:
        self._limits = limits
        self._slack = max(1, limits.events // 16)  # dropped in groups, so that trimming costs little per change
        self._history_bytes = 0
        self.oldest = oldest
        self.all = Feed()
        self.by_bucket: dict[str, Feed] = {}
        self._due: deque[Callable[[], None]] = deque()  # calls of watches and followers that have changes to take
        self._is_pushing = False
        self.append(changes)

    def of(self, prefix: str) -> Feed:
        bucket = bucket_of(prefix)
        return self.by_bucket.setdefault(bucket, Feed()) if bucket else self.all

    def append(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        everything = self.all.changes
        for change in everything[-SHARED:][: len(changes)] if len(everything) >= SHARED else ():
            change.shared = None
        grouped: dict[str, list[Change]] = {}
        for change in changes:
            grouped.setdefault(bucket_of(change.key), []).append(change)
            self._history_bytes += history_bytes(change)
        grown = [(self.all, changes), *((self.of(bucket), some) for bucket, some in grouped.items())]
        for feed, some in grown:
            feed.append(some)
        for feed, some in grown:
            for follower in feed.followers:
                self.call_soon(partial(follower.take, some))
        self._trim()

    def _trim(self) -> None:
        changes = self.all.changes
        surplus = len(changes) - self._limits.events
        if surplus < self._slack and self._history_bytes <= self._limits.bytes:
            return
        drop = max(surplus, 0)
        kept = self._history_bytes - sum(map(history_bytes, changes[:drop]))
        # The same slack for bytes: go down to 15/16 of the bound.
        goal = self._limits.bytes - self._limits.bytes // 16 if kept > self._limits.bytes else self._limits.bytes
        while kept > goal and drop < len(changes):
            kept -= history_bytes(changes[drop])
            drop += 1
        if not drop:
            return
        dropped: dict[str, int] = {}
        for change in changes[:drop]:
            bucket = bucket_of(change.key)
            dropped[bucket] = dropped.get(bucket, 0) + 1
        self.oldest = changes[drop - 1].version
        self._history_bytes = kept
        self.all.drop(drop)
        for bucket, count in dropped.items():
            self.by_bucket[bucket].drop(count)

    def expire(self, oldest: int) -> None:
        """Forget the history: every watch has fallen behind."""
        self.oldest = oldest
        self._history_bytes = 0
        for feed in (self.all, *self.by_bucket.values()):
            feed.drop(len(feed.changes))
            feed.base += 1  # also behind a watch that has read everything
            for watch in feed.waiting():
                watch.end()
            for follower in feed.followers:
                self.call_soon(follower.again)

    def call_soon(self, take: Callable[[], None]) -> None:
        self._due.append(take)
        if not self._is_pushing:
            self._is_pushing = True
            asyncio.get_running_loop().call_soon(self._push_some)

    def _push_some(self) -> None:
        end = time.perf_counter() + PUSH_S
        try:
            while self._due:
                self._due.popleft()()
                if time.perf_counter() >= end:
                    break
        finally:  # an exception of one watcher affects no other
            self._is_pushing = bool(self._due)
            if self._due:
                asyncio.get_running_loop().call_soon(self._push_some)

    def end_watches(self) -> None:
        for feed in (self.all, *self.by_bucket.values()):
            for watch in feed.waiting():
                watch.settle()
                watch.end()


class Watch:
    """Changes of keys with one prefix, in version order, each exactly once: `async for change in watch`.

    Or take what there is in one go: `await watch.changes()`. Both raise `ExpiredError` when the watcher has fallen
    behind the history; both may be cancelled (timeouts) at any time without losing a change. Iteration ends when the
    store closes.
    """

    def __init__(
        self, feeds: Feeds, prefix: str, after: int, newest: Callable[[], int | None], value: str = ""
    ) -> None:
        """With a `value` that the feed knows, changes without it may be left out."""
        self._feeds = feeds
        self._feed = feeds.of(prefix)
        self.value = value if self._feed.values_of is not None else ""
        self._prefix = prefix
        self._after = after
        self._newest = newest
        self._position = self._feed.position_after(after)
        self._taken: list[Change] = []  # what `async for` has taken and not yet returned, newest first
        self._seen = after
        self._woken: asyncio.Future[None] | None = None
        self._push: Push | None = None
        self._push_due = False
        self._is_behind = False  # of a watch with a value: it was offered what it has not taken yet
        self._refused: list[Change] = []  # by `push`; they are returned next

    @property
    def version(self) -> int:
        """Every change up to here that concerns this watch has been returned: the version of a bookmark."""
        newest = self._newest()
        waits = self._taken or self._refused
        if newest is not None and not waits and self._position == self._feed.end:
            return max(newest, self._seen)
        return self._seen

    async def changes(self, push: Push | None = None) -> list[Change]:
        """At least one change, at most a few hundred, waiting for it; empty only when the store has closed.

        Changes that arrive during the wait are passed to `push` as long as it takes them; they are not returned then.
        """
        while not (changes := self._next()):
            if self._newest() is None:
                return []
            self._woken = asyncio.get_running_loop().create_future()
            self._push = push
            self._feed.wait(self)
            try:
                await self._woken
            except asyncio.CancelledError:
                if self._woken.cancelled():
                    self.settle()
                raise
            finally:
                self._feed.leave(self)
                self._woken = self._push = None
        self._seen = changes[-1].version
        return changes

    def ready(self) -> list[Change]:
        """The next changes without waiting, at most a few hundred; empty if there are none yet."""
        changes = self._next()
        if changes:
            self._seen = changes[-1].version
        return changes

    def _next(self) -> list[Change]:
        changes, self._refused = self._refused, []
        return changes or self._take()

    def push_now(self) -> None:
        self._push_due = False
        if self._push is None or self._woken is None or self._woken.done():
            return  # the wait is over: what there is will be taken
        changes: list[Change] = []
        is_taken = True
        try:
            while is_taken and (changes := self._take()):
                is_taken = False
                is_taken = self._push(changes)
                self._seen = changes[-1].version if is_taken else self._seen
        except ExpiredError:
            changes, is_taken = [], False  # the task gets it, too
        finally:  # whatever stopped it, the task continues from there
            if not is_taken:
                self._refused = changes
                self._woken.set_result(None)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        if not self._taken:
            before = self._seen
            self._taken = await self.changes()
            self._seen = before
            if not self._taken:
                raise StopAsyncIteration
            self._taken.reverse()
        change = self._taken.pop()
        self._seen = change.version
        return change

    def _take(self) -> list[Change]:
        feed, prefix, after = self._feed, self._prefix, self._after
        if self._position < feed.base:
            raise ExpiredError(self._seen, self._feeds.oldest)
        changes: list[Change] = []
        for change in feed.changes[self._position - feed.base :]:
            self._position += 1
            if change.version > after and change.key.startswith(prefix):
                changes.append(change)
                if len(changes) == PIECE:
                    break
        else:
            self._is_behind = False
        return changes

    def offer(self, changes: Sequence[Change], end: int) -> None:
        """Called by the feed while this watch waits: its position was the end before these changes."""
        if self._woken is None or self._woken.done():
            return
        for change in changes:
            if change.version > self._after and change.key.startswith(self._prefix):
                if self._push is None:
                    self._woken.set_result(None)
                elif not self._push_due:
                    self._push_due = True
                    self._feeds.call_soon(self.push_now)
                return
        if not self._push_due:  # else its position is where the due changes begin
            self._position = end

    def offer_one(self, change: Change, start: int) -> None:
        """The same for a watch with a value. All changes before `start` that it was not offered do not concern it."""
        if self._is_behind or change.version <= self._after or not change.key.startswith(self._prefix):
            return
        self._position, self._is_behind = start, True
        if self._woken is None or self._woken.done():
            return  # the wait is ending
        if self._push is None:
            self._woken.set_result(None)
        elif not self._push_due:
            self._push_due = True
            self._feeds.call_soon(self.push_now)

    def settle(self) -> None:
        """At the end of a wait: what a watch with a value was not offered does not concern it."""
        if self.value and not self._is_behind:
            self._position = self._feed.end

    def end(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
