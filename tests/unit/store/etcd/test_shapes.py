"""The transactions are those that kine accepts; a leader's term is left out where it is not compared."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.net.grpc.status import UNKNOWN, GrpcError
from plimsoll.store.errors import LogRefusedError
from plimsoll.store.etcd.client import EtcdClient, refusal_of
from plimsoll.store.etcd.location import Location
from plimsoll.store.etcd.messages import MOD_REVISION, TxnRequest
from plimsoll.store.etcd.shapes import transaction
from plimsoll.store.fence import FENCE
from plimsoll.store.store import Store
from tests.unit.store.bodies import delete, put


@pytest.mark.parametrize(
    ("revision", "value", "succeeds_with", "fails_with"),
    [(0, b"v", "put", []), (7, b"v", "put", ["range"]), (7, None, "delete", ["range"])],
    ids=["create", "update", "delete"],
)
def test_three_shapes(revision: int, value: bytes | None, succeeds_with: str, fails_with: list[str]) -> None:
    made = transaction(b"/k", revision, value, None)
    (compare,) = made.compare
    assert (compare.key, compare.target, compare.result, compare.mod_revision) == (b"/k", MOD_REVISION, 0, revision)
    (operation,) = made.success
    assert getattr(operation, succeeds_with).key == b"/k"
    assert [name for each in made.failure for name in ("range", "put", "delete") if getattr(each, name)] == fails_with


async def test_a_term_that_cannot_be_compared_is_left_out(where: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kine answers: one comparison only."""
    send, refused = EtcdClient.write_once, 0

    async def write_once(self: EtcdClient, method: str, request: Any, *more: Any) -> Any:
        nonlocal refused
        if isinstance(request, TxnRequest) and len(request.compare) > 1:
            refused += 1
            answer = refusal_of(GrpcError(UNKNOWN, "unsupported transaction: compare:<…>"), "kine", where)
            assert isinstance(answer, LogRefusedError)
            raise answer
        return await send(self, method, request, *more)

    monkeypatch.setattr(EtcdClient, "write_once", write_once)
    store = await Store.open_etcd(where)
    token = FENCE.set(await store.begin_term("test", 0))
    try:
        assert await store.change("/pods/default/web", put(1)) is not None
        assert await store.change("/pods/default/web", delete) is not None
        assert refused == 1  # and not tried again
    finally:
        FENCE.reset(token)
        await store.close()
