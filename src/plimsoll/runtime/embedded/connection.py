"""The agent's end of the supervisor's socket, and the subscribers to changes.

Connects to the supervisor of a state directory and starts it. It is detached and outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import plimsoll
from plimsoll.runtime.interface import RuntimeCallError
from plimsoll.runtime.supervisor import wire

LOST = "the supervisor has gone in the middle of it; ask again"


class ExitWatcher:
    """Pod uids that a subscriber has not handled yet; each at most once."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}
        self._news = asyncio.Event()
        self._ended = False

    def add(self, pod_uid: str) -> None:
        self._uids[pod_uid] = None
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def next(self) -> list[str] | None:
        await self._news.wait()
        self._news.clear()
        if self._ended:
            return None
        uids, self._uids = list(self._uids), {}
        return uids


class SupervisorConnection:
    """The socket in asyncio's loop, with descriptors, which asyncio's streams don't support."""

    def __init__(
        self,
        connected: socket.socket,
        received: Callable[[wire.Message, list[int]], None],
        on_loss: Callable[[], None],
    ) -> None:
        self._socket, self._received, self._on_loss = connected, received, on_loss
        self._loop = asyncio.get_running_loop()
        self._reader, self._queue = wire.FrameReader(), wire.SendQueue(connected)
        self.lost = asyncio.Event()
        self._loop.add_reader(connected.fileno(), self._readable)

    def send(self, message: wire.Message, fds: Sequence[int] = ()) -> None:
        if self.lost.is_set():
            raise RuntimeCallError(str(message.get("call")), LOST)
        self._queue.add(message, fds)
        self._flush()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        self._reader.close()
        self._queue.close()
        self._lose()

    def _lose(self) -> None:
        """Pending calls fail at once."""
        if not self.lost.is_set():
            self.lost.set()
            self._on_loss()

    def _flush(self) -> None:
        try:
            done = self._queue.flush()
        except OSError:
            self._lose()
            return
        if done:
            self._loop.remove_writer(self._socket.fileno())
        else:
            self._loop.add_writer(self._socket.fileno(), self._flush)

    def _readable(self) -> None:
        messages = self._reader.receive(self._socket)
        if messages is None:
            self._loop.remove_reader(self._socket.fileno())
            self._lose()
            return
        for message, with_it in messages:
            self._received(message, with_it)


_LOCKED = 3  # as the supervisor's `__main__.ALREADY_THERE`


def reached(state: Path) -> socket.socket | None:
    """A connection; None where no supervisor listens. Through the directory's fd: an address holds 107 bytes."""
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connecting.connect(f"/proc/self/fd/{folder}/socket")
    except (FileNotFoundError, ConnectionRefusedError):
        connecting.close()
        return None
    except OSError as problem:
        connecting.close()
        raise RuntimeCallError("open", f"{state / 'socket'}: {problem.strerror}") from None
    finally:
        os.close(folder)
    connecting.setblocking(False)
    return connecting


def start_supervisor(state: Path, hidden: Sequence[Path], log_limits: tuple[int, int], cgroup: Sequence[int]) -> bool:
    """False where another supervisor has the lock: it will answer, or was just killed and releases the lock soon."""
    argv = [sys.executable, "-S", "-m", "plimsoll.runtime.supervisor", "--state", str(state)]
    argv += ["--socket", str(state / "socket")]
    argv += [f"--log-max-bytes={log_limits[0]}", f"--log-max-files={log_limits[1]}"]
    argv += [f"--hide={path}" for path in hidden]  # absolute: the supervisor changes its directory
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
        raise RuntimeCallError("open", f"can't start the supervisor: {problem}") from None
    if done.returncode not in (0, _LOCKED):
        raise RuntimeCallError("open", f"the supervisor ended at once; see {state / 'supervisor.log'}")
    return done.returncode == 0
