"""Instant news of ended processes: one pidfd per container and sandbox, readable once its first process is gone.

That is no exit code (the process is a child of the runtime's shim), only a reason to ask the runtime at once instead of
at the next look. A pid that went to another process in between costs nothing but such a reason.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping


class Exits:
    def __init__(self, noticed: Callable[[str], None]) -> None:
        """`noticed` is called with the id, by the event loop; again and again where the process was gone before."""
        self._noticed = noticed
        self._fds: dict[str, int] = {}

    def follow(self, pids: Mapping[str, int]) -> bool:
        """Watch exactly these, id → pid; whether all of them can be."""
        for gone in self._fds.keys() - pids.keys():
            self._drop(gone)
        complete = True
        for each, pid in pids.items():
            if each not in self._fds:
                complete &= self._watch(each, pid)
        return complete

    def close(self) -> None:
        for each in [*self._fds]:
            self._drop(each)

    def _watch(self, each: str, pid: int) -> bool:
        if pid <= 0:
            return False
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:  # gone already
            self._noticed(each)
            return True
        except OSError:  # no more file descriptors, or no pidfds here
            return False
        self._fds[each] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, each)
        return True

    def _ended(self, each: str) -> None:
        # The descriptor stays readable, so it is not watched any more; it stays open so that the id counts as followed.
        asyncio.get_running_loop().remove_reader(self._fds[each])
        self._noticed(each)

    def _drop(self, each: str) -> None:
        fd = self._fds.pop(each)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
