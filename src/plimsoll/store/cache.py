"""The watch cache: all objects and a window of history in memory, fed by the log. Reads and watches use nothing else.

Everything is called on one event loop. Reads are plain functions and see only what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Protocol

from plimsoll.store.errors import ExpiredError
from plimsoll.store.feed import Feeds, Follower, ValuesOf, Watch
from plimsoll.store.index import Index, Parts, bucket_of, key_range
from plimsoll.store.records import Change, History, Record

Records = list[Record]
_Keys = list[str]  # `list` is a method below
Gaps = tuple[tuple[int, int], ...]


class Counted(Protocol):
    @property
    def end(self) -> int:
        """Grows with every change."""
        ...


class WatchCache:
    def __init__(
        self,
        records: Iterable[Record],
        changes: Sequence[Change],
        history: History,
        *,
        version: int,
        oldest: int,
        gaps: Gaps = (),
    ) -> None:
        self._index = Index(records)
        self._feeds = Feeds(history, oldest, changes)
        self._gaps = gaps
        self._version = version
        self._closing = False
        self._parts: dict[str, Parts] = {}  # of divided resources

    @property
    def version(self) -> int:
        """The newest committed resourceVersion."""
        return self._version

    @property
    def oldest(self) -> int:
        """The oldest version that `watch` and `list_at` still know."""
        return self._feeds.oldest

    @property
    def gaps(self) -> Gaps:
        """Pairs of versions: those between them were never committed, or lost."""
        return self._gaps

    def get(self, key: str) -> Record | None:
        return self._index.records.get(key)

    def list(self, prefix: str, *, start_after: str | None = None, limit: int | None = None) -> tuple[int, Records]:
        """The store's version and the records with this prefix in byte order of keys, from behind `start_after` on."""
        records = self._index.records
        return self._version, [records[key] for key in self._index.keys(prefix, start_after, limit)]

    def list_at(
        self, prefix: str, version: int, *, start_after: str | None = None, limit: int | None = None
    ) -> tuple[int, Records]:
        """The same at `version` (which it returns); `ExpiredError` where the history does not reach back to it.

        A version that does not exist yet is the caller's to wait for or refuse: ValueError.
        """
        undo = self._undo(prefix, version)
        if not undo:
            return version, self.list(prefix, start_after=start_after, limit=limit)[1]
        records = self._index.records
        keys = self._keys_at(prefix, start_after, undo)[:limit]
        then = (undo[key].record_before() if key in undo else records[key] for key in keys)
        return version, [record for record in then if record is not None]

    def count(self, prefix: str = "", *, start_after: str | None = None, version: int | None = None) -> int:
        """How many records `list` (or with `version` `list_at`) would return without a limit."""
        undo = self._undo(prefix, version) if version is not None else {}
        return len(self._keys_at(prefix, start_after, undo)) if undo else self._index.count(prefix, start_after)

    def has_any(self, resources: Set[str]) -> bool:
        """Whether there are objects of any of these resources, by their prefixes."""
        return self._index.has_any(resources)

    def changes_of(self, prefix: str) -> Counted:
        """Of the resource that a prefix is of: what was computed at the same number of changes is valid."""
        return self._feeds.of(prefix)

    def divide(self, prefix: str, values_of: ValuesOf, value_of: Callable[[bytes], str] | None = None) -> None:
        """From now on watches of this resource may name a value: changes without it do not wake them.

        With the value of an object's body, also lists may (`list_part`).
        """
        self._feeds.of(prefix).values_of = values_of
        if value_of is not None:
            self._parts[bucket_of(prefix)] = Parts(value_of, self.list(prefix)[1])

    def list_part(self, prefix: str, value: str) -> tuple[int, Records]:
        """As `list`, of a divided resource only the records with this value; of others, all."""
        parts = self._parts.get(bucket_of(prefix))
        if parts is None:
            return self.list(prefix)
        return self._version, [self._index.records[key] for key in parts.keys(value, prefix)]

    def watch(self, prefix: str, after: int, value: str = "") -> Watch:
        """All changes of keys with this prefix after version `after`, those in the history first.

        With a `value` only those that have it, and perhaps others (see `divide`).

        Between `list` and `watch` from its version nothing is lost. Raises `ExpiredError` at once where the history
        does not reach back; the watch raises it when its reader falls behind. An `after` in the future just waits.
        """
        self._check_known(after)
        return Watch(self._feeds, prefix, after, lambda: None if self._closing else self._version, value)

    @contextmanager
    def following(
        self, prefix: str, take: Callable[[Sequence[Change]], None], again: Callable[[], None]
    ) -> Iterator[None]:
        """`take` is called with all changes of a resource, or with "" of all, soon after each commit.

        `again` is called at first, and where what led to the state is unknown.
        """
        followers, follower = self._feeds.of(prefix).followers, Follower(take, again)
        followers.append(follower)
        try:
            again()
            yield
        finally:
            followers.remove(follower)

    def history_of(self, key: str, after: int) -> Sequence[Change] | None:
        """The changes of one key after a version; None where the history does not reach back to it."""
        if after < self._feeds.oldest:
            return None
        return [each for each in self._feeds.of(key).changes if each.version > after and each.key == key]

    def _undo(self, prefix: str, version: int) -> dict[str, Change]:
        """Of the keys changed since `version`, the first change: it holds the state of that time."""
        if version > self._version:
            raise ValueError(f"version {version} is above the store's newest, {self._version}")
        self._check_known(version)
        undo: dict[str, Change] = {}
        for change in reversed(self._feeds.of(prefix).changes):
            if change.version <= version:
                break
            if change.key.startswith(prefix):
                undo[change.key] = change
        return undo

    def _keys_at(self, prefix: str, start_after: str | None, undo: dict[str, Change]) -> _Keys:
        keys = [key for key in self._index.keys(prefix, start_after) if key not in undo or undo[key].before is not None]
        gone = [key for key, first in undo.items() if key not in self._index.records and first.before is not None]
        if not gone:
            return keys
        keys += gone
        keys.sort()
        low, high = key_range(keys, prefix, start_after)
        return keys[low:high]

    def _check_known(self, version: int) -> None:
        if version < self._feeds.oldest or any(low < version < high for low, high in self._gaps):
            raise ExpiredError(version, self._feeds.oldest)

    # --- for the log ---

    def apply(self, changes: Sequence[Change], version: int, gaps: Gaps = ()) -> None:
        """Take over durable changes; `version` is that of the last one, or a later one that changed nothing here."""
        self._version = version
        self._gaps = gaps
        for change in changes:
            record, parts = change.record_after(), self._parts.get(bucket_of(change.key))
            if record is not None:
                self._index.put(record)
                if parts is not None:
                    parts.put(record)
            else:
                self._index.remove(change.key)
                if parts is not None:
                    parts.remove(change.key)
        self._feeds.append(changes)

    def replace(self, records: Iterable[Record], version: int) -> None:
        """Start again from this state: what led to it is unknown, so every watch gets `ExpiredError`."""
        self._index = Index(records)
        self._parts = {each: parts.again(self.list(each)[1]) for each, parts in self._parts.items()}
        self._version = version
        self._gaps = ()
        self._feeds.expire(version)
