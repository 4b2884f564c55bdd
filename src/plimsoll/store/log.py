"""What a store writes to: the log makes changes durable and feeds the watch cache with them, in version order.

There are two drivers. `sqlite` is for one server and its own disk: a change is decided once, on the newest state, even
one that is still on its way to the disk. `etcd` is for several servers: a change is conditional on the state that it
was decided on, and decided again if another server was faster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from plimsoll.store.fence import Fence
from plimsoll.store.records import Decision, Record, StoreMetrics

DecideMany = Callable[[list[Record | None], list[int]], Sequence[Decision]]


class Log(Protocol):
    meter: StoreMetrics

    @property
    def is_shared(self) -> bool:
        """Whether other servers write to it."""
        ...

    @property
    def fault(self) -> str:
        """Why writes fail or will, or what was lost before the start; empty while all is well."""
        ...

    def observe_commits(self, observer: Callable[[int, float], None]) -> None:
        """Call it on the loop after each commit with its number of changes and its seconds."""
        ...

    def change_many(self, keys: Sequence[str], decide: DecideMany) -> Awaitable[list[Record | None]]:
        """See `Store.change_many`."""
        ...

    async def fresh(self) -> bool:
        """Wait until the cache has all that any server has acknowledged before this call.

        False where that cannot be known now: what is read then may be old.
        """
        ...

    async def last_term(self, name: str) -> int:
        """When the newest term of a leader began; 0 where there was none."""
        ...

    async def begin_term(self, name: str, last: int) -> Fence | None:
        """Make the writes of an earlier leader impossible; None where another term has begun since `last`."""
        ...

    async def close(self) -> None:
        """Wait for what is on its way, then end."""
        ...
