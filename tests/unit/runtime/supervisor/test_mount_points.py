"""Mount points: a file for a file, a directory for everything else, also where directories above are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.runtime.supervisor.mount_points import make_target


@pytest.mark.parametrize("target", ["here", "a/b/c"])
@pytest.mark.parametrize(("of", "is_file"), [("file", True), ("folder", False), ("", False)])
def test_the_kind_of_what_is_mounted(tmp_path: Path, target: str, of: str, is_file: bool) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    tree = os.open(tmp_path / of, os.O_PATH) if of else -1
    make_target(tree, str(tmp_path / target))
    assert (tmp_path / target).is_file() is is_file
    assert (tmp_path / target).is_dir() is not is_file
    if of:
        os.close(tree)


def test_what_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link", "."):
        make_target(-1, str(tmp_path / name))
    assert (tmp_path / "file").read_text() == "x"


def test_an_error_names_the_mount_point(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"mount point {tmp_path}/file/x: Not a directory"):
        make_target(-1, str(tmp_path / "file/x"))
