"""Rotate the logs that a CRI runtime writes. The embedded runtime rotates its own.

A log that is larger than containerLogMaxSize is renamed with a timestamp, and the runtime is asked to reopen it. Older
files are removed, so that with the current one there are containerLogMaxFiles. If the runtime does not reopen the log,
the file gets its name back: no line is lost, and the next pass tries again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from plimsoll.errors import PlimsollError
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.server.logs import rotated_files
from plimsoll.runtime.interface import ContainerRuntime, ContainerStateSeen

POLL_S = 10.0  # containerLogMonitorInterval

log = logging.getLogger(__name__)


class LogRotation:
    def __init__(self, runtime: ContainerRuntime, view: RuntimeView, max_bytes: int, max_files: int) -> None:
        self._runtime, self._view, self._max_bytes, self._max_files = runtime, view, max_bytes, max_files

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.sync()

    async def sync(self) -> None:
        containers = [container for pod in self._view.last.values() for container in pod.containers]
        for container in containers:
            try:
                if container.phase == "running":
                    await self._rotate(container)
            except (PlimsollError, OSError) as error:
                log.warning("cannot rotate the log of container %s: %s", container.name, error)

    async def _rotate(self, container: ContainerStateSeen) -> None:
        file = self._runtime.log_file(container)
        if not container.log_file or not file.exists() or file.stat().st_size <= self._max_bytes:
            return
        rotated = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        file.rename(rotated)
        try:
            await self._runtime.reopen_log(container.id)
        except PlimsollError:
            rotated.rename(file)
            raise
        for old in oldest(file, self._max_files - 1):
            old.unlink()


def oldest(file: Path, kept: int) -> list[Path]:
    """The rotated files of a log, except the newest `kept`."""
    files = rotated_files(file)
    return files[: max(0, len(files) - kept)]
