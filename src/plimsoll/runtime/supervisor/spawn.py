"""Children of the supervisor: started in their pid namespace and followed until they have executed their program.

`unshare(PID)`, fork, `setns` back: the supervisor has one thread, so nothing else happens in between.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any, Protocol

from plimsoll.linux import namespaces
from plimsoll.linux.clone_into_cgroup import fork_into, is_unified
from plimsoll.runtime.supervisor import child, wire
from plimsoll.runtime.supervisor.loop import EventLoop
from plimsoll.runtime.supervisor.plan import LaunchPlan

NEW_PIDS, OUR_PIDS = -1, -2  # instead of a pid namespace's fd


class Spawner(Protocol):
    def __call__(
        self,
        plan: LaunchPlan,
        place: child.ChildPlacement,
        streams: child.Streams,
        on_ready: Callable[[Failure | None], None],
        pids: int,
    ) -> ChildProcess: ...


class Failure:
    """Why a program was not executed, as `child` reports it."""

    __slots__ = ("code", "message", "reason")

    def __init__(self, message: str, code: int, reason: str) -> None:
        self.message, self.code, self.reason = message, code, reason


class ChildProcess:
    """`on_ready` is called once: with None when the program runs, with the Failure when it never will."""

    __slots__ = ("_loop", "_notes", "_on_ready", "failure", "oom_score_adj", "pid", "terminal")

    def __init__(
        self, loop: EventLoop, pid: int, notes: socket.socket, on_ready: Callable[[Failure | None], None]
    ) -> None:
        self._loop, self.pid, self._on_ready = loop, pid, on_ready
        self._notes: socket.socket | None = notes
        self.failure: Failure | None = None
        self.oom_score_adj: int | None = None
        self.terminal = -1
        loop.watch(notes.fileno(), self.listen)

    def listen(self) -> None:
        """Read the child's notes; at the end of the stream it is ready or has failed."""
        while self._notes is not None:
            try:
                data, fds = wire.receive(self._notes)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if fds:
                self.terminal = fds[0]
            if not data:
                self._loop.watch(self._notes.fileno(), None)
                self._notes.close()
                self._notes = None
                self._on_ready(self.failure)
                return
            self._take(json.loads(data))

    def _take(self, note: dict[str, Any]) -> None:
        if "oom_score_adj" in note:
            self.oom_score_adj = note["oom_score_adj"]
        if "error" in note:
            self.failure = Failure(note["error"], note["code"], note["reason"])

    def close_terminal(self) -> None:
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1


def spawn(
    loop: EventLoop,
    plan: LaunchPlan,
    place: child.ChildPlacement,
    streams: child.Streams,
    on_ready: Callable[[Failure | None], None],
    *,
    pids: int,
    own_pids: int,
) -> ChildProcess:
    """Fork; the child executes the program or reports why it cannot. OSError where the fork fails."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        if pids == NEW_PIDS:
            namespaces.unshare(namespaces.PID)
        elif pids != OUR_PIDS:
            namespaces.setns(pids, namespaces.PID)
        try:
            place = place._replace(supervisor=os.getpid(), ignored=child.ignored_signals())
            pid, place = _forked(place)
            if pid == 0:
                ours.close()
                child.run(plan, place, streams, theirs)
        finally:
            if pids != OUR_PIDS:
                _return(own_pids)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return ChildProcess(loop, pid, ours, on_ready)


def _forked(place: child.ChildPlacement) -> tuple[int, child.ChildPlacement]:
    """The child, and what it still has to enter: the kernel starts it in its cgroup v2 directly."""
    unified = next((fd for fd in place.cgroups if is_unified(fd)), None)
    if unified is not None and (pid := fork_into(unified)) is not None:
        return pid, place._replace(cgroups=tuple(fd for fd in place.cgroups if fd != unified))
    return os.fork(), place


def _return(own_pids: int) -> None:
    try:
        namespaces.setns(own_pids, namespaces.PID)
    except OSError:
        os.abort()  # the next child would start in this container


def exit_code(status: int) -> int:
    """128 + signal for one that was killed, as shells and runtimes count."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its pid, its identity within one boot. 0: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_pidfd(pidfd: int, timeout_s: float = 5.0) -> None:
    """Kill by pidfd and wait until it has ended; it need not be a child of ours."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return
    select.select([pidfd], [], [], timeout_s)


def kill_session(leader: int) -> None:
    """Every process of a session, whatever its process group: job control spreads a shell's children over many."""
    kill(leader)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                session = int(file.read().rpartition(b")")[2].split()[3])
        except OSError:
            continue
        if session == leader:
            kill(int(name))


def kill_members(cgroup: int) -> None:
    """Everything in one cgroup, until nothing new appears (a fork bomb is faster than one pass)."""
    for _ in range(100):
        try:
            fd = os.open("cgroup.procs", os.O_RDONLY | os.O_CLOEXEC, dir_fd=cgroup)
        except OSError:
            return  # removed: then it was empty
        with open(fd, "rb") as file:
            members = [int(line) for line in file if int(line) > 0]
        if not members:
            return
        for pid in members:
            kill(pid)
