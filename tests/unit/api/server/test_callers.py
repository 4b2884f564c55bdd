"""The order of TLS handshakes: addresses alternate, and of each the newest and the oldest."""

from __future__ import annotations

import socket
from typing import Any, cast

from plimsoll.api.server.callers import Callers


def callers(*waiting: str) -> Callers:
    """`a1`: the first connection of address a."""
    made = Callers()
    for name in waiting:
        made.add(name[0], cast(socket.socket, name))
    return made


def taken(of: Callers, busy: tuple[str, ...] = ()) -> list[Any]:
    order = []
    while (found := of.take(busy)) is not None:
        order.append(found[1])
    return order


def test_the_newest_and_the_oldest_alternate() -> None:
    assert taken(callers("a1", "a2", "a3", "a4", "a5")) == ["a5", "a1", "a4", "a2", "a3"]


def test_addresses_alternate() -> None:
    """A crowd at `a` that was there first delays `b` by one connection."""
    assert taken(callers("a1", "a2", "a3", "b1", "c1", "c2")) == ["a3", "b1", "c2", "a1", "c1", "a2"]


def test_a_busy_address_waits() -> None:
    some = callers("a1", "a2", "b1")
    assert taken(some, ("a",)) == ["b1"]
    assert len(some) == 2
    assert taken(some) == ["a2", "a1"]
    assert not some


def test_the_surplus_is_the_crowds() -> None:
    some = callers("b1", "a1", "a2", "a3", "c1")
    assert some.take_surplus() == cast(socket.socket, "a1")
    assert sorted(cast("list[str]", list(some))) == ["a2", "a3", "b1", "c1"]
