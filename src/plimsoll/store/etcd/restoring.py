"""A backup into an etcd whose prefix is empty. Objects keep their UIDs, resourceVersions and creation.

etcd's revision cannot be set, so the versions of the store continue by an offset: resourceVersion = revision + offset,
above all versions of the backup (`opening.Format`). The values that are restored have their old version in them. The
format is written last: what an interrupted restore leaves is refused by every server.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import msgspec

from plimsoll.store.errors import LogRefusedError, LogUnreachableError
from plimsoll.store.etcd.client import AmbiguousError, EtcdClient, NotSentError
from plimsoll.store.etcd.location import Location
from plimsoll.store.etcd.messages import RANGE, TXN, RangeRequest, RangeResponse, TxnResponse
from plimsoll.store.etcd.opening import FORMAT, Format, checked_version
from plimsoll.store.etcd.shapes import transaction
from plimsoll.store.etcd.values import Layout, kept
from plimsoll.store.records import Record
from plimsoll.store.sealing import Sealing

JUMP = 1_000_000  # as a restore into SQLite: no version has two meanings
_AT_ONCE = 32
_TRIES = 40
_PAUSE_S = 0.1


async def restore(where: Location, records: Sequence[Record], version: int, sealing: Sealing) -> int:
    """The offset of the new store; `version` is the highest one that the backup's store has used."""
    client, layout = EtcdClient(where), Layout(where.prefix)
    try:
        await checked_version(client)
        found = await client.read(RANGE, RangeRequest(layout.root, layout.end, limit=1), RangeResponse)
        if found.kvs:
            raise LogRefusedError(
                client.endpoint,
                f"{where.prefix}/ is not empty: it has {found.kvs[0].key.decode(errors='backslashreplace')}",
                "Restore to another prefix, or stop all API servers and delete what is there (`etcdctl del --prefix "
                f"{where.prefix}/`). Nothing was changed",
            )
        places = asyncio.Semaphore(_AT_ONCE)

        async def put(record: Record) -> None:
            async with places:
                await _put(client, layout.path(record.key), kept(record, sealing))

        await asyncio.gather(*map(put, records))
        newest = await client.read(RANGE, RangeRequest(layout.format), RangeResponse)
        assert newest.header is not None
        revision = newest.header.revision
        offset = max(0, version + JUMP - revision)
        form = Format(FORMAT, str(uuid.uuid4()), offset, since=revision)
        await _put(client, layout.format, msgspec.json.encode(form))
        return offset
    finally:
        client.close()


async def _put(client: EtcdClient, path: bytes, value: bytes) -> None:
    """No other process writes here, so an attempt that finds the key has been made."""
    reason = ""
    for _ in range(_TRIES):
        try:
            await client.write_once(TXN, transaction(path, 0, value, None), TxnResponse)
            return
        except (AmbiguousError, NotSentError) as error:
            reason = str(error)
            await asyncio.sleep(_PAUSE_S)
    raise LogUnreachableError(client.where, reason)
