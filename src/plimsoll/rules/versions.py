"""Two versions of one pod, the stored and the wanted, and how to ask what changed apart from cpu and memory.

Lean pods lack most fields, so a version has both views: rules compute with the *pod*; whether anything else changed is
asked of the *document*. That question is always put in the same way: give the new version the old cpu and memory
(*mask* it) and compare the whole with the old one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from plimsoll.rules.objects import CPU, MEMORY, Container, Pod

Document = dict[str, Any]

LISTS: tuple[Literal["requests", "limits"], ...] = ("requests", "limits")
CONTAINER_KINDS = ("containers", "initContainers")


class Version(msgspec.Struct, frozen=True):
    """Both views of a version. The document is defaulted: its resource lists are those of the pod."""

    document: Document
    pod: Pod


def spec_of(document: Document) -> Document:
    return document.get("spec") or {}


def containers_of(document: Document, kind: str) -> list[Document]:
    return [container or {} for container in spec_of(document).get(kind) or ()]


def container_pairs(old: Document, new: Document, kind: str) -> list[tuple[Document, Document]]:
    """Containers matched by place; both lists must be equally long."""
    return list(zip(containers_of(old, kind), containers_of(new, kind), strict=True))


def container_lists(old: Pod, new: Pod) -> Iterable[tuple[str, tuple[Container, ...], tuple[Container, ...]]]:
    """Each kind of container with both pods' lists."""
    yield "containers", old.spec.containers, new.spec.containers
    yield "initContainers", old.spec.init_containers, new.spec.init_containers


def masked_container(before: Document, after: Document) -> Document:
    return {**after, "resources": masked_resources(before.get("resources"), after.get("resources"))}


def masked_resources(before: Document | None, after: Document | None) -> Document:
    """Only requests and limits: claims get lost, so that old ones always count as a change and new ones never."""
    return {kind: _masked_list((before or {}).get(kind), (after or {}).get(kind)) for kind in LISTS}


def _masked_list(before: Document | None, after: Document | None) -> Document:
    masked = {name: amount for name, amount in (after or {}).items() if name not in (CPU, MEMORY)}
    for name in (CPU, MEMORY):
        if before and name in before:
            masked[name] = before[name]
    return masked
