"""All objects in memory, found by key or by prefix in byte order.

One dictionary has the records; each `<group>/<resource>` has its own sorted keys, so that a new pod moves only pods.
Python compares text by code points, which is the byte order of UTF-8, the order of lists (05 B6).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Set

from plimsoll.store.records import Record


def bucket_of(key: str) -> str:
    """`<group>/<resource>/` of a key, or "" for a prefix that is too short to name one resource."""
    resource = key.find("/") + 1
    return key[: key.find("/", resource) + 1] if resource else ""


def key_range(keys: list[str], prefix: str, start_after: str | None) -> tuple[int, int]:
    """The range, in a sorted list, of the keys with this prefix that come after `start_after`."""
    low = bisect_left(keys, prefix)
    high = bisect_left(keys, prefix[:-1] + chr(ord(prefix[-1]) + 1), low) if prefix else len(keys)
    if start_after is not None:
        low = max(low, bisect_right(keys, start_after))
    return low, max(low, high)


class Index:
    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: dict[str, Record] = {}
        self._buckets: dict[str, list[str]] = {}
        for record in records:
            self.records[record.key] = record
            self._buckets.setdefault(bucket_of(record.key), []).append(record.key)
        for keys in self._buckets.values():
            keys.sort()

    def put(self, record: Record) -> None:
        if record.key not in self.records:
            keys = self._buckets.setdefault(bucket_of(record.key), [])
            # Most names are created in ascending order or at random, so the end is checked first.
            if not keys or keys[-1] < record.key:
                keys.append(record.key)
            else:
                keys.insert(bisect_left(keys, record.key), record.key)
        self.records[record.key] = record

    def remove(self, key: str) -> None:
        del self.records[key]
        bucket = bucket_of(key)
        keys = self._buckets[bucket]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._buckets[bucket]

    def keys(self, prefix: str, start_after: str | None = None, limit: int | None = None) -> list[str]:
        bucket = bucket_of(prefix)
        if bucket:
            keys = self._buckets.get(bucket, [])
            if not keys:
                return []
        else:
            keys = sorted(key for name, some in self._buckets.items() if name.startswith(prefix) for key in some)
        low, high = key_range(keys, prefix, start_after)
        return keys[low:high] if limit is None else keys[low : min(high, low + limit)]

    def has_any(self, buckets: Set[str]) -> bool:
        return not self._buckets.keys().isdisjoint(buckets)

    def count(self, prefix: str, start_after: str | None = None) -> int:
        if not prefix and start_after is None:
            return len(self.records)
        bucket = bucket_of(prefix)
        if bucket:
            keys = self._buckets.get(bucket)
            if not keys:
                return 0
            low, high = key_range(keys, prefix, start_after)
            return high - low
        if start_after is not None:
            return len(self.keys(prefix, start_after))
        return sum(len(keys) for name, keys in self._buckets.items() if name.startswith(prefix))


class Parts:
    """The keys of one resource by a value of its objects: the pods of each node. Objects without one are left out."""

    def __init__(self, value_of: Callable[[bytes], str], records: Iterable[Record]) -> None:
        self._value_of = value_of
        self._values: dict[str, str] = {}
        self._keys: dict[str, set[str]] = {}
        for record in records:
            self.put(record)

    def again(self, records: Iterable[Record]) -> Parts:
        """The same of other records."""
        return Parts(self._value_of, records)

    def put(self, record: Record) -> None:
        value = self._value_of(record.body)
        if self._values.get(record.key, "") != value:
            self.remove(record.key)
            if value:
                self._values[record.key] = value
                self._keys.setdefault(value, set()).add(record.key)

    def remove(self, key: str) -> None:
        value = self._values.pop(key, "")
        if value:
            keys = self._keys[value]
            keys.discard(key)
            if not keys:
                del self._keys[value]

    def keys(self, value: str, prefix: str) -> list[str]:
        return sorted(key for key in self._keys.get(value, ()) if key.startswith(prefix))
