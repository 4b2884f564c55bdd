"""Revisions of a pod template: names by hash, and the ControllerRevisions of StatefulSets and DaemonSets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.rules.model.json_object import JsonObject

REVISION_HASH = "controller-revision-hash"
HASH_LABEL = "controller.kubernetes.io/hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # that spell no words


def name_hash(value: object, collisions: int | None = None) -> str:
    """A short name for a value: equal values have equal names, unless the name was taken by another one before.

    32 bits of FNV-1a in decimal, each digit as a letter: at most 10 of `4` to `9`, `b`, `c`, `d` and `f`.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    digest = 0x811C9DC5
    for byte in text:
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(digest))


class RevisionStep(msgspec.Struct, frozen=True):
    """What happens to the history: at most one of `create` and `renumber`."""

    create: JsonObject | None = None
    renumber: JsonObject | None = None  # an older revision that is used again
    number: int = 0
    current: JsonObject | None = None  # the revision of the present template, if it is stored with its number


def revision_data(owner: Mapping[str, Any]) -> JsonObject:
    """A strategic merge patch that puts the template back: `kubectl rollout undo` applies it."""
    return {"spec": {"template": {**(owner["spec"].get("template") or {}), "$patch": "replace"}}}


def template_of(revision: Mapping[str, Any]) -> JsonObject:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


def number_of(revision: Mapping[str, Any]) -> int:
    return int(revision.get("revision") or 0)


def revision_step(owner: Mapping[str, Any], history: Sequence[JsonObject], reference: JsonObject) -> RevisionStep:
    """Find or make the revision of the owner's template."""
    data = revision_data(owner)
    number = max(map(number_of, history), default=0) + 1
    equal = [each for each in history if each.get("data") == data]
    if equal:
        newest = max(equal, key=number_of)
        if number_of(newest) == number - 1:
            return RevisionStep(current=newest)
        return RevisionStep(renumber=newest, number=number)
    digest = name_hash(data, (owner.get("status") or {}).get("collisionCount"))
    template = owner["spec"].get("template") or {}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest, REVISION_HASH: digest}
    return RevisionStep(
        create={
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{owner['metadata']['name'][: 253 - 1 - len(digest)]}-{digest}",
                "labels": labels,
                "annotations": dict(owner["metadata"].get("annotations") or {}),
                "ownerReferences": [reference],
            },
            "data": data,
            "revision": number,
        },
        number=number,
    )


def surplus_revisions(owner: Mapping[str, Any], history: Sequence[JsonObject], live: Iterable[str]) -> list[JsonObject]:
    """Old revisions beyond `revisionHistoryLimit`, the oldest first; `live` are the names still in use."""
    limit, used = owner["spec"].get("revisionHistoryLimit"), set(live)
    old = sorted((each for each in history if each["metadata"]["name"] not in used), key=number_of)
    return old[: max(len(old) - int(10 if limit is None else limit), 0)]


def hash_of(document: Mapping[str, Any]) -> str:
    """The revision that a pod was made from, as its label says."""
    return str((document["metadata"].get("labels") or {}).get(REVISION_HASH) or "")
