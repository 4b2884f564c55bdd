"""Which certificate the node's server presents, by configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.api.handlers.csr import certificate_requests
from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from plimsoll.api.server.in_process import InProcess
from plimsoll.errors import PlimsollError
from plimsoll.kube.client import Client
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.node.reporting.certificate import NodeIdentity
from plimsoll.node.server.serving import ServingCertificate
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.node.node_object import MachineIdentity, NodeFacts
from plimsoll.rules.profile import PROFILE_DOCUMENTS
from tests.unit.api.api_client import api

FACTS = NodeFacts("n1", "n1", "192.0.2.7", 10250, MachineIdentity(), "x://1", "v1.36.0")
OWN, RENEWED = NodeIdentity(b"certificate", b"key"), NodeIdentity(b"renewed", b"key")
NODE = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))
NO_CLIENT: Any = None  # nothing is requested


def serving(home: Path, client: Client = NO_CLIENT, **config: Any) -> ServingCertificate:
    setting = msgspec.structs.replace(default_config(PROFILE_DOCUMENTS), **config)
    return ServingCertificate(setting, client, FACTS, home, OWN)


def test_without_settings_the_identity_serves(tmp_path: Path) -> None:
    found, used = serving(tmp_path), []
    assert found.current == OWN
    found.start(used.append)
    found.identity_renewed(RENEWED)
    assert used == [RENEWED]


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(b"one")
    with pytest.raises(PlimsollError, match="tlsPrivateKeyFile"):
        serving(tmp_path, tls_cert_file=str(certificate))
    with pytest.raises(PlimsollError, match=r"tls\.key"):
        serving(tmp_path, tls_cert_file=str(certificate), tls_private_key_file=str(key))
    key.write_bytes(b"key")
    found = serving(tmp_path, tls_cert_file=str(certificate), tls_private_key_file=str(key))
    used: list[NodeIdentity] = []
    found.start(used.append)
    found.identity_renewed(RENEWED)
    found.compare_files()
    assert (found.current, used) == (NodeIdentity(b"one", b"key"), [])
    certificate.write_bytes(b"two")
    found.compare_files()
    assert used == [NodeIdentity(b"two", b"key")]
    certificate.unlink()
    found.compare_files()
    assert found.current == NodeIdentity(b"two", b"key"), "what is in use stays"


def test_a_pair_that_does_not_match_is_not_used(tmp_path: Path) -> None:
    """The writer has replaced only one of both files yet."""
    (tmp_path / "tls.crt").write_bytes(b"one")
    (tmp_path / "tls.key").write_bytes(b"key")
    paths = {"tls_cert_file": str(tmp_path / "tls.crt"), "tls_private_key_file": str(tmp_path / "tls.key")}
    found = serving(tmp_path, **paths)

    def refuse(identity: NodeIdentity) -> None:
        raise PlimsollError("do not match")

    found.start(refuse)
    (tmp_path / "tls.crt").write_bytes(b"two")
    found.compare_files()
    assert found.current.certificate == b"one"


async def test_the_cluster_signs_it(tmp_path: Path) -> None:
    authority = Authority(private_directory(tmp_path / "ca"))
    authority.prepare(("127.0.0.1",))
    registered, used = asyncio.Event(), asyncio.Queue[NodeIdentity]()
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority, approves_serving=True))
        found = serving(tmp_path, Client(InProcess(ask.app, NODE)), server_tls_bootstrap=True)
        assert found.current == OWN, "until it is signed"
        found.start(used.put_nowait)
        running = asyncio.create_task(found.run(registered))
        try:
            found.identity_renewed(RENEWED)
            assert await used.get() == RENEWED
            addresses = [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "n1"}]
            await ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"addresses": addresses}})
            registered.set()
            async with asyncio.timeout(60):
                signed = await used.get()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert b"BEGIN CERTIFICATE" in signed.certificate and found.current == signed
        found.identity_renewed(OWN)
        assert used.empty(), "the two are renewed each by itself"
    again = serving(tmp_path, server_tls_bootstrap=True)
    assert again.current.key.strip() == signed.key.strip()
