"""Processes as the kernel shows them: signals through pidfds, /proc/PID, the OOM score adjustment, capabilities.

A pid can be given to another process at any time; a pidfd cannot. To signal the processes of a cgroup: take a pidfd of
each, look whether the cgroup still lists the pid, and only then send.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable

import msgspec

from plimsoll.codec.kernel.files import OwnCgroup, ProcessStat, own_cgroups, process_stat


def signal_members(members: Callable[[], Iterable[int]], number: signal.Signals) -> int:
    """Sends to every process that `members` lists, and to none that merely got its pid since; how many were sent."""
    fds: dict[int, int] = {}
    try:
        for pid in members():
            try:
                fds[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: a thread's id, or a process that is just being reaped
                    raise
        sent = 0
        for pid in set(members()) & fds.keys():
            try:
                signal.pidfd_send_signal(fds[pid], number)
                sent += 1
            except ProcessLookupError:
                continue
        return sent
    finally:
        for fd in fds.values():
            os.close(fd)


def stat(pid: int) -> ProcessStat | None:
    """None where there is no such process."""
    text = _proc(pid, "stat")
    return None if text is None else process_stat(text)


def is_running(pid: int) -> bool:
    """A zombie has ended: only its parent has not looked yet."""
    found = stat(pid)
    return found is not None and found.state not in ("Z", "X")


def cgroups_of(pid: int | None = None) -> list[OwnCgroup] | None:
    """The cgroup of a process in every hierarchy (of this process without a pid); None where there is none."""
    text = _proc(os.getpid() if pid is None else pid, "cgroup")
    return None if text is None else own_cgroups(text)


class ScoreAdjustment(msgspec.Struct, frozen=True):
    """`want …, have … (reason)`: what was asked for, what the process has now, and why it is another."""

    want: int
    have: int | None  # None: the process is gone
    reason: str = ""

    @property
    def done(self) -> bool:
        return self.want == self.have


def oom_score_adj(pid: int) -> int | None:
    text = _proc(pid, "oom_score_adj")
    return None if text is None else int(text)


def set_oom_score_adj(pid: int, want: int) -> ScoreAdjustment:
    """Writes −1000…1000 and reports what it came to; lowering needs CAP_SYS_RESOURCE, which is no error here."""
    if not -1000 <= want <= 1000:
        return ScoreAdjustment(want, oom_score_adj(pid), "the kernel takes −1000 to 1000")
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return ScoreAdjustment(want, None, "the process is gone")
    except PermissionError:
        return ScoreAdjustment(want, oom_score_adj(pid), "another user's process")
    try:
        os.write(fd, str(want).encode("ascii"))
    except ProcessLookupError:
        return ScoreAdjustment(want, None, "the process is gone")
    except PermissionError:
        return ScoreAdjustment(want, oom_score_adj(pid), "lowering it needs CAP_SYS_RESOURCE")
    finally:
        os.close(fd)
    have = oom_score_adj(pid)
    return ScoreAdjustment(
        want, have, "" if have == want else "the process is gone" if have is None else "changed since"
    )


def _proc(pid: int, file: str) -> str | None:
    try:
        with open(f"/proc/{pid}/{file}", encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
