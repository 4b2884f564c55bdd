"""/dev/kmsg: the kernel log, one record per read; each reader has its own position."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

DEVICE = "/dev/kmsg"
RECORD_BYTES = 8192  # the longest record


class KernelLog:
    """Raises OSError where the log may not be read. `fileno` is for an event loop; `read` never blocks."""

    def __init__(self, device: str = DEVICE) -> None:
        self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> Iterator[bytes]:
        """Every available record; records that were overwritten meanwhile (EPIPE) are skipped."""
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
