"""Keys and values in etcd, and what they are in the cache.

    <prefix>/objects/<key of the store>   a body; its version is not in it, because only etcd knows it
    <prefix>/meta/…                       the format, shared keys, who leads: see `layout`

A body is stored with a random number as its resourceVersion, and every server puts the revision in when it reads it; by
the number a server recognizes its own write. In encoded JSON the text `"resourceVersion":"` cannot be part of a string,
where quotes are escaped, and `metadata` comes first, so the first occurrence is the object's own. A value that begins
with 0x02 came from a backup: it has the version and the creation that the object had there.
"""

from __future__ import annotations

import re

from plimsoll.store.etcd.messages import KeyValue
from plimsoll.store.records import Record
from plimsoll.store.sealing import Sealing

UNSTAMPED = 0
_FIELD = b'"resourceVersion":"'
_KEPT = b"\x02"
_KEPT_FORM = re.compile(rb"\x02([0-9]+) ([0-9]+)\n", re.ASCII)


class ForeignValueError(Exception):
    """A value that no store has written."""


def stamped(body: bytes, version: int) -> bytes:
    """The body with this version in it."""
    start = body.find(_FIELD)
    if start < 0:
        raise ForeignValueError("it has no metadata.resourceVersion")
    start += len(_FIELD)
    end = body.index(b'"', start)
    return b"%b%d%b" % (body[:start], version, body[end:])


class Layout:
    """The keys below one prefix."""

    def __init__(self, prefix: str) -> None:
        self.root = f"{prefix}/".encode()
        self.end = f"{prefix}0".encode()  # "0" follows "/"
        self.objects = f"{prefix}/objects/".encode()
        self.meta = f"{prefix}/meta/".encode()
        self.format = self.meta + b"format"

    def path(self, key: str) -> bytes:
        return self.objects + key.encode()

    def key(self, path: bytes) -> str | None:
        """None for what is not an object; raises ForeignValueError for what is not ours."""
        if path.startswith(self.objects):
            try:
                key = path[len(self.objects) :].decode()
            except UnicodeDecodeError:
                raise ForeignValueError("it is not text") from None
            if key.count("/") != 3:
                raise ForeignValueError("it is not <group>/<resource>/<namespace>/<name>")
            return key
        if path.startswith(self.meta):
            return None
        raise ForeignValueError("it is neither below objects/ nor below meta/")


def write_id(body: bytes) -> int:
    """The number in a body as it is stored."""
    start = body.find(_FIELD) + len(_FIELD)
    digits = body[start : body.find(b'"', start)]
    return int(digits) if digits.isdigit() else 0


def stored(key: str, body: bytes, identifier: int, sealing: Sealing) -> bytes:
    return sealing.sealed(key, stamped(body, identifier))


def kept(record: Record, sealing: Sealing) -> bytes:
    """From a backup: with its old version."""
    return b"\x02%d %d\n%b" % (record.version, record.created, stored(record.key, record.body, UNSTAMPED, sealing))


def record_of(key: str, found: KeyValue, offset: int, sealing: Sealing) -> Record:
    return record_and_write(key, found, offset, sealing)[0]


def record_and_write(key: str, found: KeyValue, offset: int, sealing: Sealing) -> tuple[Record, int]:
    """With the number of the write. Raises ForeignValueError, or what `sealing` raises."""
    value, version, created = found.value, found.mod_revision + offset, found.create_revision + offset
    if value.startswith(_KEPT):
        head = _KEPT_FORM.match(value)
        if head is None:
            raise ForeignValueError("its head is damaged")
        version, created, value = int(head[1]), int(head[2]), value[head.end() :]
    body = sealing.opened(key, value)
    if not body.startswith(b"{"):
        raise ForeignValueError("it is not JSON")
    return Record(key, version, stamped(body, version), created), write_id(body)
