"""What the servers' TLS has in common, in handshakes between two ends in memory."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.linux.files.state_dir import private_directory


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
