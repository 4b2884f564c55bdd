"""ClusterTrustBundles: what is stored, who may write them, and that a node reads them for its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from plimsoll.api.server.in_process import InProcess
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.node.volumes.object_cache import BUNDLES
from tests.unit.api.api_client import ADMIN, MERGE, TABLE, api

PATH = "/apis/certificates.k8s.io/v1/clustertrustbundles"
SIGNER = "example.com/roots"
NODE = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))
KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    authority = Authority(private_directory(tmp_path_factory.mktemp("ca") / "ca"))
    authority.prepare(("127.0.0.1",))
    return authority.ca_file.read_text()


def bundle(name: str, text: str, signer: str = "", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"signerName": signer, "trustBundle": text}}


async def test_a_node_reads_them_for_its_pods(tmp_path: Path, root: str) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PATH, bundle("mine", root))
        await ask.ok("POST", PATH, bundle("example.com:roots:a", root, SIGNER, live="yes"))
        client = Client(InProcess(ask.app, NODE))
        found = await client.ask(request.get(BUNDLES[0], "mine"))
        assert found["spec"]["trustBundle"] == root
        listed = await client.ask(request.listing(BUNDLES[0], fields=f"spec.signerName={SIGNER}", labels="live=yes"))
        assert [each["metadata"]["name"] for each in listed["items"]] == ["example.com:roots:a"]
        table = await ask.ok("GET", PATH, accept=TABLE)
        assert [row["cells"] for row in table["rows"]] == [["example.com:roots:a", SIGNER], ["mine", "<none>"]]
        ask.user = NODE
        assert (await ask("POST", PATH, bundle("other", root))).code == 403


async def test_only_who_may_attest_writes_that_of_a_signer(tmp_path: Path, root: str) -> None:
    ann = User("ann", frozenset({AUTHENTICATED}))
    async with api(tmp_path) as ask:
        rules = [{"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": ["*"]}]
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        await ask.ok("POST", role, {"metadata": {"name": "bundles"}, "rules": rules})
        subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": "bundles", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "ann"}, "subjects": [subject], "roleRef": reference}
        await ask.ok("POST", f"{role[:-5]}rolebindings", body)
        ask.user = ann
        await ask.ok("POST", PATH, bundle("hers", root))
        said = await ask("POST", PATH, bundle("example.com:roots:a", root, SIGNER))
        assert (said.code, f'not permitted to attest for signerName "{SIGNER}"' in said.message) == (403, True)
        ask.user = ADMIN
        attest = {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"]}
        await ask.ok("PATCH", f"{role}/bundles", {"rules": [*rules, {**attest, "verbs": ["attest"]}]}, MERGE)
        ask.user = ann
        await ask.ok("POST", PATH, bundle("example.com:roots:a", root, SIGNER))
        large = bundle("example.com:roots:b", root, SIGNER)
        large["metadata"]["annotations"] = {"a": "x" * 40_000}  # a long write
        await ask.ok("POST", PATH, large)


@pytest.mark.parametrize(
    ("name", "signer", "text", "message"),
    [
        ("a:b", "", None, 'without signer name must not have ":" in its name'),
        ("a", SIGNER, None, "must be named with prefix example.com:roots:"),
        ("example.com:roots:B_", SIGNER, None, "RFC 1123"),
        ("a", "", "", "at least one trust anchor must be provided"),
        ("a", "", KEY, "entry 0 has bad block type: PRIVATE KEY"),
        ("a", "", NO_CERTIFICATE, "entry 0 does not parse as X.509"),
        ("a", "", "twice", "duplicate trust anchor (indices [0, 1])"),
    ],
    ids=["colon", "prefix", "name", "empty", "key", "no certificate", "twice"],
)
async def test_refused(tmp_path: Path, root: str, name: str, signer: str, text: str | None, message: str) -> None:
    async with api(tmp_path) as ask:
        text = root if text is None else root + root if text == "twice" else text
        said = await ask("POST", PATH, bundle(name, text, signer))
        assert (said.code, message in said.message) == (422, True), said.message


async def test_the_signer_stays(tmp_path: Path, root: str) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PATH, bundle("example.com:roots:a", root, SIGNER))
        said = await ask("PATCH", f"{PATH}/example.com:roots:a", {"spec": {"signerName": "example.com/other"}}, MERGE)
        assert (said.code, "field is immutable" in said.message) == (422, True)
