"""What the servers' TLS has in common, in handshakes between two ends in memory."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.net.tls import BUFFER_BYTES, use_small_buffers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(private_directory(tmp_path_factory.mktemp("tls") / "pki"))
    made.prepare(["127.0.0.1"])
    return made


def _session(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str | None, ssl.SSLSession]:
    """The version and the client's session after a handshake and one byte in each direction."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    steps = [one.do_handshake, other.do_handshake]
    while steps:
        for step in tuple(steps):
            try:
                step()
            except ssl.SSLWantReadError:
                continue
            steps.remove(step)
    one.write(b"x")
    other.write(other.read(1))
    assert one.read(1) == b"x"
    assert one.session is not None
    return one.version(), one.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_servers_issue_no_session_tickets(version: ssl.TLSVersion, authority: Authority, tmp_path: Path) -> None:
    shown = authority.issue("a", ["b"])
    (tmp_path / "c").write_bytes(shown.certificate + shown.key)
    client = ssl.create_default_context(cafile=str(authority.ca_file))
    client.load_cert_chain(tmp_path / "c")
    client.maximum_version = version
    found, session = _session(authority.server_context(), client)
    assert found == version.name.replace("_", ".")
    assert not session.has_ticket


async def test_little_is_kept_of_what_no_one_reads(authority: Authority) -> None:
    """It was 256 KiB of each connection."""
    use_small_buffers()
    paused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def pause(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport: Any = writer.transport
        transport.pause_reading()
        paused.set_result(transport)

    server = await asyncio.start_server(pause, "127.0.0.1", 0, ssl=authority.server_context())
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    async with server, asyncio.timeout(60):
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1], ssl=context)
        transport = await paused
        protocol, full = transport._ssl_protocol, asyncio.Event()
        pause_socket = protocol._transport.pause_reading

        def note() -> None:
            pause_socket()
            full.set()

        protocol._transport.pause_reading = note
        writer.write(b"x" * 4_000_000)
        await full.wait()
        assert 0 < protocol._get_read_buffer_size() <= 2 * BUFFER_BYTES
        writer.transport.abort()
        transport.abort()
