"""Files that change as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.node.volumes.atomic_writer import publish
from plimsoll.rules.lifecycle.volumes import VolumeFile


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[..., bool]]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield lambda *files: publish(fd, files)
    os.close(fd)


def shown(directory: Path) -> dict[str, bytes]:
    """As a container lists it, following links."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for top in directory.iterdir()
        if not top.name.startswith("..")
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.is_file()
    }


def hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith(".."))


def test_first_change_and_nothing_new(place: Callable[..., bool], tmp_path: Path) -> None:
    assert place(VolumeFile("a", b"1"), VolumeFile("d/e/f", b"2", 0o400))
    assert shown(tmp_path) == {"a": b"1", "d/e/f": b"2"}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "d/e/f").stat().st_mode & 0o777 == 0o400
    before = os.readlink(tmp_path / "..data")
    assert not place(VolumeFile("a", b"1"), VolumeFile("d/e/f", b"2", 0o400))
    assert os.readlink(tmp_path / "..data") == before
    assert place(VolumeFile("b", b"3"), VolumeFile("a", b"11"))
    assert shown(tmp_path) == {"a": b"11", "b": b"3"}
    assert len(hidden(tmp_path)) == 2, "..data and what it leads to"
    assert place()
    assert shown(tmp_path) == {}
    assert not place()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param([VolumeFile("a", b"2")], id="data"),
        pytest.param([VolumeFile("a", b"1", 0o600)], id="mode"),
        pytest.param([VolumeFile("a", b"1"), VolumeFile("b", b"")], id="one more"),
        pytest.param([], id="one less"),
    ],
)
def test_what_is_a_change(place: Callable[..., bool], tmp_path: Path, change: list[VolumeFile]) -> None:
    place(VolumeFile("a", b"1"))
    assert place(*change)
    assert shown(tmp_path) == {file.path: file.data for file in change}


def test_a_reader_never_sees_a_mixture(place: Callable[..., bool], tmp_path: Path) -> None:
    """A process that has the old directory open keeps the whole old set until it is replaced under the new name."""
    place(VolumeFile("a", b"old"), VolumeFile("b", b"old"))
    old = os.open(tmp_path / "..data", os.O_RDONLY | os.O_DIRECTORY)
    opened = os.open("a", os.O_RDONLY, dir_fd=old)
    place(VolumeFile("a", b"new"), VolumeFile("b", b"new"))
    assert os.read(opened, 10) == b"old"
    assert shown(tmp_path) == {"a": b"new", "b": b"new"}
    os.close(opened)
    os.close(old)


def test_after_a_kill_in_the_middle(place: Callable[..., bool], tmp_path: Path) -> None:
    place(VolumeFile("a", b"1"))
    (tmp_path / "..half-written").mkdir()
    (tmp_path / "..half-written" / "a").write_bytes(b"2")
    (tmp_path / "..data_tmp").symlink_to("..half-written")
    (tmp_path / "stale").symlink_to("..data/stale")
    (tmp_path / "a").unlink()
    place(VolumeFile("a", b"1"))
    assert shown(tmp_path) == {"a": b"1"}
    assert len(hidden(tmp_path)) == 2
    assert not (tmp_path / "stale").is_symlink()


def test_damaged_files_are_written_again(place: Callable[..., bool], tmp_path: Path) -> None:
    place(VolumeFile("a", b"1"))
    (tmp_path / "a").write_bytes(b"")
    assert place(VolumeFile("a", b"1"))
    assert shown(tmp_path) == {"a": b"1"}


def test_a_group_may_read(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to another group: not root")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    publish(fd, [VolumeFile("a", b"1", 0o600)], 4711)
    assert not publish(fd, [VolumeFile("a", b"1", 0o600)], 4711)
    os.close(fd)
    found = (tmp_path / "a").stat()
    assert (found.st_gid, found.st_mode & 0o777) == (4711, 0o640)
