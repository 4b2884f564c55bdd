"""A KubeletConfig as a document, for a node's `/configz`.

Every setting with an effect is written, by the rows of `table`; parsed with the same profile it gives the same
configuration. Headers for static pods may contain a secret, so only their names are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.rules.config.field_types import Kind
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.config.table import API_VERSION, KIND, ROWS
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.json_object import JsonObject

MASKED = "<masked>"

# Kinds that are not listed are written unchanged.
_WRITTEN: dict[Kind, Callable[[Any], Any]] = {
    "duration": lambda seconds: f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 10**9)}ns",
    "period": lambda micros: f"{micros}us",
    "texts": list,
    "cpus": cpu_text,
    "quantities": lambda amounts: {name: str(amount) for name, amount in amounts.items()},
    "quantity": str,
    "percentages": lambda shares: {name: f"{share}%" for name, share in shares.items()},
    "headers": lambda headers: {name: [MASKED] for name in headers},
}


def config_document(config: KubeletConfig) -> JsonObject:
    document: JsonObject = {"apiVersion": API_VERSION, "kind": KIND}
    for row in ROWS:
        value = getattr(config, row.attribute) if row.attribute and row.in_file else None
        if value is None:
            continue
        *groups, name = row.name.split(".")
        level = document
        for group in groups:
            level = level.setdefault(group, {})
        level[name] = _WRITTEN.get(row.kind, lambda written: written)(value)
    return document
