"""/logs/: the machine's log directory, in which containers may have made links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.node.server.host_logs import HTML, PIECE_BYTES, host_logs
from plimsoll.node.server.http import HttpStream, Reply


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of the machine")
    made = tmp_path / "log"
    (made / "pods" / "<b>").mkdir(parents=True)
    (made / "pods" / "a:1.log").write_text("line\n")
    (made / "messages").write_bytes(b"x" * (PIECE_BYTES + 1))
    (made / "current").symlink_to("pods/a:1.log")
    (made / "out").symlink_to("../secret")
    (made / "absolute").symlink_to(tmp_path / "secret")
    os.mkfifo(made / "fifo")
    return made


async def _content(top: Path, *names: str) -> bytes:
    found = host_logs(str(top), names, is_directory=False)
    assert isinstance(found, HttpStream)
    return b"".join([piece async for piece in found.pieces])


async def test_files(top: Path) -> None:
    assert await _content(top, "pods", "a:1.log") == await _content(top, "current") == b"line\n"
    assert await _content(top, "messages") == b"x" * (PIECE_BYTES + 1)


def test_directories(top: Path) -> None:
    found = host_logs(str(top), ("pods",), is_directory=True)
    assert isinstance(found, Reply) and (found.status, found.content_type) == (200, HTML)
    links = [line for line in found.body.decode().splitlines() if line.startswith("<a")]
    assert links == ['<a href="%3Cb%3E/">&lt;b&gt;/</a>', '<a href="./a%3A1.log">a:1.log</a>']


@pytest.mark.parametrize(("names", "location"), [((), "logs/"), (("pods", "<b>"), "%3Cb%3E/")])
def test_a_directory_without_a_slash(top: Path, names: tuple[str, ...], location: str) -> None:
    found = host_logs(str(top), names, is_directory=False)
    assert isinstance(found, Reply) and (found.status, found.headers) == (301, (("Location", location),))


@pytest.mark.parametrize(
    "names",
    [
        ("none",),
        ("out",),
        ("absolute",),
        ("..", "secret"),
        ("../secret",),
        ("pods/../../secret",),
        ("fifo",),
        ("a\0b",),
    ],
)
def test_what_is_not_served(top: Path, names: tuple[str, ...]) -> None:
    before = os.listdir("/proc/self/fd")
    found = host_logs(str(top), names, is_directory=False)
    assert isinstance(found, Reply) and (found.status, found.body) == (404, b"404 page not found\n")
    assert len(os.listdir("/proc/self/fd")) == len(before)
