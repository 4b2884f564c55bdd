"""Pod usage from the two reports of a cluster: a node's /stats/summary and metrics.k8s.io.

Values that a report lacks are None. Pods are identified by namespace and name: metrics.k8s.io has no uid.
"""

from __future__ import annotations

from typing import Any

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.eviction.usage import NO_FS_USAGE, ContainerUsage, FsUsage, PodUsage
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES

PodKey = tuple[str, str]  # namespace, name


def summary_usage(summary: JsonObject) -> dict[PodKey, PodUsage]:
    found: dict[PodKey, PodUsage] = {}
    for each in _items(summary, "pods"):
        about = _part(each, "podRef")
        found[_text(about, "namespace"), _text(about, "name")] = PodUsage(
            _number(_part(each, "memory"), "workingSetBytes"),
            _number(_part(each, "process_stats"), "process_count"),
            tuple(
                ContainerUsage(
                    _text(container, "name"),
                    _number(_part(container, "memory"), "workingSetBytes"),
                    _fs(_part(container, "rootfs")),
                    _fs(_part(container, "logs")),
                )
                for container in _items(each, "containers")
            ),
            {_text(volume, "name"): _fs(volume) for volume in _items(each, "volume")},
            _number(_part(each, "ephemeral-storage"), "usedBytes"),
        )
    return found


def metrics_usage(listed: JsonObject) -> dict[PodKey, PodUsage]:
    """A PodMetricsList: memory only; a pod's usage is the sum of its containers."""
    found: dict[PodKey, PodUsage] = {}
    for each in _items(listed, "items"):
        about = _part(each, "metadata")
        containers = tuple(
            ContainerUsage(_text(container, "name"), _amount(_part(container, "usage").get("memory")))
            for container in _items(each, "containers")
        )
        known = [container.memory_bytes for container in containers if container.memory_bytes is not None]
        memory = sum(known) if known else None
        found[_text(about, "namespace"), _text(about, "name")] = PodUsage(memory, containers=containers)
    return found


def _fs(part: JsonObject) -> FsUsage:
    used, inodes = _number(part, "usedBytes"), _number(part, "inodesUsed")
    return NO_FS_USAGE if used is None and inodes is None else FsUsage(used, inodes)


def _items(document: JsonObject, name: str) -> list[JsonObject]:
    listed = document.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _part(document: JsonObject, name: str) -> JsonObject:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _text(document: JsonObject, name: str) -> str:
    text = document.get(name)
    return text if isinstance(text, str) else ""


def _number(document: JsonObject, name: str) -> int | None:
    number = document.get(name)
    if isinstance(number, str):  # the YAML and JSON readers keep numbers as text
        return int(number) if number.isdecimal() else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _amount(text: Any) -> int | None:
    try:
        return None if text is None else QUANTITIES[str(text)].value
    except InvalidQuantityError:
        return None
