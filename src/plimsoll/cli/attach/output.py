"""The status of attach and the result of detach, as tables and JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from plimsoll.attach.journal import LOCK, STATUS
from plimsoll.attach.report import AttachStatus, Change
from plimsoll.attach.writer import Restored
from plimsoll.audit.attached import STATE_DIR
from plimsoll.cli import console
from plimsoll.cli.terminal import inert
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.file_lock import holder

MOST_LINES = 200


def shown_status(state_dir: str | None, output: str) -> int:
    """Exit code 1 if no attach runs."""
    directory = Path(state_dir or STATE_DIR)
    try:
        data = (directory / STATUS).read_bytes()
    except FileNotFoundError:
        raise PlimsollError(
            f"{directory} has no status: no attach has run here since the machine was started"
        ) from None
    status = msgspec.json.decode(data, type=AttachStatus)
    running = holder(directory / LOCK) is not None
    if output == "json":
        console.echo(data.decode())
    else:
        if not running:
            console.echo("no attach runs now; this is its last status")
        for line in status_lines(status):
            console.echo(line)
    return 0 if running else 1


def status_lines(status: AttachStatus) -> Iterator[str]:
    age_s = max(time.time() - status.time_s, 0)
    runtime = f"{status.runtime}{'' if status.connected else ' (not connected)'}" if status.runtime else "no runtime"
    yield inert(f"{status.mode} on node {status.node}: {runtime}, {status.pods} pods, {age_s:.0f} s ago")
    yield f"files with a value of attach: {status.files}; late answers: {status.late_answers}"
    for by, count in sorted(status.reasserts.items()):
        yield f"written again {count} times, overwritten by {by}"
    yield from (inert(f"not changed any longer, another program writes it: {path}") for path in status.abandoned)
    yield from (inert(f"problem: {problem}") for problem in status.problems)
    yield from (inert(f"note: {note}") for note in status.notes[:MOST_LINES])
    for each in status.above_high:
        yield inert(f"{each.subject}: would have been above memory.high ({each.high}) for {each.seconds:g} s")
    if not status.pending:
        yield "nothing differs from the policy"
        return
    yield "would be written:" if status.mode == "observe" else "could not be written:"
    yield from change_table(status.pending)


def change_table(changes: Sequence[Change]) -> Iterator[str]:
    rows = [("LEVEL", "SUBJECT", "FILE", "HAS", "POLICY", "")]
    rows += [(each.level, each.subject, each.file, each.found, each.wanted, each.problem) for each in changes]
    widths = [max(len(row[column]) for row in rows[: MOST_LINES + 1]) for column in range(5)]
    for row in rows[: MOST_LINES + 1]:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        yield inert("  ".join([*cells, row[5]]).rstrip())
    if len(changes) > MOST_LINES:
        yield f"… and {len(changes) - MOST_LINES} more; -o json has all"


def restored_lines(done: Sequence[Restored], *, dry_run: bool) -> Iterator[str]:
    if not done:
        yield "nothing to restore"
        return
    for each in done:
        if each.outcome in ("failed", "changed by another"):
            yield inert(f"{each.path}/{each.file}: {each.outcome}: {each.reason}".rstrip(": "))
        elif dry_run and each.outcome == "restored":
            yield inert(f"{each.path}/{each.file}: would be {each.value} again")
    counts = Counter(each.outcome for each in done)
    words = {
        "restored": "would be restored" if dry_run else "restored",
        "already": "already as before",
        "changed by another": "changed by another program, left as they are",
        "gone": "gone with their cgroups",
        "failed": "could not be restored",
    }
    yield ", ".join(f"{count} {words[outcome]}" for outcome, count in counts.items())
