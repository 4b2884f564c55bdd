"""The messages of etcd's API (v3) that a store needs, with only the fields that it reads and writes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned

RANGE, TXN, COMPACT = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Compact"
WATCH, STATUS = "/etcdserverpb.Watch/Watch", "/etcdserverpb.Maintenance/Status"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
EQUAL, MOD_REVISION = 0, 2  # of Compare: result, target
DELETE = 1  # of Event; PUT is 0


class Header(msgspec.Struct, frozen=True):
    cluster_id: Annotated[Unsigned, 1] = Unsigned(0)
    member_id: Annotated[Unsigned, 2] = Unsigned(0)
    revision: Annotated[int, 3] = 0


class KeyValue(msgspec.Struct, frozen=True):
    key: Annotated[bytes, 1] = b""
    create_revision: Annotated[int, 2] = 0
    mod_revision: Annotated[int, 3] = 0
    value: Annotated[bytes, 5] = b""


class RangeRequest(msgspec.Struct, frozen=True):
    key: Annotated[bytes, 1]
    range_end: Annotated[bytes, 2] = b""
    limit: Annotated[int, 3] = 0
    revision: Annotated[int, 4] = 0


class RangeResponse(msgspec.Struct, frozen=True):
    header: Annotated[Header | None, 1] = None
    kvs: Annotated[tuple[KeyValue, ...], 2] = ()
    more: Annotated[bool, 3] = False


class PutRequest(msgspec.Struct, frozen=True):
    key: Annotated[bytes, 1]
    value: Annotated[bytes, 2] = b""


class DeleteRangeRequest(msgspec.Struct, frozen=True):
    key: Annotated[bytes, 1]


class RequestOp(msgspec.Struct, frozen=True):
    range: Annotated[RangeRequest | None, 1] = None
    put: Annotated[PutRequest | None, 2] = None
    delete: Annotated[DeleteRangeRequest | None, 3] = None


class ResponseOp(msgspec.Struct, frozen=True):
    range: Annotated[RangeResponse | None, 1] = None


class Compare(msgspec.Struct, frozen=True):
    result: Annotated[int, 1] = EQUAL
    target: Annotated[int, 2] = MOD_REVISION
    key: Annotated[bytes, 3] = b""
    mod_revision: Annotated[int, 6] = 0


class TxnRequest(msgspec.Struct, frozen=True):
    compare: Annotated[tuple[Compare, ...], 1]
    success: Annotated[tuple[RequestOp, ...], 2]
    failure: Annotated[tuple[RequestOp, ...], 3] = ()


class TxnResponse(msgspec.Struct, frozen=True):
    header: Annotated[Header | None, 1] = None
    succeeded: Annotated[bool, 2] = False
    responses: Annotated[tuple[ResponseOp, ...], 3] = ()


class WatchCreateRequest(msgspec.Struct, frozen=True):
    key: Annotated[bytes, 1]
    range_end: Annotated[bytes, 2] = b""
    start_revision: Annotated[int, 3] = 0
    progress_notify: Annotated[bool, 4] = False


class WatchProgressRequest(msgspec.Struct, frozen=True):
    pass


class WatchRequest(msgspec.Struct, frozen=True):
    create: Annotated[WatchCreateRequest | None, 1] = None
    progress: Annotated[WatchProgressRequest | None, 3] = None


class Event(msgspec.Struct, frozen=True):
    type: Annotated[int, 1] = 0
    kv: Annotated[KeyValue | None, 2] = None


class WatchResponse(msgspec.Struct, frozen=True):
    header: Annotated[Header | None, 1] = None
    created: Annotated[bool, 3] = False
    canceled: Annotated[bool, 4] = False
    compact_revision: Annotated[int, 5] = 0
    cancel_reason: Annotated[str, 6] = ""
    events: Annotated[tuple[Event, ...], 11] = ()


class StatusRequest(msgspec.Struct, frozen=True):
    pass


class StatusResponse(msgspec.Struct, frozen=True):
    header: Annotated[Header | None, 1] = None
    version: Annotated[str, 2] = ""
    errors: Annotated[tuple[str, ...], 8] = ()


class CompactionRequest(msgspec.Struct, frozen=True):
    revision: Annotated[int, 1]


class CompactionResponse(msgspec.Struct, frozen=True):
    header: Annotated[Header | None, 1] = None


class AuthenticateRequest(msgspec.Struct, frozen=True):
    name: Annotated[str, 1]
    password: Annotated[str, 2]


class AuthenticateResponse(msgspec.Struct, frozen=True):
    token: Annotated[str, 2] = ""
