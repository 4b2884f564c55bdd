"""Output formats that several verbs share.

Tables of the API server are printed as kubectl prints them: the server chooses columns and cells, `-o wide` adds the
columns with a priority above 0. Further: cgroup steps and unmet values, pods in the order of eviction, events, and API
objects as JSON or YAML. Text from a cluster is escaped (`inert`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.cgroups.engine.executor import step_text
from plimsoll.cgroups.engine.transaction import Applied
from plimsoll.cli import console
from plimsoll.cli.terminal import Paint, aligned, colourful, display_width, echo_json, inert, on_terminal, table
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.cgroups.reconcile import Unmet
from plimsoll.rules.cgroups.steps import Make, Remove, Step, Write
from plimsoll.rules.eviction.decision import EvictionCandidate
from plimsoll.rules.eviction.ranking import PIDS
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.timestamps import age, epoch_seconds

ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
GAP, LEAST_WIDTH = "   ", 3  # as kubectl


class TableForm(msgspec.Struct, frozen=True):
    """Which cells of a server's table are printed."""

    wide: bool = False
    namespaces: bool = False
    prefix: str = ""  # precedes the name, such as `pod/` if several kinds are shown
    labels: tuple[str, ...] = ()  # labels that are columns
    all_labels: bool = False


def header(found: JsonObject, form: TableForm) -> list[str]:
    columns = [each for each in _columns(found) if form.wide or not each.get("priority")]
    names = [inert(str(each.get("name", ""))).upper() for each in columns]
    names += [inert(label.rpartition("/")[2]).upper() for label in form.labels]
    return [*["NAMESPACE"] * form.namespaces, *names, *["LABELS"] * form.all_labels]


def rows(found: JsonObject, form: TableForm) -> Iterator[list[str]]:
    columns = _columns(found)
    for row in found.get("rows") or ():
        cells = [
            inert(_cell(cell))
            for column, cell in zip(columns, row.get("cells") or (), strict=False)
            if form.wide or not column.get("priority")
        ]
        if cells:
            cells[0] = form.prefix + cells[0]
        labels = _metadata(row).get("labels") or {}
        cells += [inert(str(labels.get(label) or "")) for label in form.labels]
        if form.all_labels:
            cells.append(inert(label_text(labels)))
        if form.namespaces:
            cells.insert(0, inert(str(_metadata(row).get("namespace") or "")))
        yield cells


def label_text(labels: JsonObject) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def as_table(listed: JsonObject) -> JsonObject:
    """A table of names and creation times, for a server that does not support tables."""
    if listed.get("kind") == "Table":
        return listed
    items = listed["items"] if isinstance(listed.get("items"), list) else [listed]
    return {
        "kind": "Table",
        "metadata": listed.get("metadata") or {},
        "columnDefinitions": [{"name": "Name"}, {"name": "Created"}],
        "rows": [
            {
                "cells": [(each.get("metadata") or {}).get(name) or "" for name in ("name", "creationTimestamp")],
                "object": {"metadata": each.get("metadata") or {}},
            }
            for each in items
        ],
    }


