"""The relay between a client's WebSocket (ASGI) and a node's."""

from __future__ import annotations

import asyncio
from typing import Any

from plimsoll.api.nodeproxy.streams import _relay
from plimsoll.kube.websocket import connect
from plimsoll.net.websocket import WebSocket
from tests.unit.net.websocket_server import Serve, websocket_server

Message = dict[str, Any]


async def _relayed(serve: Serve, *messages: Message) -> list[Message]:
    """What the client gets when it sends these messages and then keeps quiet."""
    sent: list[Message] = []
    queue: asyncio.Queue[Message] = asyncio.Queue()
    for message in messages:
        queue.put_nowait(message)

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(0)  # lets the client's messages in

    async with websocket_server(serve) as port:
        far = await connect("127.0.0.1", port, "/exec", tls=None, server_name=None, subprotocols=["v5.channel.k8s.io"])
        await _relay(far, queue.get, send)
        await far.close()
    return sent


async def test_messages_are_forwarded_both_ways_until_the_node_closes() -> None:
    received = []

    async def serve(node: WebSocket) -> None:
        received.extend([await node.receive(), await node.receive()])
        await node.send(b"\x01out")
        await node.close()

    messages = ({"type": "websocket.receive", "bytes": b"\x00in"}, {"type": "websocket.receive", "text": "\x04{}"})
    assert await _relayed(serve, *messages) == [
        {"type": "websocket.send", "bytes": b"\x01out"},
        {"type": "websocket.close", "code": 1000},
    ]
    assert received == [b"\x00in", b"\x04{}"]


async def test_messages_after_the_node_has_closed_are_dropped() -> None:
    async def serve(node: WebSocket) -> None:
        await node.close()

    late = [{"type": "websocket.receive", "bytes": b"\x00late"}] * 50
    assert await _relayed(serve, *late) == [{"type": "websocket.close", "code": 1000}]


async def test_a_client_that_leaves_ends_the_session() -> None:
    async def serve(node: WebSocket) -> None:
        assert await node.receive() is None

    assert await _relayed(serve, {"type": "websocket.disconnect"}) == []


async def test_a_client_that_has_gone_ends_the_relay() -> None:
    class Node:
        async def receive(self) -> bytes | None:
            return b"\x01output"

        async def send(self, data: bytes) -> None:
            raise AssertionError("the client sent nothing")

    async def never() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def refuse(message: object) -> None:
        raise RuntimeError("Expected ASGI message 'websocket.accept'")  # as uvicorn does after the client has closed

    async with asyncio.timeout(60):
        await _relay(Node(), never, refuse)
