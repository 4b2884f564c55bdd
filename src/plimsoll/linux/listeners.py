"""Which process listens on a TCP port: /proc/net/tcp has the socket, /proc/PID/fd the process that has it open."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_LISTEN = "0A"  # a state in include/net/tcp_states.h


def listening_process(port: int, proc: Path = Path("/proc")) -> tuple[int, str] | None:
    """Its pid and name. None where no process has the port, or where it is not ours to see."""
    sockets = set(_sockets(port, proc))
    for directory in proc.iterdir() if sockets else ():
        if not directory.name.isdigit():
            continue
        try:
            if any(os.readlink(fd) in sockets for fd in (directory / "fd").iterdir()):
                return int(directory.name), (directory / "comm").read_text().strip()
        except OSError:  # it has ended, or belongs to another user
            continue
    return None


def listen_problem(host: str, port: int, error: OSError) -> str:
    """The error of a server that cannot listen: the address, the reason, and which process has the port."""
    used_by = listening_process(port) if error.errno == errno.EADDRINUSE else None
    who = f" by process {used_by[0]} ({used_by[1]})" if used_by is not None else ""
    return f"cannot listen on {host}:{port}: {error.strerror}{who}; choose another with --listen HOST:PORT"


def _sockets(port: int, proc: Path) -> list[str]:
    """What the link of an fd says, for each socket that listens on the port."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        rows = (line.split() for line in lines)
        found += [f"socket:[{row[9]}]" for row in rows if row[3] == _LISTEN and row[1].endswith(f":{port:04X}")]
    return found
