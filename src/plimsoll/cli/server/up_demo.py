"""The demo pods of `plimsoll up`: their manifests, and why one does not run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plimsoll.cli.terminal import inert
from plimsoll.errors import PlimsollError
from plimsoll.rules.model.json_object import JsonObject


def manifests(file: Path | None) -> Iterator[JsonObject]:
    from plimsoll.codec.yaml.reader import YamlError, read

    for found in read(file.read_bytes()) if file is not None else ():
        if isinstance(found, YamlError):
            raise PlimsollError(f"{file}: {found}")
        yield found.value


def is_over(pod: JsonObject) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_elsewhere(pod: JsonObject, node: str) -> bool:
    return pod["spec"].get("nodeName") not in (None, "", node)


def is_ready(pod: JsonObject) -> bool:
    status = pod.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return status.get("phase") == "Running" and conditions.get("Ready") == "True"


def problems(pods: list[JsonObject], node: str) -> Iterator[str]:
    for pod in pods:
        status, bound_to = pod.get("status") or {}, pod["spec"].get("nodeName") or node
        if bound_to != node:
            title = f"pod {pod['metadata']['name']} is bound to node {inert(bound_to)} of an earlier run"
            yield f"{title}: start with --name {inert(bound_to)}, or with --fresh to begin without it"
            continue
        false = {each["type"]: each for each in status.get("conditions") or () if each.get("status") != "True"}
        waiting = [(each.get("state") or {}).get("waiting") or {} for each in status.get("containerStatuses") or ()]
        parts = [false.pop("PodScheduled", {}), *waiting, *false.values()]
        why = [f"{each.get('reason', '')} {each.get('message', '')}".strip() for each in parts]
        reason = status.get("message") or next(filter(None, why), "no status yet")
        yield f"pod {pod['metadata']['name']} is not running: {status.get('phase', 'Unknown')}, {inert(reason)}"
