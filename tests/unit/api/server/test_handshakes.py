"""Connections before their first request: silent ones, handshakes, certificates; who has to leave for whom."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from plimsoll.api.auth.authenticator import Credentials, server_names
from plimsoll.api.auth.ca import Authority
from plimsoll.api.machinery.users import MASTERS, VIEWERS
from plimsoll.api.server import connection as connection_module
from plimsoll.api.server import server as server_module
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.server import Listener, serving
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.net import lanes

REQUEST = b"GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n"


class Secured:
    """A server over TLS, and clients of it."""

    def __init__(self, state: Path, authority: Authority, port: int) -> None:
        self._state, self._authority, self.port = state, authority, port
        self._writers: list[asyncio.StreamWriter] = []

    def client(self, name: str, group: str) -> ssl.SSLContext:
        issued = self._authority.issue(name, (group,))
        file = self._state / f"{name}.pem"
        file.write_bytes(issued.certificate + issued.key)
        context = ssl.create_default_context(cafile=str(self._authority.ca_file))
        context.load_cert_chain(file)
        return context

    async def opened(self, tls: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "127.0.0.1" if tls is not None else None
        made = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, server_hostname=name)
        self._writers.append(made[1])
        return made

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def _secured(directory: Path) -> AsyncIterator[Secured]:
    state = private_directory(directory / "state")
    authority = Authority(state)
    authority.prepare(server_names("127.0.0.1"))
    app = App(Options(state, Credentials(state)))
    async with asyncio.timeout(30), serving(app, Listener("127.0.0.1", 0, authority.server_context())) as url:
        made = Secured(state, authority, int(url.rpartition(":")[2]))
        try:
            yield made
        finally:
            made.close()


class SlowHandshake:
    """A TLS client that sends each flight when the test says so."""

    def __init__(self, tls: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def hello(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self._writer.write(self._outgoing.read())
        await self._writer.drain()

    async def answered(self, request: bytes) -> bytes:
        """Finish the handshake; the beginning of the answer."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._received()
        self._tls.write(request)
        self._writer.write(self._outgoing.read())
        while True:
            try:
                return self._tls.read(15)
            except ssl.SSLWantReadError:
                await self._received()

    async def _received(self) -> None:
        data = await self._reader.read(1 << 16)
        assert data, "the server has closed the connection"
        self._incoming.write(data)


async def test_silent_connections_end_no_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKES", 4)
    async with _secured(tmp_path) as server:
        slow = SlowHandshake(server.client("root", MASTERS), *await server.opened())
        await slow.hello()
        for _ in range(100):
            await server.opened()
        assert await slow.answered(REQUEST) == b"HTTP/1.1 200 OK"


async def test_new_clients_do_not_wait_for_a_long_round_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work makes every round of the event loop long."""
    rounds, clients = 0, 24
    begun: list[int] = []
    begin, loop = server_module._Server._begin, asyncio.get_running_loop()

    def noted(server: server_module._Server, address: str, connection: socket.socket) -> None:
        begun.append(rounds)
        begin(server, address, connection)

    def work() -> None:
        nonlocal rounds
        rounds += 1
        time.sleep(5 * server_module._PACE_S)
        if len(begun) < clients:
            loop.call_soon(work)

    monkeypatch.setattr(server_module._Server, "_begin", noted)
    async with _secured(tmp_path) as server:
        tls = server.client("root", MASTERS)
        loop.call_soon(work)
        await asyncio.gather(*(server.opened(tls) for _ in range(clients)))
    assert len(begun) == clients
    assert begun[-1] - begun[0] <= clients // 3


@pytest.mark.parametrize(("round_s", "due"), [(0.0, 1), (0.019, 1), (0.04, 4), (2.0, 8)])
def test_handshakes_after_a_round(round_s: float, due: int) -> None:
    assert server_module.handshakes_due(round_s) == due


async def test_of_silent_connections_the_oldest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SILENT", 3)
    async with _secured(tmp_path) as server:
        first, *others = [await server.opened() for _ in range(4)]
        assert await first[0].read() == b""
        last = SlowHandshake(server.client("root", MASTERS), *others[-1])
        await last.hello()
        assert await last.answered(REQUEST) == b"HTTP/1.1 200 OK"


async def test_a_silent_connection_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_S", 0.2)
    async with _secured(tmp_path) as server:
        reader, _ = await server.opened()
        assert await reader.read() == b""


async def test_a_connection_that_says_nothing_and_ends_begins_no_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    begin = server_module._Server._begin

    def noted(server: server_module._Server, address: str, connection: socket.socket) -> None:
        begun.append(address)
        begin(server, address, connection)

    monkeypatch.setattr(server_module._Server, "_begin", noted)
    async with _secured(tmp_path) as server:
        for abruptly in (True, False):
            _, writer = await server.opened()
            if abruptly:
                writer.transport.abort()
            else:
                writer.close()
                await writer.wait_closed()
        last = SlowHandshake(server.client("root", MASTERS), *await server.opened())
        await last.hello()
        assert await last.answered(REQUEST) == b"HTTP/1.1 200 OK"
    assert len(begun) == 1


async def test_a_crowd_of_handshakes_drops_its_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKES", 4)
    async with _secured(tmp_path) as server:
        tls = server.client("root", MASTERS)
        crowd = []
        for _ in range(6):
            stalled = SlowHandshake(tls, *await server.opened())
            await stalled.hello()
            crowd.append(stalled)
        reader, writer = await server.opened(tls)
        writer.write(REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await crowd[-1].answered(REQUEST) == b"HTTP/1.1 200 OK"


async def test_a_crowd_without_requests_drops_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator's connection that is older, and not used yet, stays."""
    monkeypatch.setattr(connection_module, "UNKNOWN", 5)
    async with _secured(tmp_path) as server:
        reader, writer = await server.opened(server.client("root", MASTERS))
        eve = server.client("eve", VIEWERS)
        crowd = [await server.opened(eve) for _ in range(20)]
        assert await crowd[0][0].read() == b""
        writer.write(REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def _end(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionResetError):
        await reader.read()


async def test_a_dropped_handshake_leaves_no_transport_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next connections get the descriptors of those that were dropped, some before their TLS began."""
    monkeypatch.setattr(server_module, "HANDSHAKES", 1)
    async with _secured(tmp_path) as server:
        tls = server.client("root", MASTERS)
        for _ in range(20):
            crowd = [await server.opened() for _ in range(10)]
            for _, writer in crowd:
                writer.write(b"\x16\x03\x01")  # the beginning of a hello
            left = {asyncio.create_task(_end(reader)) for reader, _ in crowd}
            while len(left) > 1:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            reader, writer = await server.opened(tls)
            writer.write(REQUEST)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            for each in (*(writer for _, writer in crowd), writer):
                each.transport.abort()
            await asyncio.gather(*left)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


def test_only_limited_clients_are_read_in_the_slow_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed: list[int] = []
    monkeypatch.setattr(lanes.Lanes, "slow_down", lambda _, descriptor: slowed.append(descriptor))

    async def counts() -> list[int]:
        found = []
        async with _secured(tmp_path) as server:
            for name, group in (("root", MASTERS), ("eve", VIEWERS)):
                reader, writer = await server.opened(server.client(name, group))
                writer.write(REQUEST)
                assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"
                found.append(len(slowed))
        return found

    assert lanes.run(counts()) == [0, 1]
