"""Takes the CPU bursts of attach back: `python -m plimsoll.attach.bursts STATE_DIR`, which the guard runs.

A quota below the burst is refused by the kernel. So without attach, which lowers bursts in time, a kubelet could not
lower a CPU limit: bursts end with attach, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from plimsoll.attach.journal import AttachJournal, JournalError
from plimsoll.attach.writer import AttachWriter
from plimsoll.audit.attached import boot_id
from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.errors import PlimsollError
from plimsoll.logs import log_to_stderr
from plimsoll.rules.attach.values import BURSTS

log = logging.getLogger("plimsoll.attach.bursts")  # also as a program


async def restore_bursts(writer: AttachWriter) -> bool:
    """Whether no burst of attach is left. A burst that an earlier version has given to the runtime stays in the journal
    until the runtime has forgotten it."""
    entries = [entry for entry in writer.journal.entries.values() if entry.file in BURSTS]
    try:
        done = await writer.restore(entries, {entry.container_id for entry in entries})
    except JournalError as error:  # after the writes: the entries stay
        log.error("%s", error)
        return False
    for each in done:
        if each.outcome == "failed":
            log.error("%s/%s cannot be restored to %s: %s", each.path, each.file, each.value, each.reason)
    if restored := sum(each.outcome == "restored" for each in done):
        log.info("%d CPU bursts are as before attach", restored)
    return all(each.outcome != "failed" for each in done)


def main(directory: str) -> int:
    """The caller holds the lock of the guard."""
    log_to_stderr()
    journal = AttachJournal(Path(directory))
    try:
        journal.load(boot_id())
        writer = AttachWriter(open_cgroupfs(this_host()), journal, os.sysconf("SC_PAGE_SIZE"))
        return int(not asyncio.run(restore_bursts(writer)))
    except PlimsollError as error:
        log.error("the CPU bursts of attach stay: %s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
