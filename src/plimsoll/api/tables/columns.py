"""The columns of a table, and the cells that nearly every kind has (05 B7).

A `Printer` has its columns in the order they are sent; those with priority 1 show up with `-o wide`. Cells are computed
for each response, because ages and some states depend on the current time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from plimsoll.api.tables.pod_printer import part
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import age

Cells = Callable[[JsonObject, float], list[Any]]

AGE_TEXT = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC."
)
NAME_TEXT = "Name must be unique within a namespace."


class TableColumn(msgspec.Struct, frozen=True):
    name: str
    type: Literal["string", "integer", "boolean", "date"] = "string"
    description: str = ""
    priority: int = 0
    format: str = ""

    def definition(self) -> JsonObject:
        return {field: getattr(self, field) for field in ("name", "type", "format", "description", "priority")}


class Printer(msgspec.Struct, frozen=True):
    columns: tuple[TableColumn, ...]
    cells: Cells


NAME = TableColumn("Name", description=NAME_TEXT, format="name")
AGE = TableColumn("Age", description=AGE_TEXT)


def columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[TableColumn, ...]:
    """Name, then these, then those that only `-o wide` shows."""
    plain = tuple(AGE if name == "Age" else TableColumn(name) for name in names)
    return (NAME, *plain, *(TableColumn(name, priority=1) for name in wide))


def created(document: JsonObject) -> Any:
    return part(document, "metadata").get("creationTimestamp")


def name_of(document: JsonObject) -> str:
    return part(document, "metadata").get("name") or ""


def age_of(document: JsonObject, now_s: float) -> str:
    return age(created(document), now_s)


def named(middle: Callable[[JsonObject], list[Any]]) -> Cells:
    """Name, these cells, Age."""
    return lambda document, now_s: [name_of(document), *middle(document), age_of(document, now_s)]
