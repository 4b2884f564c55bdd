"""Tables as the server makes them (`kubectl get` asks for the same), printed as kubectl prints them.

The server decides columns and cells; columns with a priority above 0 are for `-o wide`. All cells come from a cluster,
so all of them are made harmless first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll.cli.output import display_width, inert

Document = dict[str, Any]
ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
GAP = "   "  # three blanks, as kubectl


def header(found: Document, *, wide: bool, namespaces: bool) -> list[str]:
    names = [inert(str(each.get("name", ""))).upper() for each in _columns(found) if wide or not each.get("priority")]
    return ["NAMESPACE", *names] if namespaces else names


def rows(found: Document, *, wide: bool, namespaces: bool, prefix: str = "") -> Iterator[list[str]]:
    """`prefix`: `pod/` where several kinds are shown, before the name."""
    columns = _columns(found)
    for row in found.get("rows") or ():
        cells = [
            inert(_cell(cell))
            for column, cell in zip(columns, row.get("cells") or (), strict=False)
            if wide or not column.get("priority")
        ]
        if cells and prefix:
            cells[0] = prefix + cells[0]
        if namespaces:
            cells.insert(0, inert(str(_metadata(row).get("namespace") or "")))
        yield cells


def names(found: Document) -> list[str]:
    return [str(_metadata(row).get("name") or "") for row in found.get("rows") or ()]


def as_table(listed: Document) -> Document:
    """For a server that makes no tables: names and when they were made."""
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
    """Prints rows as they come, as wide as the widest so far: a watch cannot wait for the last one."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def lines(self, cells: Sequence[Sequence[str]]) -> Iterator[str]:
        for line in cells:
            self._widths += [0] * (len(line) - len(self._widths))
            self._widths = [max(size, display_width(cell)) for size, cell in zip(self._widths, line, strict=False)]
        for line in cells:
            padded = (cell + " " * (size - display_width(cell)) for cell, size in zip(line, self._widths, strict=False))
            yield GAP.join(padded).rstrip()


def _columns(found: Document) -> list[Document]:
    return [each for each in found.get("columnDefinitions") or () if isinstance(each, dict)]


def _metadata(row: Document) -> Document:
    return (row.get("object") or {}).get("metadata") or {}


def _cell(cell: Any) -> str:
    if cell is None:
        return "<none>"
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(cell)
