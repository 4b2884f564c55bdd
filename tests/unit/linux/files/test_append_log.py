"""The append log: what the next reader gets, also after a kill in the middle of a line."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.linux.files import append_log
from plimsoll.linux.files.append_log import SPARE_BYTES, AppendLog, AppendLogCorruptError

Changes = Mapping[str, bytes | None]
values = st.none() | st.integers(0, 99).map(lambda number: b"%d" % number)
changes = st.dictionaries(st.text(max_size=3), values, max_size=4)


def applied(steps: list[Changes]) -> dict[str, bytes]:
    found: dict[str, bytes | None] = {}
    for each in steps:
        found |= each
    return {name: value for name, value in found.items() if value is not None}


@given(st.lists(changes, min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_every_reader_finds_what_was_written_last(steps: list[Changes], restarts: set[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = AppendLog(Path(directory) / "file")
        for number, each in enumerate(steps):
            if number and number in restarts:
                file = AppendLog(file.path)
                file.read()
            file.write(each)
            assert AppendLog(file.path).read() == applied(steps[: number + 1])


def test_an_incomplete_line_is_dropped(tmp_path: Path) -> None:
    file = AppendLog(tmp_path / "file")
    file.write({"a": b"1"})
    file.write({"b": b"2"})
    before = file.path.stat().st_size
    file.write({"a": None, "c": b'{"more":"text"}'})
    whole = file.path.read_bytes()
    for length in range(before, len(whole)):
        file.path.write_bytes(whole[:length])
        after = AppendLog(file.path)
        assert after.read() == {"a": b"1", "b": b"2"}
        after.write({"d": b"4"})
        assert AppendLog(file.path).read() == {"a": b"1", "b": b"2", "d": b"4"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "line 1: the line is incomplete"),
        (b'[4,{"a":1}', "line 1: the line is incomplete"),
        (b'[4,{"a":1}]\n', "line 1: the checksum is wrong"),
        (b"\0\0\0\n", "line 1: JSON is malformed"),
        (b"[2745614147,{}]\n[3,4]\n", "line 2: the checksum is wrong"),
    ],
)
def test_damage_is_reported(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / "file").write_bytes(text)
    with pytest.raises(AppendLogCorruptError, match=says):
        AppendLog(tmp_path / "file").read()


def test_the_file_is_replaced_before_it_grows_too_large(tmp_path: Path) -> None:
    file = AppendLog(tmp_path / "file")
    value = b'"%b"' % (b"x" * 1000)
    inodes = set()
    for number in range(1000):
        file.write({f"name{number % 10}": value})
        seen = file.path.stat()
        inodes.add(seen.st_ino)
        assert seen.st_size <= 3 * 10 * 1100 + SPARE_BYTES
    assert len(inodes) == 2  # it was replaced, and not each time
    assert seen.st_mode & 0o777 == 0o600


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = AppendLog(tmp_path / "file")
    file.write({"a": b"1", "b": b"2"})
    before = file.path.read_bytes()
    with no_file_longer_than(len(before) + 7), pytest.raises(OSError, match="too large"):
        file.write({"a": b"3", "b": None, "c": b'"much longer than before"'})
    assert file.path.read_bytes() == before
    file.write({"d": b"5"})
    assert AppendLog(file.path).read() == {"a": b"1", "b": b"2", "d": b"5"}


@contextmanager
def full_file_system(place: Path) -> Iterator[Callable[[], None]]:
    """A small one; it is full once the returned function was called."""
    if os.geteuid() != 0:
        pytest.skip("a file system that is full: only root can mount one")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "small", place], check=True)

    def fill() -> None:
        with open(place / "ballast", "wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass

    try:
        yield fill
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_state_of_the_same_size_can_be_written_to_a_full_disk(tmp_path: Path) -> None:
    with full_file_system(tmp_path) as fill:
        file = AppendLog(tmp_path / "file")
        file.write({f"name{number}": b"0" for number in range(100)})
        fill()
        inodes = set()
        for number in range(3000):
            file.write({f"name{number % 100}": b'"%d"' % number})
            inodes.add(file.path.stat().st_ino)
        assert len(inodes) == 2  # appended to, and replaced
        assert AppendLog(file.path).read() == {f"name{n % 100}": b'"%d"' % n for n in range(2900, 3000)}
        with pytest.raises(OSError, match="No space"):
            file.write({"large": b'"%b"' % (b"x" * 1_000_000)})
        file.write({"small": b"1"})
        assert AppendLog(file.path).read()["small"] == b"1"


def test_a_write_succeeds_although_the_other_file_gets_no_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AppendLog(tmp_path / "file").write({"a": b"1"})
    file, calls = AppendLog(tmp_path / "file"), 0
    file.read()
    really = append_log.replace_whole

    def once(path: Path, data: bytes, *, room_bytes: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        really(path, data, room_bytes=room_bytes)

    monkeypatch.setattr(append_log, "replace_whole", once)
    file.write({"a": b"2"})
    assert calls == 2 and AppendLog(file.path).read() == {"a": b"2"}
    file.write({"b": b"3"})
    assert AppendLog(file.path).read() == {"a": b"2", "b": b"3"}


def test_a_file_that_another_process_changed_or_removed_is_replaced(tmp_path: Path) -> None:
    file = AppendLog(tmp_path / "file")
    file.write({"a": b"1"})
    file.path.write_bytes(b"what is this?")
    file.write({"b": b"2"})
    assert AppendLog(file.path).read() == {"a": b"1", "b": b"2"}
    file.path.unlink()
    file.write({"c": b"3"})
    assert AppendLog(file.path).read() == {"a": b"1", "b": b"2", "c": b"3"}


def test_discard_drops_the_entries(tmp_path: Path) -> None:
    AppendLog(tmp_path / "file").write({"a": b"1"})
    file = AppendLog(tmp_path / "file")
    file.read()
    file.discard()
    file.write({"b": b"2"})
    assert AppendLog(file.path).read() == {"b": b"2"}
