"""A drawing → one HTML page that needs nothing else: the picture, what to know about it, and its table.

The content security policy allows only the two style sheets of the page, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

import msgspec

from plimsoll.rules.picture.figure import Drawing
from plimsoll.rules.picture.model import Picture
from plimsoll.rules.picture.rows import HEADER, Row, table_rows
from plimsoll.rules.picture.style import PAGE_SHEET, sheet
from plimsoll.rules.picture.svg import escaped, svg_element, title

_NUMBERS, _FORMULAS = ("declared", "effective"), ("formula", "source")


def page(drawing: Drawing) -> str:
    policy = f"default-src 'none'; style-src {_hash(PAGE_SHEET)} {_hash(sheet())}; base-uri 'none'; form-action 'none'"
    heading = escaped(title(drawing))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{heading}</title><style>{PAGE_SHEET}</style></head><body>",
            f"<h1>{heading}</h1>",
            f'<div class="wide">{svg_element(drawing)}</div>',
            *(part for index in range(len(drawing.pictures)) for part in _section(drawing, index)),
            "</body></html>\n",
        ]
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _section(drawing: Drawing, index: int) -> Iterator[str]:
    picture = drawing.pictures[index]
    yield f"<h2>{escaped(drawing.names[index] if drawing.names else 'Values')}</h2>"
    if remarks := list(_remarks(picture)):
        yield f"<ul>{''.join(f'<li>{escaped(remark)}</li>' for remark in remarks)}</ul>"
    yield f'<div class="wide"><table><caption>{escaped(picture.facts)}</caption><thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in HEADER)
    yield "</tr></thead><tbody>"
    yield from map(_row, table_rows(picture))
    yield "</tbody></table></div>"


def _remarks(picture: Picture) -> Iterator[str]:
    yield from picture.remarks
    for vessel in picture.everything():
        for remark in vessel.remarks:
            yield f"{vessel.name}: {remark}"


def _row(row: Row) -> str:
    cells = []
    for name, value in zip(Row.__struct_fields__, msgspec.structs.astuple(row), strict=True):
        style = "number" if name in _NUMBERS else "formula" if name in _FORMULAS else ""
        cells.append(f'<td class="{style}">{escaped(value)}</td>' if style else f"<td>{escaped(value)}</td>")
    return f"<tr>{''.join(cells)}</tr>"
