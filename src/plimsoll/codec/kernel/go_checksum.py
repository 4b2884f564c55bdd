"""The checksum of the kubelet's checkpoints: FNV-1a, 32 bits, over Go's text of a structure (CM-27)."""

from __future__ import annotations

from plimsoll.errors import PlimsollError

OFFSET, PRIME = 0x811C9DC5, 0x01000193


class CorruptCheckpointError(PlimsollError):
    pass


def fnv1a(text: str) -> int:
    value = OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * PRIME) & 0xFFFFFFFF
    return value
