"""Processes whose oom_score_adj is that of an earlier request: a resize does not change running processes."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.attach.writer import PROC, SCORE, AttachWriter
from plimsoll.linux.processes import oom_score_adj
from plimsoll.rules.attach.scores import stale_pids
from plimsoll.rules.attach.values import Target
from plimsoll.rules.attach.writes import Entry, PlannedWrite


def stale_entries(targets: Sequence[Target], writer: AttachWriter) -> list[PlannedWrite]:
    found = []
    for target in targets:
        if target.score is None:
            continue
        scores = {pid: score for pid in writer.driver.members(target.path) if (score := oom_score_adj(pid)) is not None}
        for pid in stale_pids(scores, target.score):
            known = writer.read(f"{PROC}{pid}", ())
            if known is None:
                continue
            started = known[1]
            text, wanted = str(scores[pid]), str(target.score)
            entry = writer.journal.entries.get(f"{PROC}{pid}\t{SCORE}")
            if entry is None or not entry.is_of(started):
                entry = Entry(f"{PROC}{pid}", SCORE, text, wanted, started, target.container_id)
            entry = entry.wants(wanted, text, writer.page_size)
            found.append(PlannedWrite(target, SCORE, text, wanted, entry))
    return found
