"""/dev/kmsg: one record per read, from anywhere in the kernel's ring, without taking records away from anybody."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

DEVICE = "/dev/kmsg"
RECORD_BYTES = 8192  # what the kernel gives at most


class KernelLog:
    """Raises OSError where the log may not be read. `fileno` is for an event loop; reading never waits."""

    def __init__(self, device: str = DEVICE) -> None:
        self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def skip_all(self) -> None:
        """Only what comes from now on."""
        os.lseek(self._fd, 0, os.SEEK_END)

    def read(self) -> Iterator[bytes]:
        """Every record that is there; those overwritten meanwhile are lost, and reading goes on after them."""
        while True:
            try:
                data = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
                raise
            yield data

    def close(self) -> None:
        os.close(self._fd)
