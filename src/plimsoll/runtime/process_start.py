"""Reaching the supervisor of a state directory, and starting it. It is nobody's child: it outlives who started it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import plimsoll
from plimsoll.runtime.runtime import RuntimeTrouble

_LOCKED = 3  # as the supervisor's `__main__.ALREADY_THERE`


def reached(state: Path) -> socket.socket | None:
    """A connection; None where nobody listens. By the directory's fd: an address has room for 107 bytes of path."""
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connecting.connect(f"/proc/self/fd/{folder}/socket")
    except (FileNotFoundError, ConnectionRefusedError):
        connecting.close()
        return None
    except OSError as problem:
        connecting.close()
        raise RuntimeTrouble("open", f"{state / 'socket'}: {problem.strerror}") from None
    finally:
        os.close(folder)
    connecting.setblocking(False)
    return connecting


def start_supervisor(state: Path, hidden: Sequence[Path], log_limits: tuple[int, int], cgroup: Sequence[int]) -> bool:
    """False where another has the lock: it will answer, or was just killed and lets go of it in a moment."""
    argv = [sys.executable, "-S", "-m", "plimsoll.runtime.host", "--state", str(state)]
    argv += ["--socket", str(state / "socket")]
    argv += [f"--log-max-bytes={log_limits[0]}", f"--log-max-files={log_limits[1]}"]
    argv += [f"--hide={path}" for path in hidden]
    argv += [f"--cgroup-fd={fd}" for fd in cgroup]
    environment = {
        "PYTHONPATH": str(Path(plimsoll.__file__).parent.parent),
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONMALLOC": "malloc",
        "MALLOC_ARENA_MAX": "1",
    }
    try:
        with open(state / "supervisor.log", "ab") as log:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                pass_fds=tuple(cgroup),
                start_new_session=True,
                check=False,
            )
    except OSError as problem:
        raise RuntimeTrouble("open", f"can't start the supervisor: {problem}") from None
    if done.returncode not in (0, _LOCKED):
        raise RuntimeTrouble("open", f"the supervisor ended at once; see {state / 'supervisor.log'}")
    return done.returncode == 0