class Columns:
    """Formats rows as they arrive, each column as wide as its widest cell so far, for a watch."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def lines(self, cells: Sequence[Sequence[str]]) -> Iterator[str]:
        for line in cells:
            self._widths += [LEAST_WIDTH] * (len(line) - len(self._widths))
            self._widths = [max(size, display_width(cell)) for size, cell in zip(self._widths, line, strict=False)]
        return aligned(cells, self._widths, GAP)


def _columns(found: JsonObject) -> list[JsonObject]:
    return [each for each in found.get("columnDefinitions") or () if isinstance(each, dict)]


def _metadata(row: JsonObject) -> JsonObject:
    return (row.get("object") or {}).get("metadata") or {}


def _cell(cell: Any) -> str:
    if cell is None:
        return "<none>"
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(cell)


_NANOSECONDS = re.compile(r"[0-9a-f]{15,16}")
_ID = re.compile(r"\b[0-9a-f]{64}\b")


def print_applied(applied: Applied, output: str, *, dry_run: bool = False, notes: Iterable[str] = ()) -> None:
    if output == "json":
        document = {
            "subject": applied.subject,
            "dryRun": dry_run,
            "steps": msgspec.to_builtins(applied.steps),
            "unmet": msgspec.to_builtins(applied.unmet),
        }
        echo_json(document)
        return
    paint = Paint(colourful())
    for line in grouped(applied.steps, paint):
        console.echo(line)
    if applied.steps:
        console.echo(f"{inert(applied.subject)}: {counted(applied.steps)} {'planned (dry run)' if dry_run else 'done'}")
    else:
        console.echo(f"{inert(applied.subject)}: no changes")
    print_unmet(applied.unmet, paint)
    for note in notes:
        console.echo(paint(f"note: {inert(note)}", "dim"), err=True)


def grouped(steps: Sequence[Step], paint: Paint) -> Iterable[str]:
    """One line per step; the writes to one cgroup are listed below its path."""
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
    """Shorten container ids to twelve digits."""
    return _ID.sub(lambda found: found[0][:12], inert(text))


def lines(steps: Sequence[Step], paint: Paint) -> Iterable[str]:
    colours = {Make: "green", Remove: "red"}
    for step in steps:
        verb, _, rest = step_text(step).partition(" ")
        yield f"{paint(verb, colours.get(type(step), 'cyan'))} {_short(rest)}"


def counted(steps: Sequence[Step]) -> str:
    return "1 step" if len(steps) == 1 else f"{len(steps)} steps"


def print_unmet(unmet: Sequence[Unmet], paint: Paint) -> None:
    """One line for each reason, however many files and cgroups have it."""
    grouped: dict[str, list[Unmet]] = {}
    for each in unmet:
        grouped.setdefault(each.reason, []).append(each)
    for reason, some in grouped.items():
        files, paths = (list(dict.fromkeys(getattr(each, name) for each in some)) for name in ("file", "path"))
        first = some[0]
        where = first.path if len(paths) == 1 else f"{first.path} and {len(paths) - 1} more"
        what = f"want {first.want}, have {first.have or 'nothing'}" if len(files) == 1 else "not set"
        console.echo(paint(f"{', '.join(files)}: {what} ({reason}): {where}", "yellow"))


EVICTIONS_HEADER = ("#", "POD", "PRIORITY", "USES", "REQUESTS", "OVER", "BEFORE THE NEXT BECAUSE")


def order_lines(
    order: Sequence[EvictionCandidate], resource: str, paint: Paint, most: int | None = None
) -> Iterator[str]:
    place, rows = 0, []
    for candidate in order[:most]:
        place += not candidate.critical
        rows.append(_row(candidate, place, resource))
    lines = list(table(rows, EVICTIONS_HEADER))
    yield paint(lines[0], "dim") if lines else "no pods"
    yield from lines[1:]
    if most is not None and len(order) > most:
        yield paint(f"and {len(order) - most} more", "dim")


def _row(candidate: EvictionCandidate, place: int, resource: str) -> list[str]:
    request = _number(candidate.request)
    over = candidate.usage - request
    before = "exempt: critical" if candidate.critical else candidate.before
    return [
        "-" if candidate.critical else str(place),
        inert(f"{candidate.namespace or 'default'}/{candidate.name}"),
        str(candidate.priority),
        _shown(candidate.usage, resource) if candidate.has_usage else "unknown",
        "-" if resource == PIDS else _shown(request, resource),
        "-" if resource == PIDS or over <= 0 or not candidate.has_usage else _shown(over, resource),
        inert(before),
    ]


def _number(text: str) -> int:
    try:
        return QUANTITIES[text].value
    except InvalidQuantityError:
        return 0


def _shown(amount: int, resource: str) -> str:
    return human_bytes(amount) if resource in (MEMORY, EPHEMERAL_STORAGE) else str(amount)


EVENTS_HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


def last_seen(event: JsonObject) -> float:
    return epoch_seconds(_time(event)) or 0.0


def event_order(event: JsonObject) -> tuple[int, int]:
    """For sorting, oldest first. Times of events have whole seconds; within one, the name has the nanoseconds of the
    first occurrence (`NAME.18a1f0c0ffee0000`, as client-go names them)."""
    second = int(last_seen(event))
    _, _, text = str((event.get("metadata") or {}).get("name") or "").rpartition(".")
    first_ns = int(text, 16) if _NANOSECONDS.fullmatch(text) else 0
    is_new = first_ns // 1_000_000_000 == second
    return second, first_ns if is_new else (second + 1) * 1_000_000_000


def _time(event: JsonObject) -> object:
    series = event.get("series") or {}
    return (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or (event.get("metadata") or {}).get("creationTimestamp")
    )


def when(event: JsonObject, now_s: float) -> str:
    """`5s`, or `5s (x3 over 2m)`."""
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    last = age(_time(event), now_s)
    if count < 2:
        return last
    first = event.get("firstTimestamp") or event.get("eventTime") or _time(event)
    return f"{last} (x{count} over {age(first, now_s)})"


def row(event: JsonObject, now_s: float, *, namespace: bool = False) -> list[str]:
    about = event.get("involvedObject") or {}
    cells = [
        when(event, now_s),
        inert(str(event.get("type") or "")),
        inert(str(event.get("reason") or "")),
        inert(f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}"),
        message(event),
    ]
    return [inert(str((event.get("metadata") or {}).get("namespace") or "")), *cells] if namespace else cells


def message(event: JsonObject) -> str:
    return inert(" ".join(str(event.get("message") or "").split()))


def json_text(value: Any) -> str:
    """Indented JSON with sorted keys, as kubectl prints it; format characters are escapes, on a terminal also what else
    JSON does not escape."""
    from plimsoll.codec.yaml.writer import json_escaped

    text = json_escaped(msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=4).decode())
    return "\n".join(map(inert, text.splitlines())) if on_terminal() else text


def yaml_text(value: Any) -> str:
    """YAML with the quotes that kubectl uses; control and format characters are escapes."""
    import yaml

    from plimsoll.codec.yaml.writer import has_format, yaml_escaped

    class Dumper(yaml.SafeDumper):
        def choose_scalar_style(self) -> Any:
            style = super().choose_scalar_style()
            return '"' if style == "'" else style

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        style = '"' if has_format(data) else "|" if "\n" in data else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    dumped = yaml.dump(msgspec.to_builtins(value), Dumper=Dumper, allow_unicode=True, width=1 << 20)
    return yaml_escaped(str(dumped)).rstrip("\n")


def shown(value: Any, output: str) -> str:
    return json_text(value) if output == "json" else yaml_text(value)


def without_managed_fields(document: JsonObject) -> JsonObject:
    """The object as kubectl shows it."""
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        return {**document, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    if isinstance(document.get("items"), list):
        return {**document, "items": [without_managed_fields(each) for each in document["items"]]}
    return document
