"""HTTP/1.1 over TLS with as little between the test and the wire as can be: bytes in, a parsed answer out.

`Connection.exchange` sends whatever bytes it is given, also such that no HTTP library would send. `discarded` reads an
answer's body and drops it, so that a measuring client costs little of the machine it measures.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from plimsoll.kube.kubeconfig import load

_PIECE = 1 << 18


class Heard(msgspec.Struct, frozen=True):
    code: int
    headers: dict[str, str]
    body: bytes


def admin_tls(kubeconfig: Path) -> ssl.SSLContext:
    """With the client certificate of a kubeconfig."""
    access = load(kubeconfig)
    assert access.ca is not None
    assert access.certificate is not None
    assert access.key is not None
    context = ssl.create_default_context(cadata=access.ca.decode())
    with tempfile.NamedTemporaryFile() as file:
        file.write(access.certificate + b"\n" + access.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def request_bytes(method: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: test", *(f"{name}: {value}" for name, value in headers)]
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, url: str, tls: ssl.SSLContext, address: str = "") -> Connection:
        """`address`: the client's own."""
        place, local = urlsplit(url), (address, 0) if address else None
        return cls(*await asyncio.open_connection(place.hostname, place.port, ssl=tls, limit=1 << 20, local_addr=local))

    async def exchange(self, data: bytes) -> Heard:
        self.writer.write(data)
        code, headers = await self.head()
        return Heard(code, headers, b"".join([part async for part in self._parts(code, headers)]))

    async def discarded(self, data: bytes) -> tuple[int, int]:
        """The code, and how many bytes of body there were."""
        self.writer.write(data)
        code, headers = await self.head()
        size = 0
        async for part in self._parts(code, headers):
            size += len(part)
        return code, size

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(first.split(" ", 2)[1]), headers

    async def _parts(self, code: int, headers: dict[str, str]) -> AsyncIterator[bytes]:
        if code in (204, 304):
            return
        if headers.get("transfer-encoding") == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
            return
        left = int(headers.get("content-length", "0"))
        while left:
            part = await self.reader.read(min(left, _PIECE))
            if not part:
                raise EOFError
            left -= len(part)
            yield part

    async def close(self) -> None:
        self.writer.close()
