"""Detach: every file that attach has changed gets the value from before, in the kernel and in the runtime's record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from plimsoll.attach.journal import AttachJournal
from plimsoll.attach.plugin import release_of, updates_unified
from plimsoll.attach.writer import AttachWriter, Restored, is_of_container
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.errors import PlimsollError
from plimsoll.runtime.nri import messages as nri
from plimsoll.runtime.nri.plugin import NriError, NriSession

# For the runtime to take us in. It does so after the updates that an attach which was killed has asked for: were they
# carried out afterwards, they would bring the values back. A socket without a runtime refuses at once.
_NRI_S = 30.0


async def restored(
    journal: AttachJournal, driver: CgroupDriver, page_size: int, socket: Path, *, dry_run: bool
) -> tuple[list[Restored], str]:
    """What was restored, or would be, and a note about the runtime."""
    writer, entries = AttachWriter(driver, journal, page_size), list(journal.entries.values())
    if dry_run:
        return [Restored(each.path, each.file, each.before, writer.outcome(each)) for each in entries], ""
    if not writer.runtime_updates_unified or not any(is_of_container(entry) for entry in entries):
        return await writer.restore(entries), ""
    plugin = SilentPlugin()
    session = NriSession(socket, "plimsoll-detach", "96", plugin, _NRI_S)
    connecting = asyncio.create_task(session.once())
    ready = asyncio.create_task(session.ready(_NRI_S))
    try:
        await asyncio.wait({connecting, ready}, return_when=asyncio.FIRST_COMPLETED)
        writer.session = session
        writer.runtime_updates_unified = not session.connected or updates_unified(plugin.runtime, plugin.version)
        done = await writer.restore(entries)
        return done, _note(session, connecting, writer)
    finally:
        for task in (connecting, ready):
            task.cancel()
        await asyncio.gather(connecting, ready, return_exceptions=True)


class SilentPlugin:
    """A plugin that adjusts nothing: it is there to ask the runtime for updates."""

    def __init__(self) -> None:
        self.version = (0, 0)
        self.runtime = ""

    def configured(self, runtime: str, version: str) -> None:
        self.runtime, self.version = runtime, release_of(version)

    def synchronized(self, pods: Any, containers: Any) -> None:
        """Nothing to do."""

    async def created(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        return None

    async def updated(self, pod: nri.PodSandbox, container: nri.Container, resources: nri.LinuxResources) -> None:
        return None

    def changed(self, event: int, pod: nri.PodSandbox | None, container: nri.Container | None) -> None:
        """Nothing to do."""

    def answered(self, method: str, seconds: float, late: bool) -> None:
        """Nothing to do."""


def _note(session: NriSession, connecting: asyncio.Task[None], writer: AttachWriter) -> str:
    again = "it writes them again when the kubelet resizes one of them"
    if not writer.runtime_updates_unified:
        why = "it does not apply `unified` on updates"
    elif writer.not_forgotten:
        error = connecting.exception() if connecting.done() and not connecting.cancelled() else None
        why = f"it could not update {len(writer.not_forgotten)} of them" if session.connected else "it does not answer"
        why = str(error) if isinstance(error, NriError | OSError | PlimsollError) else why
        again += ". They stay in the journal: run `plimsoll detach` again when it runs"
    else:
        return ""
    return f"the container runtime still has the values of attach in its record of running containers ({why}): {again}"
