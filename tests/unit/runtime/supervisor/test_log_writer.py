"""CRI logs: lines, parts, stamps, rotation, and paths that want to leave their place."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.runtime.supervisor.log_writer import (
    BURST_S,
    PART_BYTES,
    SHARE,
    LogFile,
    LogPace,
    LogStream,
    UnsafeLogPathError,
    cut,
    log_place,
    rotated_name,
    stamp,
)


@pytest.mark.parametrize(
    ("data", "lines", "rest"),
    [
        pytest.param(b"", [], b"", id="nothing"),
        pytest.param(b"a\n\nb", [(b"F ", b"a"), (b"F ", b"")], b"b", id="an empty line and a rest"),
        pytest.param(b"x" * PART_BYTES, [(b"P ", b"x" * PART_BYTES)], b"", id="a full part"),
        pytest.param(b"x" * PART_BYTES + b"y\n", [(b"P ", b"x" * PART_BYTES), (b"F ", b"y")], b"", id="long line"),
        pytest.param(b"x" * PART_BYTES + b"\n", [(b"F ", b"x" * PART_BYTES)], b"", id="just not too long"),
    ],
)
def test_cut(data: bytes, lines: list[tuple[bytes, bytes]], rest: bytes) -> None:
    assert cut(data) == (lines, rest)


@given(st.lists(st.binary(max_size=PART_BYTES * 2), max_size=6))
def test_nothing_is_lost_however_it_is_written(chunks: list[bytes]) -> None:
    found, rest = b"", b""
    for chunk in chunks:
        lines, rest = cut(rest + chunk)
        assert all(len(line) <= PART_BYTES for _, line in lines)
        found += b"".join(line + (b"\n" if tag == b"F " else b"") for tag, line in lines)
    assert found + rest == b"".join(chunks)


def test_stamp() -> None:
    assert stamp(1_475_713_029_000_000_007) == b"2016-10-06T00:17:09.000000007Z"


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ([], "0.log.20260102-150405"),
        (["0.log.20250102-150405"], "0.log.20260102-150405"),
        (["0.log.20260102-150405"], "0.log.20260102-150405.001"),
        (["0.log.20260102-150405.007", "0.log.20260102-150405.008"], "0.log.20260102-150405.009"),
        (["0.log.20260102-150405.gz"], "0.log.20260102-150405.001"),
    ],
)
def test_rotated_name(there: list[str], name: str) -> None:
    assert rotated_name("0.log", time.strptime("2026-01-02 15:04:05", "%Y-%m-%d %H:%M:%S"), there) == name


def test_rotation_keeps_the_newest_and_no_more_than_allowed(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path), "c/0.log", max_bytes=100, max_files=3)
    for number in range(40):
        log.write(b"%030d\n" % number)
    log.close()
    files = sorted((tmp_path / "c").iterdir(), key=lambda path: (path.name == "0.log", path.name))
    assert len(files) == 3
    kept = [int(line) for path in files for line in path.read_text().split()]
    assert kept == list(range(40))[-len(kept) :] and kept[-1] == 39
    assert all(path.stat().st_size <= 131 for path in files)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a//x", ".", "", "a/\0", ".."])
def test_paths_that_leave_their_place(path: str) -> None:
    with pytest.raises(UnsafeLogPathError):
        log_place("/logs", path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/c").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"directory|symbolic"):
        LogFile(str(tmp_path / "logs"), "c/0.log")
    (tmp_path / "logs/0.log").symlink_to(tmp_path / "outside/file")
    with pytest.raises(OSError, match="symbolic"):
        LogFile(str(tmp_path / "logs"), "0.log")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_stream_ends_with_what_is_left(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    log = LogFile(str(tmp_path), "0.log")
    stream = LogStream(reading, "stderr", log)
    os.write(writing, b"one\ntw")
    assert stream.read()
    os.write(writing, b"o")
    os.close(writing)
    stream.drain()
    text = (tmp_path / "0.log").read_text()
    assert re.sub(r"^\S+ ", "", text, flags=re.MULTILINE) == "stderr F one\nstderr P two\n"


def test_a_full_disk_is_reported_and_does_not_raise() -> None:
    log = LogFile.__new__(LogFile)
    log._place, log._fd, log._size, log.max_bytes, log.max_files = ("/dev", [], "full"), -1, 0, 0, 5
    log._fd = os.open("/dev/full", os.O_WRONLY)
    log.write(b"lost\n")
    assert log.error == "log output is lost: No space left on device"
    log.close()


def test_a_burst_is_free_and_a_flood_waits_for_what_it_used() -> None:
    pace = LogPace(0.0)
    assert pace.pause_s(BURST_S, 0.0, 1) == 0
    assert pace.pause_s(0.03, 0.0, 1) == pytest.approx(0.03 / SHARE)
    assert pace.pause_s(0.0, 0.03 / SHARE, 1) == pytest.approx(0)


def test_a_quiet_container_earns_no_more_than_one_burst() -> None:
    pace = LogPace(0.0)
    assert pace.pause_s(BURST_S + 0.1, 1000.0, 1) == pytest.approx(0.1 / SHARE)


@given(st.lists(st.floats(0.001, 0.1), min_size=50, max_size=200), st.integers(1, 10))
def test_containers_that_flood_together_get_the_share_of_one(portions: list[float], sharers: int) -> None:
    pace, now_s = LogPace(0.0), 0.0
    for used_s in portions:
        now_s += used_s
        now_s += pace.pause_s(used_s, now_s, sharers)
    assert sum(portions) <= BURST_S + now_s * SHARE / sharers + 1e-6
