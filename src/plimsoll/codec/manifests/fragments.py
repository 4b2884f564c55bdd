"""Fragments of manifests, as articles print them: completed to a pod, with a list of what was assumed.

A fragment has no kind: `spec:`, `containers:`, one container, or `resources:` alone. A pod, whole or not, may lack the
names and images that no value depends on. What a fragment contains is never changed.

Some articles print containers without the dash of a list item, which is not YAML; `with_list_items` adds it:

    containers:                  containers:
      name: foo            →       - name: foo
        resources: …                 resources: …
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from plimsoll.codec.manifests.manifests import FoundPod
from plimsoll.codec.manifests.unknown_fields import CONTAINER, POD_SPEC, RESOURCES

_LISTS = ("initContainers", "containers")
_STATUSES = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
_BLOCK = r"( *)(?:containers|initContainers):\s*(?:#.*)?$"
_BARE_NAME = r"( *)name:(\s|$)"
_IMAGE = "assumed"


class Completed(msgspec.Struct, frozen=True):
    found: FoundPod
    assumed: tuple[str, ...]


def fragment(document: Any) -> Completed | None:
    """The pod that a document without a kind is a part of; None if it is none."""
    if not isinstance(document, dict) or "kind" in document or not document:
        return None
    names = document.keys()
    if "spec" in names and _is_pod_spec(document["spec"]) and names <= {"apiVersion", "metadata", "spec", "status"}:
        pod, part = document, ""
    elif _is_pod_spec(document):
        pod, part = {"spec": document}, "spec"
    elif names & {"resources", "image"} and names <= CONTAINER:
        pod, part = {"spec": {"containers": [document]}}, "spec.containers[0]"
    elif names & {"requests", "limits"} and names <= RESOURCES:
        pod, part = {"spec": {"containers": [{"resources": document}]}}, "spec.containers[0].resources"
    else:
        return None
    whole = {"apiVersion": "v1", "kind": "Pod", **pod}
    completed = named(FoundPod(whole, (), _name(whole) or "pod", part=part))
    return Completed(completed.found, ("kind Pod", *completed.assumed))


def named(found: FoundPod) -> Completed:
    """The pod with the names and images that it lacks."""
    document, assumed = dict(found.document), []
    metadata = document.get("metadata") or {}
    if isinstance(metadata, dict) and not (metadata.get("name") or metadata.get("generateName")):  # not `name: 123`
        document["metadata"] = {**metadata, "name": "pod"}
        assumed.append("name pod")
    spec = document.get("spec")
    if isinstance(spec, dict):
        status = document.get("status") if isinstance(document.get("status"), dict) else {}
        spec, status = dict(spec), dict(status or {})
        for kind in _LISTS:
            if isinstance(spec.get(kind), list):
                spec[kind] = [_container(each, place, kind, assumed) for place, each in enumerate(spec[kind])]
                _name_statuses(status, _STATUSES[kind], spec[kind])
        document["spec"] = spec
        if status:
            document["status"] = status
    if not assumed:
        return Completed(found, ())
    return Completed(msgspec.structs.replace(found, document=document), tuple(assumed))


def _container(container: Any, place: int, kind: str, assumed: list[str]) -> Any:
    if not isinstance(container, dict):
        return container
    missing = {}
    if container.get("name") is None:
        missing["name"] = f"{'init' if kind == 'initContainers' else 'container'}-{place + 1}"
        assumed.append(f"name {missing['name']}")
    if container.get("image") is None:
        missing["image"] = _IMAGE
        assumed.append(f"an image for {missing.get('name') or container.get('name')}")
    return {**container, **missing}


def _name_statuses(status: dict[str, Any], field: str, containers: list[Any]) -> None:
    """A status without a name belongs to the container in the same place."""
    if isinstance(status.get(field), list):
        status[field] = [
            {"name": of["name"], **each} if isinstance(each, dict) and isinstance(of, dict) else each
            for each, of in zip(status[field], containers, strict=False)
        ]


def with_list_items(text: str) -> tuple[str, list[int]]:
    """The text with a dash before each bare `name:` of a list of containers, and the lines that got one."""
    lines, changed = text.split("\n"), []
    outer = inner = -1  # indents: of the list's key, of its bare names
    for place, line in enumerate(lines):
        indent = len(line) - len(line.lstrip(" "))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if outer >= 0 and indent <= outer:
            outer = inner = -1
        bare = re.match(_BARE_NAME, line)
        if outer >= 0 and bare and inner in (-1, indent):
            inner = indent
            lines[place] = f"{bare[1]}- {line.lstrip()}"
            changed.append(place + 1)
        elif (block := re.match(_BLOCK, line)) is not None:
            outer, inner = len(block[1]), -1
    return "\n".join(lines), changed


def _is_pod_spec(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.keys() & set(_LISTS)) and value.keys() <= POD_SPEC


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else ""
    return name if isinstance(name, str) else ""
