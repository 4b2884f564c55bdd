"""Opening a store in etcd: check that it is one, create it where there is nothing, read all objects.

The objects are read as they were some thousand revisions ago, if etcd still has them, and the watch brings the rest. So
a server has a history when it starts, and watches of other servers can continue on it.
"""

from __future__ import annotations

import re
import uuid

import msgspec

from plimsoll.store.errors import LogRefusedError, StoreNewerError
from plimsoll.store.etcd.client import AmbiguousError, CompactedError, EtcdClient, ForbiddenError, NotSentError
from plimsoll.store.etcd.messages import (
    RANGE,
    STATUS,
    TXN,
    RangeRequest,
    RangeResponse,
    StatusRequest,
    StatusResponse,
    TxnResponse,
)
from plimsoll.store.etcd.shapes import transaction
from plimsoll.store.etcd.values import ForeignValueError, Layout, record_of
from plimsoll.store.records import Record
from plimsoll.store.sealing import Sealing

FORMAT = 1
OLDEST_ETCD = (3, 4)
_SHOWN_TO_ROOT = (3, 5, 28)  # the first release that tells its version only to users with the role root (etcd 21663)
_PAGE = 500
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)
_CREATE_TRIES = 5


class Format(msgspec.Struct, frozen=True):
    """The value of `meta/format`. A resourceVersion is a revision plus `offset`, which is 0 unless a backup with higher
    versions was restored; `since` is the revision from which on that holds."""

    format: int
    id: str
    offset: int = 0
    since: int = 0


class Loaded(msgspec.Struct):
    """Everything below the prefix at one revision."""

    revision: int
    records: dict[str, Record]
    revisions: dict[str, int]  # of the records that have another version than their revision's


def parsed_version(text: str) -> tuple[int, int, int] | None:
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def notifies_of_progress(version: tuple[int, int, int] | None) -> bool:
    """Whether a requested progress notification never overtakes events (etcd issue 15220, corrected in these)."""
    if version is None:
        return False
    return version >= (3, 5, 8) or (3, 4, 25) <= version < (3, 5, 0)


async def checked_version(client: EtcdClient) -> tuple[int, int, int] | None:
    try:
        status = await client.read(STATUS, StatusRequest(), StatusResponse)
    except ForbiddenError:
        return _SHOWN_TO_ROOT
    version = parsed_version(status.version)
    if version is not None and version[:2] < OLDEST_ETCD:
        raise LogRefusedError(
            client.endpoint, f"its version is {status.version}", "Plimsoll needs etcd 3.4 or newer: upgrade it"
        )
    return version


async def read_format(client: EtcdClient, layout: Layout) -> Format:
    """The format of the store; creates it where nothing is below the prefix."""
    for _ in range(_CREATE_TRIES):
        found = await client.read(RANGE, RangeRequest(layout.format), RangeResponse)
        if found.kvs:
            return _checked_format(client, found.kvs[0].value)
        others = await client.read(RANGE, RangeRequest(layout.root, layout.end, limit=1), RangeResponse)
        if others.kvs:
            raise foreign(client, others.kvs[0].key, "there is no meta/format beside it")
        assert found.header is not None
        created = Format(FORMAT, str(uuid.uuid4()), since=found.header.revision)
        txn = transaction(layout.format, 0, msgspec.json.encode(created), None)
        try:
            await client.write_once(TXN, txn, TxnResponse)
        except (AmbiguousError, NotSentError):
            continue  # the next round reads what there is
    raise LogRefusedError(client.where, f"{layout.format.decode()} cannot be created", "Check the log of etcd")


def _checked_format(client: EtcdClient, value: bytes) -> Format:
    try:
        found = msgspec.json.decode(value, type=Format)
    except msgspec.DecodeError as error:
        raise foreign(client, b"meta/format", str(error)) from None
    if found.format > FORMAT:
        raise StoreNewerError(client.location.prefix, found.format, FORMAT)
    return found


async def load(client: EtcdClient, layout: Layout, form: Format, sealing: Sealing, history: int) -> Loaded:
    """All objects, `history` revisions ago if etcd has them, else now."""
    newest = await client.read(RANGE, RangeRequest(layout.format), RangeResponse)
    assert newest.header is not None
    past = max(newest.header.revision - history, form.since)
    try:
        return await _load_at(client, layout, form, sealing, past)
    except CompactedError:
        return await load_now(client, layout, form, sealing)


async def load_now(client: EtcdClient, layout: Layout, form: Format, sealing: Sealing) -> Loaded:
    return await _load_at(client, layout, form, sealing, 0)


async def _load_at(client: EtcdClient, layout: Layout, form: Format, sealing: Sealing, revision: int) -> Loaded:
    loaded = Loaded(revision, {}, {})
    start = layout.root
    while True:
        request = RangeRequest(start, layout.end, limit=_PAGE, revision=loaded.revision)
        page = await client.read(RANGE, request, RangeResponse)
        assert page.header is not None
        loaded.revision = loaded.revision or page.header.revision
        for found in page.kvs:
            try:
                key = layout.key(found.key)
                if key is None:
                    continue
                record = record_of(key, found, form.offset, sealing)
            except ForeignValueError as error:
                raise foreign(client, found.key, str(error)) from None
            loaded.records[key] = record
            if record.version != found.mod_revision + form.offset:
                loaded.revisions[key] = found.mod_revision
        if not page.more:
            return loaded
        start = page.kvs[-1].key + b"\0"


def foreign(client: EtcdClient, key: bytes, reason: str) -> LogRefusedError:
    shown = key.decode("utf-8", "backslashreplace")
    return LogRefusedError(
        client.endpoint,
        f"{shown} was not written by Plimsoll: {reason}",
        "Choose a prefix of its own for the store, such as --store 'etcd://…?prefix=/plimsoll'. Nothing was changed",
    )
