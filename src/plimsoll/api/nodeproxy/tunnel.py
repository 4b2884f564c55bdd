"""An upgraded connection passed through to a node, byte by byte: streams over SPDY/3.1, for kubectl up to 1.29.

The API server negotiates nothing: it sends the upgrade request to the node with its own credentials, returns the node's
response, and copies bytes in both directions until one side closes, as a kube-apiserver does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from plimsoll.aio import cancel_all
from plimsoll.api.machinery.exchange import Streams
from plimsoll.codec.spdy import PROTOCOL, VERSION_HEADER
from plimsoll.kube.request import ApiResponse, UnreachableError

CONNECT_S = 10.0
BODY_BYTES, CHUNK = 1 << 16, 1 << 16


def is_spdy(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"upgrade" and value.lower() == PROTOCOL.lower().encode() for name, value in headers)


def offered_versions(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    wanted = VERSION_HEADER.lower().encode()
    return [value.decode("latin-1") for name, value in headers if name == wanted]


def upgrade_request(host: str, target: str, versions: Iterable[str]) -> bytes:
    """Only the offered stream protocols are taken over from the client."""
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", f"Upgrade: {PROTOCOL}"]
    lines += [f"{VERSION_HEADER}: {version}" for version in versions]
    return "\r\n".join([*lines, "Content-Length: 0", "", ""]).encode("latin-1")


async def upgraded(node: Streams, request: bytes) -> bytes | ApiResponse:
    """The head of the node's 101, or its refusal. UnreachableError where it does not answer."""
    reader, writer = node
    try:
        async with asyncio.timeout(CONNECT_S):
            writer.write(request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(None, 2)[1])
            if status == 101:
                return head
            return ApiResponse(status, await reader.read(BODY_BYTES))
    except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError, TimeoutError) as error:
        raise UnreachableError(f"the node did not answer the upgrade: {error}") from error


class SpdyMessages:
    """The node's SPDY connection in pieces, each of which becomes one message."""

    def __init__(self, node: Streams) -> None:
        self._reader, self._writer = node

    async def receive(self) -> bytes | None:
        """None at the end."""
        with suppress(OSError):
            return await self._reader.read(CHUNK) or None
        return None

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


async def pass_through(client: Streams, node: Streams) -> None:
    """Copy in both directions until either side closes."""
    tasks = [asyncio.create_task(_copy(client[0], node[1])), asyncio.create_task(_copy(node[0], client[1]))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
