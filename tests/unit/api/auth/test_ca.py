"""The CA and its certificates, judged by real TLS handshakes."""

from __future__ import annotations

import asyncio
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.ca import Authority, Issued, kubeconfig
from plimsoll.api.machinery.users import User, certificate_user
from plimsoll.linux.files.state_dir import UnsafeStateError, private_directory

NAMES = ("127.0.0.1", "localhost")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(private_directory(tmp_path / "state"))
    made.prepare(NAMES)
    return made


def _client(authority: Authority, tmp_path: Path, shown: Issued | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if shown is not None:
        (tmp_path / "c.crt").write_bytes(shown.certificate)
        (tmp_path / "c.key").write_bytes(shown.key)
        context.load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
    return context


async def _peer_seen(server: Authority, client: ssl.SSLContext) -> dict[str, Any] | None:
    """What the server learns about who called it; an ssl.SSLError or a reset where the handshake is refused."""
    seen: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("ssl_object").getpeercert())
        writer.write(await reader.readexactly(1))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server.server_context()) as listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="127.0.0.1")
        writer.write(b"x")
        answered = await reader.read(1)
        writer.close()
        if not answered:
            raise ConnectionResetError
        return await seen


def test_a_client_certificate_names_user_and_groups(authority: Authority, tmp_path: Path) -> None:
    shown = authority.issue("system:node:n1", ["system:nodes"])
    peer = asyncio.run(_peer_seen(authority, _client(authority, tmp_path, shown)))
    assert certificate_user(peer or {}) == User("system:node:n1", frozenset({"system:nodes", "system:authenticated"}))


def test_a_client_without_a_certificate_is_anonymous(authority: Authority, tmp_path: Path) -> None:
    assert not asyncio.run(_peer_seen(authority, _client(authority, tmp_path, None)))


def test_an_expired_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    shown = authority.issue("old", now=datetime.now(UTC) - timedelta(days=3), days=1)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(_peer_seen(authority, _client(authority, tmp_path, shown)))


def test_a_foreign_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    other = Authority(private_directory(tmp_path / "other"))
    other.prepare(NAMES)
    shown = other.issue("system:admin", ["system:masters"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(_peer_seen(authority, _client(authority, tmp_path, shown)))


def test_a_server_certificate_does_not_serve_as_a_client(authority: Authority, tmp_path: Path) -> None:
    shown = authority.issue("plimsoll-api", names=NAMES)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(_peer_seen(authority, _client(authority, tmp_path, shown)))


def test_prepare_twice_changes_nothing_and_new_names_only_the_server(authority: Authority) -> None:
    files = {path.name: path.read_bytes() for path in authority.directory.iterdir()}
    authority.prepare(NAMES)
    assert {path.name: path.read_bytes() for path in authority.directory.iterdir()} == files
    authority.prepare([*NAMES, "node.example"])
    changed = {path.name for path in authority.directory.iterdir() if path.read_bytes() != files[path.name]}
    assert changed == {"server.crt", "server.key"}


def test_certificates_are_renewed_at_80_percent_of_their_lifetime(authority: Authority) -> None:
    before = (authority.directory / "client.crt").read_bytes()
    authority.prepare(NAMES, datetime.now(UTC) + timedelta(days=280))
    assert (authority.directory / "client.crt").read_bytes() == before
    authority.prepare(NAMES, datetime.now(UTC) + timedelta(days=300))
    assert (authority.directory / "client.crt").read_bytes() != before


def test_files_are_private(authority: Authority) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in authority.directory.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(authority.directory.stat().st_mode) == 0o700


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(UnsafeStateError, match="chmod 700"):
        private_directory(tmp_path / "open")


def test_kubeconfig_contains_everything(authority: Authority) -> None:
    text = kubeconfig("https://127.0.0.1:6443", authority.ca_file.read_bytes(), "u", authority.issue("u")).decode()
    assert "certificate-authority-data" in text and "client-key-data" in text
    assert "token: plm_x" in kubeconfig("https://h", b"ca", "u", "plm_x").decode()
