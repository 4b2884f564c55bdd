"""Steps and what could not be had, for people and for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click
import msgspec

from plimsoll.cgroups.executor import step_text
from plimsoll.cgroups.node_turn import Applied
from plimsoll.cli.output import Paint, colourful, inert
from plimsoll.rules.reconcile import Unmet
from plimsoll.rules.steps import Make, Remove, Step, Write

_ID = re.compile(r"\b[0-9a-f]{64}\b")


def print_applied(applied: Applied, output: str, *, dry_run: bool = False, notes: Iterable[str] = ()) -> None:
    if output == "json":
        document = {
            "subject": applied.subject,
            "dryRun": dry_run,
            "steps": msgspec.to_builtins(applied.steps),
            "unmet": msgspec.to_builtins(applied.unmet),
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    paint = Paint(colourful())
    for line in grouped(applied.steps, paint):
        click.echo(line)
    would = "would be " if dry_run else ""
    if applied.steps:
        click.echo(f"{inert(applied.subject)}: {counted(applied.steps)} {would}made")
    else:
        click.echo(f"{inert(applied.subject)}: nothing to do, everything is as it should be")
    print_unmet(applied.unmet, paint)
    for note in notes:
        click.echo(paint(f"note: {inert(note)}", "dim"), err=True)


def grouped(steps: Sequence[Step], paint: Paint) -> Iterable[str]:
    """The writes of one cgroup stand below its path."""
    at = ""
    for step in steps:
        if isinstance(step, Write):
            if step.path != at:
                yield f"{paint('write', 'cyan')} {_short(step.path)}"
            was = "" if step.was is None else paint(f"  (was {step.was})", "dim")
            yield f"    {step.file:<32} {step.value}{was}"
        else:
            yield from lines([step], paint)
        at = step.path


def _short(text: str) -> str:
    """Ids as people show them: the first twelve of 64 digits."""
    return _ID.sub(lambda found: found[0][:12], inert(text))


def lines(steps: Sequence[Step], paint: Paint) -> Iterable[str]:
    colours = {Make: "green", Remove: "red"}
    for step in steps:
        verb, _, rest = step_text(step).partition(" ")
        yield f"{paint(verb, colours.get(type(step), 'cyan'))} {_short(rest)}"


def counted(steps: Sequence[Step]) -> str:
    return "1 step" if len(steps) == 1 else f"{len(steps)} steps"


def print_unmet(unmet: Sequence[Unmet], paint: Paint) -> None:
    """The same lack in many cgroups is one line."""
    grouped: dict[tuple[str, str], list[Unmet]] = {}
    for each in unmet:
        grouped.setdefault((each.file, each.reason), []).append(each)
    for (file, reason), some in grouped.items():
        first = some[0]
        have = first.have or "nothing"
        where = first.path if len(some) == 1 else f"{first.path} and {len(some) - 1} more"
        click.echo(paint(f"{file}: want {first.want}, have {have} ({reason}): {where}", "yellow"))
