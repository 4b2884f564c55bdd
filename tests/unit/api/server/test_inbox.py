"""Received data in rounds of the event loop: a bounded time in each, alternating clients, nothing lost."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.api.server import inbox as inbox_module
from plimsoll.api.server.inbox import PIECE_BYTES, Inbox


class Played:
    """A connection whose data takes a millisecond to parse, by the clock of the test."""

    def __init__(self, shown_name: str, world: World) -> None:
        self.shown_name, self._world, self.is_paused = shown_name, world, False

    def parse(self, data: bytes) -> None:
        self._world.now_s += 0.001
        self._world.parsed.append((self.shown_name, data))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1.0
        self.parsed: list[tuple[str, bytes]] = []
        monkeypatch.setattr(inbox_module.time, "perf_counter", lambda: self.now_s)


async def test_a_crowd_is_parsed_in_rounds_and_another_client_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "PIECE_S", 0.0035)
    world, inbox = World(monkeypatch), Inbox()
    crowd = [Played("eve", world) for _ in range(20)]
    for number, connection in enumerate(crowd):
        inbox.receive(connection, b"%d" % number)
    other = Played("bob", world)
    inbox.receive(other, b"mine")
    assert [data for _, data in world.parsed] == [b"0", b"1", b"2", b"3"], "this round has no more time"
    assert [connection.is_paused for connection in crowd] == [False] * 4 + [True] * 16
    await asyncio.sleep(0)
    assert ("bob", b"mine") in world.parsed[4:8]
    assert not other.is_paused
    for _ in range(10):
        await asyncio.sleep(0)
    assert [data for name, data in world.parsed if name == "eve"] == [b"%d" % number for number in range(20)]
    assert not any(connection.is_paused for connection in crowd)


async def test_one_client_is_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world, inbox = World(monkeypatch), Inbox()
    alone = Played("eve", world)
    for number in range(5):
        inbox.receive(alone, b"%d" % number)
        assert world.parsed[-1][1] == b"%d" % number
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_lot_from_one_connection_is_parsed_in_pieces_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one byte: 32 KiB of them took 15 ms of one round."""
    world, inbox = World(monkeypatch), Inbox()
    flooding, other = Played("eve", world), Played("bob", world)
    text = b"".join(b"%06d" % number for number in range(6_000))
    inbox.receive(flooding, text)
    assert [len(data) for _, data in world.parsed] == [PIECE_BYTES], "a piece of a millisecond, and this round is over"
    assert flooding.is_paused
    inbox.receive(other, b"mine")
    inbox.receive(flooding, b"end")  # the transport had read it already
    for _ in range(20):
        before = len(world.parsed)
        await asyncio.sleep(0)
        assert len(world.parsed) <= before + 1
    assert world.parsed.index(("bob", b"mine")) < 4
    assert b"".join(data for name, data in world.parsed if name == "eve") == text + b"end"
    assert not flooding.is_paused
