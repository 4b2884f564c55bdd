"""How `upgrade-check` prints its report: as text, JSON, a page of HTML, or SARIF for code scanning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

import msgspec

from plimsoll import __version__
from plimsoll.cli.terminal import Paint, colourful, inert, table
from plimsoll.rules.explain.upgrade_report import Group, Report, Section

EXAMPLES, VALUES = 3, 3  # how many subjects and values of a group are named in text
LOCATIONS = 10  # of one result in SARIF
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def text_lines(report: Report) -> Iterator[str]:
    paint = Paint(colourful())
    yield paint(f"{report.first} → {report.second}: {report.summary.sentence()}", "bold")
    explained: set[str] = set()
    for section in report.sections:
        yield ""
        for cause in section.causes:
            style = ("red",) if section.breaks else ("yellow",)
            since = f" (since {cause.release})" if cause.release else ""
            yield paint(inert(cause.title), *style) + paint(since, "dim")
            if cause.id in explained:  # in a section above
                continue
            explained.add(cause.id)
            if cause.fact:
                yield f"  {inert(cause.fact)}"
            if cause.advice:
                yield f"  {paint('to do:', 'bold')} {inert(cause.advice)}"
        rows = [tuple(map(inert, row)) for group in section.groups for row in _rows(group)]
        for line in table(rows):
            yield f"  {line}"


def _rows(group: Group) -> Iterator[tuple[str, str, str, str]]:
    """Kind, what, examples, and old → new with how often, the formula and the note below."""
    lines = []
    for old, new, count in group.changes[:VALUES]:
        often = f"  ×{count:,}" if count > 1 or len(group.changes) > 1 else ""
        lines.append(f"{old} → {new}{often}")
    if len(group.changes) > VALUES:
        lines.append(f"… {len(group.changes) - VALUES:,} other pairs of values")
    if group.formula:
        lines.append(f"= {group.formula}")
    if group.note:
        lines.append(group.note)
    yield group.kind, group.what, _examples(group), lines[0]
    yield from (("", "", "", line) for line in lines[1:])


def _examples(group: Group) -> str:
    subjects = list(dict.fromkeys(group.subjects))
    named = ", ".join(subjects[:EXAMPLES])
    more = len(subjects) - EXAMPLES
    return f"{named} and {more:,} more" if more > 0 else named


def json_lines(report: Report) -> Iterator[str]:
    document = {
        "from": report.first,
        "to": report.second,
        "exitCode": report.exit_code,
        "summary": {**msgspec.to_builtins(report.summary), "sentence": report.summary.sentence()},
        "causes": {cause.id: cause for section in report.sections for cause in section.causes},
        "changes": report.changes,
        "notes": report.notes,
    }
    yield msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.4rem }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; border-left: .3rem solid #bf8700; padding-left: .6rem }
h2.breaks { border-color: #cf222e } p { margin: .2rem 0 } .fact { color: #57606a }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; table-layout: auto }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #d0d7de }
td.value { font-family: ui-monospace, monospace; overflow-wrap: anywhere } .note { color: #57606a; font-size: .9em }
summary { cursor: pointer }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3 }
  .fact, .note { color: #9198a1 } th, td { border-color: #3d444d } }
"""


def html_lines(report: Report) -> Iterator[str]:
    """One page without scripts; it refers to nothing outside."""
    title = f"Upgrade {report.first} → {report.second}"
    yield f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_safe(title)}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{_safe(title)}</h1>"
    yield f"<p>{_safe(report.summary.sentence())}</p>"
    for section in report.sections:
        yield from _html_section(section)
    if report.notes:
        yield "<h2>Notes</h2>\n<ul>"
        yield from (f"<li>{_safe(note)}</li>" for note in report.notes)
        yield "</ul>"
    yield "</body>\n</html>"


def _html_section(section: Section) -> Iterator[str]:
    for cause in section.causes:
        since = f" (since {cause.release})" if cause.release else ""
        mark = ' class="breaks"' if section.breaks else ""
        yield f"<h2{mark}>{_safe(cause.title + since)}</h2>"
        if cause.fact:
            yield f'<p class="fact">{_safe(cause.fact)}</p>'
        if cause.advice:
            yield f"<p><b>To do:</b> {_safe(cause.advice)}</p>"
    yield "<table>\n<tr><th>kind</th><th>what</th><th>old → new</th><th>where</th></tr>"
    for group in section.groups:
        values = "<br>".join(
            f"{_safe(old)} → {_safe(new)}" + (f" ×{count:,}" if count > 1 else "")
            for old, new, count in group.changes[:20]
        )
        remarks = "".join(f'<p class="note">{_safe(text)}</p>' for text in (group.formula, group.note) if text)
        named = "<br>".join(map(_safe, dict.fromkeys(group.subjects)))
        where = named
        if len(group.subjects) > EXAMPLES:
            where = f"<details><summary>{_safe(_examples(group))}</summary>{named}</details>"
        kind, what = _safe(group.kind), _safe(group.what)
        yield f'<tr><td>{kind}</td><td>{what}</td><td class="value">{values}{remarks}</td><td>{where}</td></tr>'
    yield "</table>"


def _safe(text: str) -> str:
    return escape(inert(text))


def sarif_lines(report: Report) -> Iterator[str]:
    """SARIF 2.1.0: a rule for each cause, a result for each group."""
    causes = {cause.id: cause for section in report.sections for cause in section.causes}
    rules = [
        {
            "id": cause.id,
            "shortDescription": {"text": cause.title},
            "fullDescription": {"text": cause.fact or cause.title},
            "help": {"text": cause.advice or cause.title},
        }
        for cause in causes.values()
    ]
    driver = {"name": "plimsoll upgrade-check", "version": __version__, "rules": rules}
    results = [_sarif_result(section, group) for section in report.sections for group in section.groups]
    run = {"tool": {"driver": driver}, "results": results, "properties": {"summary": report.summary.sentence()}}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    yield msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _sarif_result(section: Section, group: Group) -> dict[str, object]:
    old, new, _ = group.changes[0]
    text = f"{group.what}: {old} → {new} ({len(group.subjects):,} of this kind: {_examples(group)})"
    return {
        "ruleId": section.causes[0].id,
        "level": "error" if group.breaks else "note" if group.note else "warning",
        "message": {"text": text},
        "locations": [_sarif_location(subject, group.kind) for subject in group.subjects[:LOCATIONS]],
        "properties": {"kind": group.kind, "subjects": len(group.subjects)},
    }


def _sarif_location(subject: str, kind: str) -> dict[str, object]:
    file, colon, line = subject.rpartition(":")
    if kind == "metric" and colon and line.isdecimal():
        return {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": int(line)}}}
    return {"logicalLocations": [{"fullyQualifiedName": subject, "kind": "resource"}]}


PRINTERS: dict[str, Callable[[Report], Iterator[str]]] = {
    "table": text_lines,
    "json": json_lines,
    "html": html_lines,
    "sarif": sarif_lines,
}
