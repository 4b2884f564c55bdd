"""An event loop with two lanes: a crowd is read a few at a time, in turn, and the others at once."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from plimsoll.net import lanes
from plimsoll.net.lanes import AT_ONCE, LanedLoop, Lanes, slowing_down

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    stack.enter_context(near)
    stack.enter_context(far)
    near.setblocking(False)
    return near, far


def test_a_crowd_has_turns_and_others_are_always_reported(stack: ExitStack) -> None:
    selector = stack.enter_context(closing(Lanes()))
    crowd = [connected(stack) for _ in range(5 * AT_ONCE)]
    for near, far in crowd:
        selector.register(near.fileno(), READ, "crowd")
        selector.slow_down(near.fileno())
        far.send(b"x")  # is never read, so each stays ready
    near, far = connected(stack)
    selector.register(near.fileno(), READ, "other")
    far.send(b"x")
    seen: list[int] = []
    for _ in range(5):
        ready = selector.select(0)
        assert [key.data for key, _ in ready].count("other") == 1
        assert all(events == READ for _, events in ready)
        some = [key.fd for key, _ in ready if key.data == "crowd"]
        assert len(some) == AT_ONCE
        seen += some
    assert sorted(seen) == sorted(near.fileno() for near, _ in crowd)  # each once


def test_a_descriptor_can_be_changed_paused_and_removed_in_the_slow_lane(stack: ExitStack) -> None:
    selector = stack.enter_context(closing(Lanes()))
    near, far = connected(stack)
    descriptor = near.fileno()
    selector.slow_down(descriptor)  # not registered: nothing to do
    selector.register(descriptor, READ, "before")
    selector.slow_down(descriptor)
    selector.slow_down(descriptor)
    assert selector.select(0) == []
    assert (selector.get_key(descriptor).data, selector.get_map()[descriptor].events) == ("before", READ)
    selector.modify(descriptor, READ | WRITE, "after")
    assert [(key.data, events) for key, events in selector.select(0)] == [("after", WRITE)]
    far.send(b"x")
    assert [events for _, events in selector.select(0)] == [READ | WRITE]
    far.close()
    selector.modify(descriptor, READ, "end")
    assert [(key.data, events) for key, events in selector.select(0)] == [("end", READ)]
    assert selector.unregister(descriptor).data == "end"
    assert descriptor not in selector.get_map()
    with pytest.raises(KeyError):
        selector.get_key(descriptor)
    selector.register(descriptor, READ, "again")
    assert [key.data for key, _ in selector.select(0)] == ["again"]


def test_connections_of_a_loop_with_lanes() -> None:
    """Both sides are slowed down in the middle of it, one is paused, and descriptors are used again."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slowing_down(asyncio.get_running_loop())(writer.get_extra_info("socket").fileno())
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def exchange(port: int, size: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
        slowing_down(asyncio.get_running_loop())(writer.get_extra_info("socket").fileno())
        writer.write(b"y" * size)
        writer.write_eof()
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
        return len(received)

    async def main() -> list[int]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found: list[int] = []
        for _ in range(3):
            found += await asyncio.gather(*(exchange(port, 300_000 + number) for number in range(3 * AT_ONCE)))
        server.close()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LanedLoop)
        return found

    assert lanes.run(main()) == [300_000 + number for number in range(3 * AT_ONCE)] * 3


def test_other_loops_have_no_lanes() -> None:
    async def main() -> None:
        slowing_down(asyncio.get_running_loop())(0)

    asyncio.run(main())
