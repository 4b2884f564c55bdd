"""Logs in real files: ends, parts, moments, rotation, following. A plain reading of all lines is the judge."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.golang.times import from_unix
from plimsoll.codec.kernel.cri_log import log_line
from plimsoll.node.server.logs import (
    CHUNK,
    LogOptions,
    log_chunks,
    rotated_files,
    since_offset,
    tail_offset,
)
from plimsoll.node.sources.directory_watch import DirectoryWatch

BEGIN_S = 1_700_000_000
BOTH = (b"stdout", b"stderr")


def _time(second: int) -> bytes:
    return from_unix(BEGIN_S + second).encode()


def _line(number: int, stream: bytes = b"stdout", text: bytes | None = None, *, partial: bool = False) -> bytes:
    return log_line(_time(number), stream, b"line %d" % number if text is None else text, partial=partial)


@pytest.fixture
async def watch() -> AsyncIterator[DirectoryWatch]:
    made = DirectoryWatch()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "c").mkdir()
    yield tmp_path / "c" / "0.log"


def put(file: Path, *lines: bytes) -> None:
    file.write_bytes(b"".join(lines))


def move(file: Path, stamp: str) -> None:
    file.rename(f"{file}.{stamp}")


async def _all(file: Path, watch: DirectoryWatch, options: LogOptions) -> bytes:
    return b"".join([each async for each in log_chunks(file, options, lambda: False, watch)])


SMALL = [
    _line(0),
    _line(1, b"stderr"),
    _line(2, text=b"long ", partial=True),
    _line(3, text=b"line"),
    b"not a log line\n",
    _line(4, b"stderr"),
]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        pytest.param(LogOptions(), b"line 0\nline 1\nlong line\nline 4\n", id="all"),
        pytest.param(LogOptions(tail_lines=1), b"line 4\n", id="the last"),
        pytest.param(LogOptions(tail_lines=0), b"", id="none"),
        pytest.param(LogOptions(tail_lines=99), b"line 0\nline 1\nlong line\nline 4\n", id="more than there are"),
        pytest.param(LogOptions(streams=(b"stderr",)), b"line 1\nline 4\n", id="one stream"),
        pytest.param(LogOptions(streams=(b"stdout",), tail_lines=1), b"line", id="the last of one stream"),
        pytest.param(LogOptions(since_ns=(BEGIN_S + 3) * 10**9), b"line\nline 4\n", id="since"),
        pytest.param(LogOptions(limit_bytes=9), b"line 0\nli", id="limited"),
        pytest.param(
            LogOptions(timestamps=True, tail_lines=4),
            b"2023-11-14T22:13:22.000000000Z long line\n2023-11-14T22:13:24.000000000Z line 4\n",
            id="timestamps: one for a line in pieces",
        ),
    ],
)
async def test_a_log_is_shown_as_asked(file: Path, watch: DirectoryWatch, options: LogOptions, shown: bytes) -> None:
    put(file, b"".join(SMALL))
    found = await _all(file, watch, options)
    assert found.rstrip(b"\n") == shown.rstrip(b"\n")


async def test_a_log_that_is_not_there_is_empty(file: Path, watch: DirectoryWatch) -> None:
    assert await _all(file, watch, LogOptions()) == b""
    assert await _all(file.parent / "nowhere" / "0.log", watch, LogOptions(tail_lines=3)) == b""


async def test_an_unfinished_last_line_is_shown(file: Path, watch: DirectoryWatch) -> None:
    put(file, _line(1) + _line(2).rstrip(b"\n"))
    assert await _all(file, watch, LogOptions(tail_lines=1)) == b"line 2\n"


async def test_moved_files_belong_to_the_log(file: Path, watch: DirectoryWatch) -> None:
    put(Path(f"{file}.20230101-000000"), _line(1), _line(2))
    put(Path(f"{file}.20230102-000000"), _line(3))
    put(Path(f"{file}.20230101-000000.gz"), b"\x1f\x8b")
    put(file, _line(4))
    assert [each.name for each in rotated_files(file)] == ["0.log.20230101-000000", "0.log.20230102-000000"]
    assert await _all(file, watch, LogOptions()) == b"line 1\nline 2\nline 3\nline 4\n"
    assert await _all(file, watch, LogOptions(tail_lines=3)) == b"line 2\nline 3\nline 4\n"
    assert await _all(file, watch, LogOptions(since_ns=(BEGIN_S + 3) * 10**9)) == b"line 3\nline 4\n"


@given(
    st.lists(st.tuples(st.sampled_from(BOTH), st.integers(0, CHUNK // 3)), max_size=40),
    st.integers(0, 45),
    st.sampled_from([BOTH, (b"stdout",), (b"stderr",)]),
    st.booleans(),
)
def test_the_end_is_found_backwards(
    lines: list[tuple[bytes, int]], count: int, streams: tuple[bytes, ...], finished: bool
) -> None:
    texts = [_line(number, stream, b"x" * size) for number, (stream, size) in enumerate(lines)]
    data = b"".join(texts)
    if not finished and texts:
        data = data[:-1]
    wanted = [at for at, (stream, _) in enumerate(lines) if stream in streams][-count:] if count else []
    with tempfile.TemporaryFile() as made:
        made.write(data)
        made.flush()
        offset, found = tail_offset(made.fileno(), len(data), count, streams)
    assert found == len(wanted)
    if len(wanted) == count and wanted:
        assert offset == sum(map(len, texts[: wanted[0]]))
    elif wanted:
        assert offset == 0


@given(st.integers(0, 5000), st.integers(-10, 5010))
def test_a_moment_is_found_by_halving(count: int, since: int) -> None:
    texts = [_line(number, text=b"y" * 200) for number in range(count)]
    data = b"".join(texts)
    with tempfile.TemporaryFile() as made:
        made.write(data)
        made.flush()
        offset = since_offset(made.fileno(), len(data), (BEGIN_S + since) * 10**9)
    first = len(texts[0]) if texts else 1
    exact = sum(map(len, texts[: max(0, since)]))
    assert offset <= exact
    assert offset == 0 or data[offset - 1 : offset] == b"\n"
    assert exact - offset <= 3 * CHUNK + first


class _Following:
    """A reader of a log that goes on, and what it has got so far."""

    def __init__(self, file: Path, watch: DirectoryWatch, options: LogOptions) -> None:
        self.running, self.text, self.grown = True, b"", asyncio.Event()
        self._chunks = log_chunks(file, options, lambda: self.running, watch)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aclosing(self._chunks) as chunks:
            async for each in chunks:
                self.text += each
                self.grown.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(60):
            while text not in self.text:
                self.grown.clear()
                await self.grown.wait()

    async def end(self) -> bytes:
        self.running = False
        async with asyncio.timeout(60):
            await self.task
        return self.text


async def test_following_ends_with_the_container_and_loses_nothing(file: Path, watch: DirectoryWatch) -> None:
    put(file, _line(1) + _line(2))
    reader = _Following(file, watch, LogOptions(follow=True, tail_lines=1))
    await reader.until(b"line 2\n")
    with file.open("ab") as writer:
        writer.write(_line(3)[:-3])
        writer.flush()
        writer.write(_line(3)[-3:] + _line(4))
    await reader.until(b"line 4\n")
    with file.open("ab") as writer:
        writer.write(_line(5))
    assert await reader.end() == b"line 2\nline 3\nline 4\nline 5\n"


async def test_following_continues_across_rotation(file: Path, watch: DirectoryWatch) -> None:
    put(file, _line(1))
    reader = _Following(file, watch, LogOptions(follow=True))
    await reader.until(b"line 1\n")
    with file.open("ab") as old:
        move(file, "20230101-000000")
        old.write(_line(2))  # the runtime has not reopened it yet
        old.flush()
        await reader.until(b"line 2\n")
        put(file)
        old.write(_line(3))  # it has made the new one, and finishes what it was writing
    await reader.until(b"line 3\n")
    with file.open("ab") as new:
        new.write(_line(4))
    await reader.until(b"line 4\n")
    assert await reader.end() == b"line 1\nline 2\nline 3\nline 4\n"


async def test_following_waits_for_a_log_to_begin(file: Path, watch: DirectoryWatch) -> None:
    reader = _Following(file, watch, LogOptions(follow=True))
    await asyncio.sleep(0)
    put(file, _line(1))
    await reader.until(b"line 1\n")
    assert await reader.end() == b"line 1\n"


async def test_following_ends_at_the_limit(file: Path, watch: DirectoryWatch) -> None:
    put(file, _line(1))
    reader = _Following(file, watch, LogOptions(follow=True, limit_bytes=4))
    async with asyncio.timeout(60):
        await reader.task
    assert reader.text == b"line"


async def test_two_followers_of_one_directory_are_both_notified(file: Path, watch: DirectoryWatch) -> None:
    put(file, b"")
    readers = [_Following(file, watch, LogOptions(follow=True)) for _ in range(2)]
    await asyncio.sleep(0)
    with file.open("ab") as writer:
        writer.write(_line(1))
    for each in readers:
        await each.until(b"line 1\n")
    assert await readers[0].end() == b"line 1\n"
    with file.open("ab") as writer:
        writer.write(_line(2))
    await readers[1].until(b"line 2\n")
    await readers[1].end()
