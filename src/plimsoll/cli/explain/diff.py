"""Prints the differences between two explanations of the same pods (`explain --diff`)."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.cli import console
from plimsoll.cli.terminal import Paint, inert, table
from plimsoll.rules.explain.differences import Difference


def print_differences(rows: Sequence[Difference], first: str, second: str, paint: Paint) -> None:
    if not rows:
        console.echo(f"no differences between {first} and {second}")
        return
    lines = table([(row.where, row.what, row.first, row.second) for row in rows], ("WHERE", "WHAT", first, second))
    for index, line in enumerate(lines):
        console.echo(inert(line) if index else paint(inert(line), "bold"))
    notes = dict.fromkeys((row.what, row.note) for row in rows if row.note)
    for what, note in notes:
        console.echo(paint(f"{what}: {note}", "dim"))
