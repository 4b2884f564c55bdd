"""The node's kubeconfig: whose certificate it has, and what a stored certificate may replace."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plimsoll.api.auth.ca import Authority, Issued
from plimsoll.codec.kernel.x509 import common_name
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.node.reporting.certificate import FILE
from plimsoll.node.reporting.credentials import node_credentials
from plimsoll.rules.config.parse import reading
from plimsoll.rules.profile import DEFAULT_PROFILE

T0 = datetime(2026, 11, 16, tzinfo=UTC)
CONFIG = reading(None, DEFAULT_PROFILE, {}).config


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority(private_directory(tmp_path / "ca"))
    found.prepare(("127.0.0.1",))
    return found


def issued(authority: Authority, user: str, days: int = 365) -> Issued:
    return authority.issue(user, ["system:nodes"], [], now=T0, days=days)


def kubeconfig_of(directory: Path, pair: Issued) -> Path:
    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": encoded(pair.certificate)}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = directory / "node.kubeconfig"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("name", ["n1", "system:node:" + "a" * 52, "admin"])
def test_the_common_name(authority: Authority, name: str) -> None:
    assert common_name(issued(authority, name).certificate) == name


def test_the_certificate_of_another_node_is_refused(authority: Authority, tmp_path: Path) -> None:
    file = kubeconfig_of(tmp_path, issued(authority, "system:node:n2"))
    with pytest.raises(
        PlimsollError, match=r"is that of the node 'n2', and this node is 'n1': start it with --name n2"
    ):
        node_credentials(file, "n1", tmp_path, CONFIG)


@pytest.mark.parametrize("user", ["system:node:n1", "kubernetes-admin"])
def test_its_own_certificate_and_that_of_a_person_are_used(authority: Authority, tmp_path: Path, user: str) -> None:
    pair = issued(authority, user)
    _, identity, _ = node_credentials(kubeconfig_of(tmp_path, pair), "n1", tmp_path, CONFIG)
    assert identity.certificate == pair.certificate


@pytest.mark.parametrize(("stored", "used"), [("system:node:n1", "stored"), ("system:node:old", "kubeconfig")])
def test_a_stored_certificate_of_an_earlier_name_is_left(
    authority: Authority, tmp_path: Path, stored: str, used: str
) -> None:
    """A state directory whose node got another name still has the certificate of the first one."""
    configured, renewed = issued(authority, "system:node:n1"), issued(authority, stored, days=700)
    (tmp_path / FILE).write_bytes(renewed.certificate + b"\n" + renewed.key)
    _, identity, _ = node_credentials(kubeconfig_of(tmp_path, configured), "n1", tmp_path, CONFIG)
    expected = {"stored": renewed, "kubeconfig": configured}[used]
    assert identity.certificate.strip() == expected.certificate.strip()
