from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from plimsoll.cgroups.engine import scope_holder

SCOPE = "/plimsoll_test.slice/plimsoll_test-one.scope"


def eventually(condition: Callable[[], bool], deadline_s: float = 10.0) -> bool:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def opened(pid: int) -> set[str]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed since
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def test_a_holder_is_small_and_inherits_nothing() -> None:
    pid = scope_holder.start(SCOPE)
    try:
        assert eventually(lambda: command(pid) == "sleep infinity")
        assert scope_holder.scope_of(pid) == SCOPE
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert eventually(lambda: opened(pid) == {"/dev/null"})  # at first it still reads its libraries
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert int(status["RssAnon"].split()[0]) < 1024  # kB
        ignored = int(status["SigIgn"], 16)
        assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
    finally:
        assert scope_holder.end(pid, SCOPE)
    assert not Path(f"/proc/{pid}").exists()
    assert not scope_holder.end(pid, SCOPE)


def test_a_holder_of_another_cgroup_is_not_killed() -> None:
    pid = scope_holder.start(SCOPE)
    try:
        with pytest.raises(scope_holder.NotAScopeHolderError, match="it is not killed"):
            scope_holder.end(pid, "/another.scope")
        assert scope_holder.scope_of(pid) == SCOPE
    finally:
        scope_holder.end(pid, SCOPE)


def test_another_process_is_never_taken_for_a_holder() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert scope_holder.scope_of(process.pid) is None
            with pytest.raises(scope_holder.NotAScopeHolderError):
                scope_holder.end(process.pid, SCOPE)
            assert process.poll() is None
        finally:
            process.kill()
