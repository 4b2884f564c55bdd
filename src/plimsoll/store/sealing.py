"""Encryption at rest: what is written to the disk instead of an object's body.

The store seals a body when it writes it and opens it when it is read at the start; in memory bodies are plain.
Checksums are those of the sealed bytes, so a backup is checked without the key.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from plimsoll.store.records import Record


class Sealing(Protocol):
    def sealed(self, key: str, body: bytes) -> bytes:
        """The bytes for the disk; the body itself for an object that is not encrypted."""
        ...

    def opened(self, key: str, stored: bytes) -> bytes:
        """The body; raises StoreError where it cannot be decrypted."""
        ...


class _Plain:
    def sealed(self, key: str, body: bytes) -> bytes:
        return body

    def opened(self, key: str, stored: bytes) -> bytes:
        return stored


PLAIN = _Plain()


def opened(record: Record, sealing: Sealing) -> Record:
    body = sealing.opened(record.key, record.body)
    return record if body is record.body else msgspec.structs.replace(record, body=body)
