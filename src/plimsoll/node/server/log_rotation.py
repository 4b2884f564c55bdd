"""Logs that a runtime writes, kept from growing without end: the agent moves them away, the runtime begins new ones.

A log that has become larger than containerLogMaxSize gets the time behind its name, the runtime is told to open its log
again, and of the moved ones only so many stay that with the current one there are containerLogMaxFiles. A runtime that
does not open a new one gets the old one back: not a line is lost, and the next look tries again. The embedded runtime
does all this by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from plimsoll.errors import PlimsollError
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.server.logs import rotated_files
from plimsoll.runtime.interface import ContainerRuntime, ObservedContainer

LOOK_S = 10.0  # containerLogMonitorInterval

log = logging.getLogger(__name__)


class LogRotation:
    def __init__(self, runtime: ContainerRuntime, view: RuntimeView, max_bytes: int, max_files: int) -> None:
        self._runtime, self._view, self._max_bytes, self._max_files = runtime, view, max_bytes, max_files

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        running = [each for parts in self._view.last.values() for each in parts.containers if each.phase == "running"]
        for each in running:
            try:
                await self._looked(each)
            except (PlimsollError, OSError) as error:
                log.warning("the log of container %s cannot be rotated: %s", each.name, error)

    async def _looked(self, container: ObservedContainer) -> None:
        file = self._runtime.log_file(container)
        if not container.log_file or not file.exists() or file.stat().st_size <= self._max_bytes:
            return
        moved = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        file.rename(moved)
        try:
            await self._runtime.reopen_log(container.id)
        except PlimsollError:
            moved.rename(file)
            raise
        for old in oldest(file, self._max_files - 1):
            old.unlink()


def oldest(file: Path, kept: int) -> list[Path]:
    """Of the moved files of a log, all but the newest `kept`."""
    moved = rotated_files(file)
    return moved[: max(0, len(moved) - kept)]
