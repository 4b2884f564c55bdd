"""One HTTP/1.1 client connection: httptools parses, asyncio streams carry. The caller opens it and encodes requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

import httptools

CHUNK = 1 << 16
# Of headers, trailers and chunk extensions: what a peer may send without a byte of body. The parser keeps it, and it
# copies a long header at every read.
MAX_HEADER_BYTES = 1 << 20


class MalformedResponseError(ConnectionError):
    """The peer does not speak HTTP/1.1."""


class TruncatedResponseError(ConnectionError):
    """The connection ended before the response did."""


class Reader(Protocol):
    async def read(self, n: int, /) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class HttpClientConnection:
    """`begin`, then read `parts` to the end; then it may take another request where `reusable` says so."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        """Of asyncio's streams, or anything that reads and writes like them."""
        self._reader, self._writer = reader, writer
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._headers_done = self._message_done = False
        self._header_bytes = 0  # received since the last piece of the body
        self.headers: dict[bytes, bytes] = {}  # by name in lower case
        self.reusable = False

    # Called by httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._headers_done = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._message_done = True
        self.reusable = self._parser.should_keep_alive()

    async def begin(self, request: bytes) -> int:
        """Send the request; the status code of its response. EOFError where the connection ends without one."""
        self._reset()
        self._writer.write(request)
        await self._writer.drain()
        while not self._headers_done:
            await self._feed()
        return int(self._parser.get_status_code())

    async def parts(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""
        while True:
            parts, self._parts = self._parts, []
            for part in parts:
                yield part
            if self._message_done:
                return
            try:
                await self._feed()
            except EOFError:  # a response without a length ends with the connection; a watch may end at any time
                if b"content-length" in self.headers:
                    raise TruncatedResponseError("the connection ended within the response") from None
                self._message_done = True

    async def _feed(self) -> None:
        data = await self._reader.read(CHUNK)
        if not data:
            raise EOFError
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise MalformedResponseError(f"invalid HTTP response: {error}") from error
        self._header_bytes = 0 if self._parts else self._header_bytes + len(data)
        if self._header_bytes > MAX_HEADER_BYTES and not self._message_done:
            raise MalformedResponseError(f"the headers of the response are longer than {MAX_HEADER_BYTES} bytes")

    def close(self) -> None:
        with suppress(OSError, RuntimeError):  # the loop or the peer may be gone already
            self._writer.close()
