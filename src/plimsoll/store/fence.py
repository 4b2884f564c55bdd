"""Writes that only the leader may make: they name the term of the leader, and a shared log compares it.

A part that runs once in a cluster sets `FENCE` around its work; tasks that it starts inherit it. When another server
has begun a term, every write with the old one fails with `FencedError`.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec


class Fence(msgspec.Struct, frozen=True):
    name: str  # of what is led
    key: bytes  # in the log
    revision: int  # at which this term began


FENCE: ContextVar[Fence | None] = ContextVar("plimsoll_fence", default=None)
