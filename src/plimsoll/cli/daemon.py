"""What every long-running verb does alike: how it is told to end, how many files it may open, what it need not collect.

A daemon ends on SIGINT and SIGTERM. One that was started by another (`up` starts two) is given a pipe as standard input
and ends with it too, so that it never outlives whoever has started it, whatever becomes of them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys

import click


def stop_event(*, while_stdin: bool = False) -> asyncio.Event:
    """Set once the process shall end. To be called in the running loop."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if while_stdin:
        handle = sys.stdin.fileno()
        os.set_blocking(handle, False)

        def heard() -> None:
            try:
                ended = not os.read(handle, 4096)
            except BlockingIOError:
                return
            if ended:
                loop.remove_reader(handle)
                stop.set()

        loop.add_reader(handle, heard)
    return stop


def allow_many_files() -> None:
    """Every watcher is one; the usual soft limit is there for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settle() -> None:
    """What is loaded stays: it need not be looked at again with every collection."""
    gc.collect()
    gc.freeze()


def host_and_port(text: str, option: str = "--listen") -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"{option} {text}: must be HOST:PORT, e.g. 127.0.0.1:6443")
    return host.strip("[]") or "127.0.0.1", int(port)
