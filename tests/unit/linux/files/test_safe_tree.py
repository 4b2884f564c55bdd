"""Hostile directories: opened without leaving them, removed without following anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.linux.files.safe_tree import open_within, real_path, remove_tree


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept")
    (tmp_path / "in").mkdir()
    fd = os.open(tmp_path / "in", os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)
    assert (tmp_path / "outside" / "kept").read_text() == "kept"


def refused(directory: int, path: str) -> int | None:
    with pytest.raises(OSError) as error:
        os.close(open_within(directory, path, os.O_PATH))
    return error.value.errno


def test_links_that_stay_inside_are_followed(parent: int, tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir()
    (tmp_path / "in" / "a" / "file").write_text("x")
    (tmp_path / "in" / "link").symlink_to("a/../a")
    fd = open_within(parent, "link/file", os.O_RDONLY)
    try:
        assert os.read(fd, 10) == b"x"
        assert real_path(fd) == str(tmp_path / "in" / "a" / "file")
    finally:
        os.close(fd)


@pytest.mark.parametrize("target", ["../outside", "/etc", "a/../../outside", "/proc/self/root"])
def test_links_that_lead_out_are_not(parent: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "in" / "a").mkdir()
    (tmp_path / "in" / "link").symlink_to(target)
    assert refused(parent, "link") == errno.EXDEV
    assert refused(parent, "link/x") == errno.EXDEV


def test_paths_that_lead_out_are_not_opened(parent: int) -> None:
    assert refused(parent, "../outside") == errno.EXDEV
    assert refused(parent, "/etc") == errno.EXDEV
    assert refused(parent, "none") == errno.ENOENT


def test_everything_is_removed_and_links_are_not_followed(parent: int, tmp_path: Path) -> None:
    victim = tmp_path / "in" / "pod"
    (victim / "a" / "b" / "c").mkdir(parents=True)
    (victim / "a" / "file").write_text("x")
    (victim / "a" / "b" / "out").symlink_to("../../../../outside")
    (victim / "root").symlink_to("/")
    (victim / "dangling").symlink_to("nowhere")
    os.mkfifo(victim / "a" / "fifo")
    (victim / os.fsdecode(b"\xff\n")).write_text("odd name")
    (victim / "a").chmod(0o000)
    remove_tree(parent, "pod")
    assert os.listdir(tmp_path / "in") == []
    remove_tree(parent, "pod")  # once more is fine


def test_a_link_of_that_name_is_removed_itself(parent: int, tmp_path: Path) -> None:
    (tmp_path / "in" / "pod").symlink_to("../outside")
    remove_tree(parent, "pod")
    assert os.listdir(tmp_path / "in") == []


def test_any_depth(parent: int, tmp_path: Path) -> None:
    """Deeper than Python's stack, the longest path and the number of open files."""
    depth = 5000
    os.mkdir(tmp_path / "in" / "pod")
    here = os.open(tmp_path / "in" / "pod", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(parent, "pod")
    assert os.listdir(tmp_path / "in") == []
