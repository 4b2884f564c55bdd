"""`kubectl get` of custom kinds: the columns that their definition names."""

from __future__ import annotations

from typing import Any

from plimsoll.api.tables.columns import AGE, NAME, Printer, TableColumn
from plimsoll.api.tables.pod_printer import part
from plimsoll.codec.golang.fmt import go_printed
from plimsoll.codec.jsonpath.parser import TemplateError
from plimsoll.codec.jsonpath.template import JsonPath
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import age, epoch_seconds

_AGE_PATH = ".metadata.creationTimestamp"


def custom_printer(columns: tuple[JsonObject, ...]) -> Printer:
    """Without columns: name and age."""
    if not columns:
        columns = ({"name": AGE.name, "type": "date", "jsonPath": _AGE_PATH, "description": AGE.description},)
    shown = tuple(
        TableColumn(
            column["name"],
            column["type"],
            column.get("description") or "",
            column.get("priority") or 0,
            column.get("format") or "",
        )
        for column in columns
    )
    paths = [(column["type"], _path(column["jsonPath"])) for column in columns]

    def cells(document: JsonObject, now_s: float) -> list[Any]:
        name = part(document, "metadata").get("name") or ""
        return [name, *(_cell(type_, path, document, now_s) for type_, path in paths)]

    return Printer((NAME, *shown), cells)


def _path(text: str) -> JsonPath | None:
    try:
        return JsonPath(f"{{{text}}}")
    except TemplateError:
        return None


def _cell(type_: str, path: JsonPath | None, document: JsonObject, now_s: float) -> Any:
    """None where the object has no such field, or not of this type."""
    try:
        found = path.results(document) if path is not None else []
    except TemplateError:
        return None
    values = found[0] if found else []
    if not values or values[0] is None:
        return None
    value = values[0]
    if type_ == "string":
        return " ".join(each if isinstance(each, str) else go_printed(each) for each in values)
    if type_ == "date":
        return age(value, now_s) if isinstance(value, str) and epoch_seconds(value) is not None else "<invalid>"
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if type_ == "integer" else float(value)
