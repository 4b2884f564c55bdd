"""A child that starts in a cgroup of the unified hierarchy, and a directory that cannot be used for it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.linux.clone_into_cgroup import fork_into, is_unified


def test_the_child_is_there_from_its_first_moment(tmp_path: Path) -> None:
    found = this_host()
    if os.geteuid() != 0 or found.unified is None:
        pytest.skip("needs root, and a unified hierarchy")
    name = f"plimsoll-test-{secrets.token_hex(4)}"
    top = Path(found.unified.mount_point) / name
    top.mkdir()
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert is_unified(directory)
        pid = fork_into(directory)
        if pid == 0:
            text = Path("/proc/self/cgroup").read_text()
            os._exit(7 if f"0::/{name}\n" in text else 1)
        assert pid is not None, "this kernel has no CLONE_INTO_CGROUP"
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7
    finally:
        os.close(directory)
        top.rmdir()


def test_no_child_where_none_can_be_born(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="clone3: Bad file descriptor"):
            fork_into(directory)
    finally:
        os.close(directory)
