"""An API server that pods can reach: where it listens, what it advertises, and which kubeconfigs work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from plimsoll.kube import kubeconfig
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.request import Request
from tests.e2e.api_process import ApiProcess

PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))


async def version_at(file: Path) -> str:
    transport = HttpTransport(kubeconfig.load(file))
    try:
        return str((await Client(transport).ask(Request("GET", "/version")))["major"])
    finally:
        await transport.close()


def node_kubeconfig(state: Path) -> bytes:
    words = ["api", "--state-dir", str(state), "token", "create", "--node", "n1"]
    return subprocess.run([PLIMSOLL, *words], check=True, capture_output=True).stdout


async def test_a_wildcard_address_advertises_one_that_others_can_use(tmp_path: Path) -> None:
    """127.0.0.2 stands for the address of a bridge: it is the machine's, and not the one that a client here uses."""
    state = tmp_path / "api"
    state.mkdir(mode=0o700)
    options = ("--listen", "0.0.0.0:0", "--advertise-address", "127.0.0.2")
    process = ApiProcess(state, tmp_path / "log", *options).ready()
    try:
        admin = kubeconfig.load(process.kubeconfig)
        port = admin.server.rpartition(":")[2]
        assert admin.server == f"https://127.0.0.1:{port}"
        assert await version_at(process.kubeconfig) == "1"
        node = tmp_path / "node.kubeconfig"
        node.write_bytes(node_kubeconfig(state))
        assert kubeconfig.load(node).server == f"https://127.0.0.2:{port}", "what pods get as KUBERNETES_SERVICE_HOST"
        assert await version_at(node) == "1", "its certificate has that name"
        transport = HttpTransport(admin)
        try:
            path = "/api/v1/namespaces/default/endpoints/kubernetes"
            endpoints = await Client(transport).ask(Request("GET", path))
        finally:
            await transport.close()
        assert endpoints["subsets"][0]["addresses"] == [{"ip": "127.0.0.2"}]
    finally:
        process.stop()
