"""A node joins with a bootstrap token: `plimsoll node --bootstrap-kubeconfig` against a real API server over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.kernel.x509 import validity
from plimsoll.kube import kubeconfig
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.request import ApiError, Request
from plimsoll.node.reporting.bootstrap import BootstrapError, bootstrap, is_needed
from tests.e2e.api_process import ApiProcess

TOKEN_ID, SECRET = "abcdef", "0123456789abcdef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    state = tmp_path_factory.mktemp("api")
    os.chmod(state, 0o700)
    process = ApiProcess(state, state / "log").ready()
    yield process
    process.stop()


async def ask(file: Path, method: Any, path: str, body: Any = None) -> Any:
    transport = HttpTransport(kubeconfig.load(file))
    try:
        data = b"" if body is None else json.dumps(body).encode()
        return await Client(transport).ask(Request(method, path, data, "application/json" if data else ""))
    finally:
        await transport.close()


async def undecided(server: ApiProcess) -> list[Any]:
    """The requests for certificates that are neither approved nor denied."""
    found = await ask(server.kubeconfig, "GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests")
    return [each for each in found["items"] if not each.get("status", {}).get("conditions")]


def bootstrap_file(server: ApiProcess, directory: Path, token: str) -> Path:
    """As kubeadm writes it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server.url, "certificate-authority": str(server.state / "pki/ca.crt")}}
        ],
        "users": [{"name": "tls-bootstrap-token-user", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "tls-bootstrap-token-user"}}],
        "current-context": "x",
    }
    file = directory / "bootstrap-kubelet.conf"
    file.write_text(json.dumps(config))
    return file


async def create_token(server: ApiProcess, **changed: str) -> None:
    data = {
        "token-id": TOKEN_ID,
        "token-secret": SECRET,
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        **changed,
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{TOKEN_ID}"},
        "stringData": data,
    }
    path = "/api/v1/namespaces/kube-system/secrets"
    try:
        await ask(server.kubeconfig, "DELETE", f"{path}/bootstrap-token-{TOKEN_ID}")
    except ApiError as error:
        assert error.code == 404
    await ask(server.kubeconfig, "POST", path, secret)


async def test_a_token_becomes_the_identity_of_a_new_node(server: ApiProcess, tmp_path: Path) -> None:
    await create_token(server)
    source, file = bootstrap_file(server, tmp_path, f"{TOKEN_ID}.{SECRET}"), tmp_path / "home" / "kubelet.conf"
    assert is_needed(file)
    await bootstrap(source, file, "joins")
    assert not is_needed(file) and stat.S_IMODE(file.stat().st_mode) == 0o600
    certificate = kubeconfig.load(file).certificate
    assert certificate is not None
    assert is_needed(file, lambda: validity(certificate)[1] + 1), "it has expired"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = (await ask(file, "POST", path, review))["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("system:node:joins", ["system:authenticated", "system:nodes"])
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "joins"}}
    await ask(file, "POST", "/api/v1/nodes", node)
    # It exists: the token is not its identity, so the request waits for a person who approves it.
    again = asyncio.create_task(bootstrap(source, tmp_path / "other.conf", "joins"))
    async with asyncio.timeout(60):
        while not await undecided(server):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.1)
    again.cancel()
    await asyncio.wait([again])
    assert not (tmp_path / "other.conf").exists()
    user = (await ask(source, "POST", path, review))["status"]["userInfo"]
    assert user["username"] == f"system:bootstrap:{TOKEN_ID}"
    assert "system:bootstrappers:kubeadm:default-node-token" in user["groups"]
    with pytest.raises(ApiError, match='cannot list resource "nodes"'):
        await ask(source, "GET", "/api/v1/nodes")


@pytest.mark.parametrize(
    ("changed", "token"),
    [
        ({}, f"{TOKEN_ID}.ffffffffffffffff"),
        ({}, f"zzzzzz.{SECRET}"),
        ({"usage-bootstrap-authentication": "false"}, f"{TOKEN_ID}.{SECRET}"),
        ({"expiration": "2020-01-01T00:00:00Z"}, f"{TOKEN_ID}.{SECRET}"),
        ({"expiration": "soon"}, f"{TOKEN_ID}.{SECRET}"),
        ({"auth-extra-groups": "system:masters"}, f"{TOKEN_ID}.{SECRET}"),
    ],
    ids=["secret", "unknown", "usage", "expired", "time", "group"],
)
async def test_another_token_is_refused(
    server: ApiProcess, tmp_path: Path, changed: dict[str, str], token: str
) -> None:
    await create_token(server, **changed)
    with pytest.raises(BootstrapError, match="Unauthorized"):
        await bootstrap(bootstrap_file(server, tmp_path, token), tmp_path / "kubelet.conf", "x")


async def test_a_token_that_expires_later_is_accepted(server: ApiProcess, tmp_path: Path) -> None:
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    await create_token(server, expiration=end)
    source = bootstrap_file(server, tmp_path, f"{TOKEN_ID}.{SECRET}")
    await bootstrap(source, tmp_path / "kubelet.conf", "later")
    assert not is_needed(tmp_path / "kubelet.conf")
