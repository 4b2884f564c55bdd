"""Revisions of a pod template: names by hash, and the ControllerRevisions of StatefulSets and DaemonSets."""

from __future__ import annotations

import json

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
