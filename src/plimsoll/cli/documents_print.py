"""API objects as JSON or YAML, and how errors and results are put into lines."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.cli.output import inert, on_terminal

Document = dict[str, Any]


def json_text(value: Any) -> str:
    """Indented. JSON escapes what is below U+0020; the rest is made harmless where a terminal would read it."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=4).decode()
    return "\n".join(map(inert, text.splitlines())) if on_terminal() else text


def yaml_text(value: Any) -> str:
    """PyYAML escapes control characters by itself."""
    import yaml

    return str(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True)).rstrip("\n")


def shown(value: Any, output: str) -> str:
    return json_text(value) if output == "json" else yaml_text(value)


def without_managed_fields(document: Document) -> Document:
    """As kubectl shows objects."""
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        return {**document, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    if isinstance(document.get("items"), list):
        return {**document, "items": [without_managed_fields(each) for each in document["items"]]}
    return document
