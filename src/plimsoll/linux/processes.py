"""Processes: signals through pidfds, /proc/PID, and oom_score_adj.

A pid can be reused at any time, a pidfd cannot. To signal the processes of a cgroup: open a pidfd for each, check that
the cgroup still lists the pid, and only then send.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable

import msgspec

from plimsoll.codec.kernel.files import OwnCgroup, ProcessStat, own_cgroups, process_stat


def signal_members(members: Callable[[], Iterable[int]], number: signal.Signals) -> int:
    """Signal every process that `members` lists, and none that has reused a pid; returns the number of signals."""
    fds: dict[int, int] = {}
    try:
        for pid in members():
            try:
                fds[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError as error:
                if error.errno != errno.EINVAL:  # a thread's id, or a process that is being reaped
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
    """False for a zombie: it has ended, and only waits for its parent."""
    process = stat(pid)
    return process is not None and process.state not in ("Z", "X")


def cgroups_of(pid: int | None = None) -> list[OwnCgroup] | None:
    """The cgroups of a process (without a pid, of this one) in every hierarchy; None where there is no such process."""
    text = _proc(os.getpid() if pid is None else pid, "cgroup")
    return None if text is None else own_cgroups(text)


class ScoreAdjustment(msgspec.Struct, frozen=True):
    """The requested value, the current one, and the reason where they differ."""

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
    """Write −1000…1000 and report the result; a missing CAP_SYS_RESOURCE, which lowering needs, is no error.

    See https://docs.kernel.org/filesystems/proc.html (section 3.1).
    """
    if not -1000 <= want <= 1000:
        return ScoreAdjustment(want, oom_score_adj(pid), "the kernel accepts −1000 to 1000")
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
