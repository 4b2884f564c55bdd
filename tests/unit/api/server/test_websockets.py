"""WebSockets count among the long requests of their user, as watches do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.users import AUTHENTICATED, User
from tests.unit.api.api_client import ADMIN, PODS, ApiClient, Message, api, pod

EVE, BINDINGS = User("eve", frozenset({AUTHENTICATED})), "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def socket(ask: ApiClient, sent: list[Message]) -> None:
    """A request for exec; what the server sends is added to `sent`."""

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    path = f"{PODS}/demo/exec"
    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
    await ask.app(scope, receive, send)


async def test_websockets_of_one_user_are_limited(tmp_path: Path) -> None:
    opened, may_end = asyncio.Event(), asyncio.Event()

    async def serve(*_: Any) -> None:
        opened.set()
        await may_end.wait()

    limits = Limits(user_watches=1)
    async with api(tmp_path, limits=limits, sockets={("", "pods", "exec"): serve}) as ask:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}
        await ask.ok("POST", BINDINGS, {"metadata": {"name": "eve"}, "roleRef": role, "subjects": [subject]})
        await ask.ok("POST", PODS, pod())
        ask.user, sent = EVE, list[Message]()
        first = asyncio.create_task(socket(ask, []))
        await opened.wait()
        await socket(ask, sent)
        assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 429)
        assert (await ask("GET", f"{PODS}?watch=1")).code == 429
        ask.user, other = ADMIN, asyncio.create_task(socket(ask, refused := []))
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(first, other)
        assert not refused
        ask.user = EVE
        await socket(ask, again := [])
        assert not again
