"""The transactions that are sent to etcd. There are three shapes, those that kine accepts, too:

    create: compare mod == 0, put
    update: compare mod == revision, put, else range
    delete: compare mod == revision, deleteRange, else range

A write under a fence also compares the leader's term. kine refuses that; there the leader's deadline alone protects.
"""

from __future__ import annotations

from plimsoll.store.etcd.messages import Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest
from plimsoll.store.fence import Fence


def transaction(path: bytes, revision: int, value: bytes | None, fence: Fence | None) -> TxnRequest:
    compare: tuple[Compare, ...] = (Compare(key=path, mod_revision=revision),)
    read = (RequestOp(range=RangeRequest(path)),)
    write = RequestOp(delete=DeleteRangeRequest(path)) if value is None else RequestOp(put=PutRequest(path, value))
    if fence is not None:
        compare += (Compare(key=fence.key, mod_revision=fence.revision),)
    return TxnRequest(compare, (write,), read if revision or fence is not None else ())
