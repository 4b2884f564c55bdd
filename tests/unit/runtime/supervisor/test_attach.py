"""Attached readers: each gets everything, a slow one sets the pace, one that does not read is closed."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from plimsoll.runtime.supervisor import attach
from plimsoll.runtime.supervisor.attach import OutputReaders
from plimsoll.runtime.supervisor.loop import Handler, Timer


class PlayedLoop:
    """Handlers and timers are called by the test."""

    def __init__(self) -> None:
        self.handlers: dict[int, tuple[Handler | None, Handler | None]] = {}
        self.timers: list[Timer] = []

    def watch(self, fd: int, readable: Handler | None, writable: Handler | None = None) -> None:
        self.handlers[fd] = (readable, writable)

    def after(self, delay_s: float, action: Handler) -> Timer:
        assert delay_s == attach.STALLED_S
        self.timers.append(Timer(delay_s, action))
        return self.timers[-1]


class World:
    def __init__(self) -> None:
        self.loop, self.is_paused = PlayedLoop(), False
        self.readers = OutputReaders(self.loop, self._set(True), self._set(False))  # type: ignore[arg-type]

    def _set(self, value: bool) -> Callable[[], None]:
        def change() -> None:
            self.is_paused = value

        return change

    def attached(self) -> tuple[int, int]:
        """Our end, and the supervisor's."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self.readers.add(theirs)
        return ours, theirs


def _read(fd: int) -> bytes:
    data = b""
    try:
        while piece := os.read(fd, 1 << 20):
            data += piece
    except BlockingIOError:
        return data + b"..."  # more may come
    return data


def test_every_reader_gets_everything_until_the_end() -> None:
    world = World()
    first, _ = world.attached()
    world.readers.take(b"one ")
    second, _ = world.attached()
    world.readers.take(b"two")
    world.readers.end()
    assert (_read(first), _read(second)) == (b"one two", b"two")
    late, _ = world.attached()
    assert _read(late) == b""


def test_a_full_pipe_pauses_the_stream_and_loses_nothing() -> None:
    world = World()
    ours, theirs = world.attached()
    data = os.urandom(100_000)  # more than a pipe takes
    world.readers.take(data)
    assert world.is_paused
    got = os.read(ours, 1 << 20)
    writable = world.loop.handlers[theirs][1]
    assert writable is not None
    writable()
    assert not world.is_paused
    world.readers.end()
    assert got + _read(ours) == data


def test_what_is_left_at_the_end_is_still_delivered() -> None:
    world = World()
    ours, theirs = world.attached()
    data = os.urandom(100_000)
    world.readers.take(data)
    world.readers.end()
    got = os.read(ours, 1 << 20)
    writable = world.loop.handlers[theirs][1]
    assert writable is not None
    writable()
    assert got + _read(ours) == data


def test_a_reader_that_takes_nothing_is_closed_and_the_stream_goes_on() -> None:
    world = World()
    world.attached()
    world.readers.take(bytes(100_000))
    assert world.is_paused
    (timer,) = world.loop.timers
    assert timer.action is not None
    timer.action()
    assert not world.is_paused and len(world.readers) == 0


@pytest.mark.parametrize("how", ["notified", "at the next output"])
def test_a_reader_that_has_left_is_forgotten(how: str) -> None:
    world = World()
    ours, theirs = world.attached()
    os.close(ours)
    if how == "notified":
        readable = world.loop.handlers[theirs][0]
        assert readable is not None
        readable()
    else:
        world.readers.take(b"more")
    assert len(world.readers) == 0
