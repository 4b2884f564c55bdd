"""A node's certificate renewed: signed by the real CA, through the API, with a key made in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plimsoll.api.auth.ca import Authority, CertificateNotSignedError, Issued, endpoint_name
from plimsoll.api.controllers.certificates.cleaner import due_s
from plimsoll.api.handlers.csr import certificate_requests
from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from plimsoll.api.server.in_process import InProcess
from plimsoll.codec.kernel.x509 import CertificateFormatError, validity
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError
from plimsoll.kube.signing_request import generate, signing_request
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.node.reporting import certificate
from plimsoll.node.reporting.certificate import FILE, SERVING, NodeIdentity, Renewal, stored_identity, stored_serving
from tests.unit.api.api_client import ADMIN, APPLY, MERGE, TABLE, ApiClient, api

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
T0 = datetime(2026, 11, 16, tzinfo=UTC)
NODE = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority(private_directory(tmp_path / "ca"))
    found.prepare(("127.0.0.1",))
    return found


def issued(authority: Authority, now: datetime = T0, days: int = 365) -> NodeIdentity:
    pair = authority.issue("system:node:n1", [NODES], ["n1"], now=now, days=days, calls_too=True)
    return NodeIdentity(pair.certificate, pair.key)


def asked(request: bytes, **spec: Any) -> dict[str, Any]:
    encoded = base64.b64encode(request).decode()
    return {"metadata": {"name": "csr-1"}, "spec": {"request": encoded, "signerName": SIGNER, **spec}}


# --- times ---


@pytest.mark.parametrize("days", [1, 365, 365 * 60], ids=["a day", "a year", "beyond 2050"])
def test_times_are_those_of_the_certificate(authority: Authority, days: int) -> None:
    begin_s, end_s = validity(issued(authority, days=days).certificate)
    assert begin_s == (T0 - timedelta(minutes=5)).timestamp()
    assert end_s == (T0 + timedelta(days=days)).timestamp()


BAD = [
    ("nothing", b""),
    ("no base64", b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----"),
    ("no certificate", b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----"),
    ("cut short", b"-----BEGIN CERTIFICATE-----\nMIIBtQ==\n-----END CERTIFICATE-----"),
]


@pytest.mark.parametrize("pem", [row[1] for row in BAD], ids=[row[0] for row in BAD])
def test_no_certificate(pem: bytes) -> None:
    with pytest.raises(CertificateFormatError):
        validity(pem)


# --- the CA ---


def test_what_is_signed_is_a_nodes(authority: Authority, tmp_path: Path) -> None:
    pair = generate("system:node:n1", NODES)
    signed = authority.sign_node(pair.request, "n1", timedelta(days=30), T0)
    assert validity(signed)[1] == (T0 + timedelta(days=30)).timestamp()
    (tmp_path / "pair.pem").write_bytes(signed + pair.key)
    ssl.create_default_context(cafile=str(authority.ca_file)).load_cert_chain(tmp_path / "pair.pem")


REFUSED = [
    ("another node", generate("system:node:n2", NODES).request, "is not this node"),
    ("an admin", generate("admin", "system:masters").request, "is not this node"),
    ("a group more", generate("system:node:n1", "system:masters").request, "is not this node"),
    ("garbage", b"hello", "invalid certificate signing request"),
]


@pytest.mark.parametrize(("request_pem", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_not_signed(authority: Authority, request_pem: bytes, reason: str) -> None:
    with pytest.raises(CertificateNotSignedError, match=reason):
        authority.sign_node(request_pem, "n1", timedelta(days=1), T0)


def _serving(*names: str) -> tuple[bytes, bytes]:
    """A request for a serving certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, NODES),
            x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n1"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if names:
        alternatives = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return pem, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "kubernetes", "api.example", "kubernetes.default.svc"])
def test_a_node_is_never_the_api_server(authority: Authority, tmp_path: Path, name: str) -> None:
    """Not even a node of that name: its certificate has the name of its endpoint only."""
    authority.prepare(("127.0.0.1", "localhost", "kubernetes", "api.example"))
    dns = name if not name[0].isdigit() else "n1"
    pair = generate(f"system:node:{dns}", NODES)
    signed = authority.sign_node(pair.request, dns, timedelta(days=1))
    for shown, key in ((signed, pair.key), _of(authority.issue_node(dns))):
        assert _is_accepted_as(authority, tmp_path, shown, key, endpoint_name(dns))
        assert not _is_accepted_as(authority, tmp_path, shown, key, name)
    with pytest.raises(CertificateNotSignedError, match="may not serve as the API server"):
        authority.sign_node(_serving(name)[0], "n1", timedelta(days=1), serves_as={name, "n1"})


def _of(issued: Issued) -> tuple[bytes, bytes]:
    return issued.certificate, issued.key


def _is_accepted_as(authority: Authority, tmp_path: Path, certificate: bytes, key: bytes, name: str) -> bool:
    """By a client that trusts the CA, in a real handshake in memory."""
    (tmp_path / "served.pem").write_bytes(certificate + b"\n" + key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "served.pem")
    trusting = ssl.create_default_context(cafile=str(authority.ca_file))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


def test_serving_certificates(authority: Authority, tmp_path: Path) -> None:
    own = {"n1", "10.0.0.7"}
    request, key = _serving("n1", "10.0.0.7")
    signed = authority.sign_node(request, "n1", timedelta(days=1), serves_as=own)
    for name in (*own, endpoint_name("n1")):
        assert _is_accepted_as(authority, tmp_path, signed, key, name)
    with pytest.raises(CertificateNotSignedError, match=r"not a name or address of this node: 10\.0\.0\.8, n2"):
        authority.sign_node(_serving("n2", "10.0.0.8")[0], "n1", timedelta(days=1), serves_as=own)
    with pytest.raises(CertificateNotSignedError, match="a client certificate has no subject alternative names: 10"):
        authority.sign_node(request, "n1", timedelta(days=1))
    usage = x509.load_pem_x509_certificate(signed).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH], "it does not call the API"


# --- the API ---


def _own() -> bytes:
    return generate("system:node:n1", NODES).request


CLIENT_AUTH = ["digital signature", "client auth"]
API_CLIENT = "kubernetes.io/kube-apiserver-client"


@pytest.mark.parametrize(
    ("user", "body", "code", "reason"),
    [
        pytest.param(NODE, asked(b"x"), 422, "PEM block type must be CERTIFICATE REQUEST", id="no request"),
        pytest.param(
            NODE, asked(_own(), signerName="x"), 422, "must be a fully qualified domain and path", id="signer"
        ),
        pytest.param(NODE, asked(_own(), usages=["odd"]), 422, "spec.usages[0]: Unsupported value", id="usages"),
        pytest.param(NODE, asked(_own()), 422, "usages must not be empty", id="no usages"),
        pytest.param(
            NODE,
            asked(_own(), usages=CLIENT_AUTH, expirationSeconds=5),
            422,
            "may not specify a duration less than 600 seconds (10 minutes)",
            id="life",
        ),
        pytest.param(
            ADMIN,
            asked(generate("admin", "system:masters").request, signerName=API_CLIENT, usages=CLIENT_AUTH),
            403,
            "signer with system:masters group is not allowed",
            id="masters",
        ),
        pytest.param(User("eve", frozenset({AUTHENTICATED})), asked(b"x"), 403, "cannot create", id="another user"),
    ],
)
async def test_refusals(authority: Authority, tmp_path: Path, user: User, body: Any, code: int, reason: str) -> None:
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        ask.user = user
        said = await ask("POST", PATH, body)
        assert (said.code, reason in said.message) == (code, True), said.body


@pytest.mark.parametrize(
    ("user", "request_pem"),
    [
        pytest.param(NODE, generate("system:node:n2", NODES).request, id="another node"),
        pytest.param(ADMIN, generate("admin", "people").request, id="no node"),
    ],
)
async def test_what_waits_for_approval(authority: Authority, tmp_path: Path, user: User, request_pem: bytes) -> None:
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        ask.user = user
        made = await ask.ok("POST", PATH, asked(request_pem, usages=CLIENT_AUTH))
        assert made["spec"]["username"] == user.name
        ask.user = ADMIN
        assert not (await ask.ok("GET", f"{PATH}/csr-1")).get("status", {}).get("certificate")


async def test_a_serving_certificate_waits_for_a_person(authority: Authority, tmp_path: Path) -> None:
    """As with kube-controller-manager, unless the server is configured to approve it."""
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        await ask.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        ask.user = NODE
        body = asked(_serving("n1")[0], signerName=SERVING.signer, usages=["digital signature", "server auth"])
        made = await ask.ok("POST", PATH, body)
        assert "conditions" not in made.get("status", {})
        ask.user = ADMIN
        signed = await ask.ok("PUT", f"{PATH}/csr-1/approval", _approval(made))
        assert b"BEGIN CERTIFICATE" in base64.b64decode(signed["status"]["certificate"])


def _approval(stored: dict[str, Any], type_: str = "Approved") -> dict[str, Any]:
    """As kubectl certificate sends it."""
    condition = {"type": type_, "status": "True", "reason": "KubectlApprove", "message": "by kubectl"}
    return {**stored, "status": {**stored.get("status", {}), "conditions": [condition]}}


async def test_approved_by_hand(authority: Authority, tmp_path: Path) -> None:
    eve = User("eve", frozenset({AUTHENTICATED}))
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        pair = generate("jane", "people")
        made = await ask.ok("POST", PATH, asked(pair.request, signerName=API_CLIENT, usages=CLIENT_AUTH))
        ask.user = eve
        assert (await ask("PUT", f"{PATH}/csr-1/approval", _approval(made))).code == 403
        ask.user = ADMIN
        signed = await ask.ok("PUT", f"{PATH}/csr-1/approval", _approval(made))
        pem = base64.b64decode(signed["status"]["certificate"])
        certificate = x509.load_pem_x509_certificate(pem)
        assert certificate.subject.rfc4514_string() == "CN=jane,O=people"
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        said = await ask("PUT", f"{PATH}/csr-1/approval", {**signed, "status": {"conditions": []}})
        assert said.code == 422 and "updates may not remove a condition of type Approved" in said.message
        changed = await ask.ok("PATCH", f"{PATH}/csr-1", {"spec": {"username": "root"}}, MERGE)
        assert changed["spec"]["username"] == "admin"
        row = (await ask("GET", PATH, accept=TABLE)).json["rows"][0]["cells"]
        assert row[2:] == [API_CLIENT, "admin", "<none>", "Approved,Issued"]


def _applied(name: str, request: bytes, **spec: Any) -> dict[str, Any]:
    body = asked(request, usages=CLIENT_AUTH, **spec)
    about = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    return {**about, **body, "metadata": {"name": name}}


async def test_a_request_says_who_has_made_it_however_it_is_made(authority: Authority, tmp_path: Path) -> None:
    pair, masters = generate("jane", "people"), generate("jane", "system:masters")
    false = {"username": "admin", "uid": "1", "groups": ["system:masters"], "extra": {"a": ["b"]}}
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        await _grant(ask, "eve", "create,patch", "certificatesigningrequests")
        ask.user = User("eve", frozenset({AUTHENTICATED}))
        made = await ask.ok("PATCH", f"{PATH}/a?fieldManager=x", _applied("a", pair.request, **false), APPLY)
        posted = await ask.ok("POST", PATH, {**_applied("b", pair.request, **false)})
        for each in (made, posted):
            spec = each["spec"]
            assert (spec["username"], spec["groups"]) == ("eve", [AUTHENTICATED])
            assert not {"uid", "extra"} & spec.keys()
        body = _applied("c", masters.request, signerName=API_CLIENT)
        refused = await ask("PATCH", f"{PATH}/c?fieldManager=x", body, APPLY)
        assert refused.code == 403 and "signer with system:masters group is not allowed" in refused.message


async def test_only_who_may_sign_for_a_signer_sets_a_certificate(authority: Authority, tmp_path: Path) -> None:
    status = {"certificate": "eA==", "conditions": [{"type": "Failed", "status": "True"}]}
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        await ask.ok("POST", PATH, _applied("a", generate("jane", "people").request, signerName="example.com/x"))
        await _grant(ask, "eve", "patch", "certificatesigningrequests/status,certificatesigningrequests/approval")
        ask.user = User("eve", frozenset({AUTHENTICATED}))
        for subresource, verb in (("status", "sign"), ("approval", "approve")):
            refused = await ask("PATCH", f"{PATH}/a/{subresource}", {"status": status}, MERGE)
            reason = f'user not permitted to {verb} requests with signerName "example.com/x"'
            assert refused.code == 403 and refused.message.endswith(reason)
        ask.user = ADMIN
        await _grant(ask, "eve", "sign", "signers", resourceNames=["example.com/*"])
        ask.user = User("eve", frozenset({AUTHENTICATED}))
        assert (await ask("PATCH", f"{PATH}/a/status", {"status": status}, MERGE)).code == 200


async def _grant(ask: ApiClient, to: str, verbs: str, resources: str, **more: Any) -> None:
    """In the group of certificates."""
    roles, name = "/apis/rbac.authorization.k8s.io/v1", verbs.replace(",", "-")
    rules = [
        {"verbs": verbs.split(","), "apiGroups": ["certificates.k8s.io"], "resources": resources.split(","), **more}
    ]
    await ask.ok("POST", f"{roles}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    body = {"roleRef": {"kind": "ClusterRole", "name": name}, "subjects": [{"kind": "User", "name": to}]}
    await ask.ok("POST", f"{roles}/clusterrolebindings", {"metadata": {"name": name}, **body})


async def test_denied_and_failed(authority: Authority, tmp_path: Path) -> None:
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        made = await ask.ok("POST", PATH, asked(generate("jane", "people").request, usages=CLIENT_AUTH))
        denied = await ask.ok("PUT", f"{PATH}/csr-1/approval", _approval(made, "Denied"))
        assert "certificate" not in denied["status"]
        other = asked(generate("jane", "people").request, usages=CLIENT_AUTH)  # the signer of nodes
        other["metadata"]["name"] = "csr-2"
        made = await ask.ok("POST", PATH, other)
        failed = await ask.ok("PUT", f"{PATH}/csr-2/approval", _approval(made))
        condition = failed["status"]["conditions"][-1]
        assert (condition["type"], condition["reason"]) == ("Failed", "SignerValidationFailure")


async def test_old_requests_are_removed(tmp_path: Path) -> None:
    answered = {"metadata": {}, "status": {"conditions": [{"lastUpdateTime": "2026-11-16T00:00:00Z"}]}}
    pending = {"metadata": {"creationTimestamp": "2026-11-16T00:00:00Z"}}
    begin_s = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
    assert (due_s(answered, begin_s), due_s(pending, begin_s)) == (3600, 86400)


async def test_renewal(authority: Authority, tmp_path: Path) -> None:
    old, used = issued(authority, datetime.now(UTC) - timedelta(days=300)), []
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority))
        client = Client(InProcess(ask.app, NODE))
        renewal = Renewal(client, "n1", old, tmp_path, used.append)
        assert renewal.due_s() < 0, "80 % of a year are 292 days"
        await renewal.renew()
        assert used == [renewal.identity]
        assert 291 * 86400 < renewal.due_s() < 293 * 86400
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        assert stored_identity(tmp_path, old).certificate.strip() == used[0].certificate.strip()
        newer = issued(authority, datetime.now(UTC), days=400)
        assert stored_identity(tmp_path, newer) == newer, "the kubeconfig is newer"


async def test_a_serving_certificate(authority: Authority, tmp_path: Path) -> None:
    """Requested at once, for the node's names; stored, and used again for the same names only."""
    used: list[NodeIdentity] = []
    async with api(tmp_path / "api") as ask:
        ask.app.options.handlers.update(certificate_requests(authority, approves_serving=True))
        addresses = [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "n1"}]
        await ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"addresses": addresses}})
        client = Client(InProcess(ask.app, NODE))
        names = ("n1", "192.0.2.7")
        renewal = Renewal(client, "n1", None, tmp_path, used.append, purpose=SERVING, names=names)
        assert renewal.due_s() <= 0
        await renewal.renew()
    assert 291 * 86400 < renewal.due_s() < 293 * 86400
    found = x509.load_pem_x509_certificate(used[0].certificate).extensions
    alternative = found.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "n1" in alternative.get_values_for_type(x509.DNSName)
    assert alternative.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("192.0.2.7")]
    purposes = list(found.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == [ExtendedKeyUsageOID.SERVER_AUTH]
    stored = stored_serving(tmp_path, names, time.time())
    assert stored is not None and stored.key.strip() == used[0].key.strip()
    assert (tmp_path / SERVING.file).stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / SERVING.file)
    assert stored_serving(tmp_path, ("n1", "192.0.2.8"), time.time()) is None, "the address has changed"
    assert stored_serving(tmp_path, names, time.time() + 366 * 86400) is None, "it has expired"
    assert stored_serving(tmp_path / "elsewhere", names, time.time()) is None


async def test_run_tries_again(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused twice (the API has no such handler yet), then granted."""
    monkeypatch.setattr(certificate, "RETRY_FIRST_S", 0.01)
    used = asyncio.Queue[NodeIdentity]()
    async with api(tmp_path / "api") as ask:
        inner, refusals = InProcess(ask.app, NODE), []

        class Flaky(InProcess):
            async def send(self, request: Any) -> Any:
                if len(refusals) < 2:
                    refusals.append(request)
                    raise ApiError(503, "ServiceUnavailable", "not yet")
                return await inner.send(request)

        ask.app.options.handlers.update(certificate_requests(authority))
        old = issued(authority, datetime.now(UTC) - timedelta(days=300))
        renewal = Renewal(Client(Flaky(ask.app, NODE)), "n1", old, tmp_path, used.put_nowait)
        running = asyncio.create_task(renewal.run())
        try:
            async with asyncio.timeout(120):
                found = await used.get()
        finally:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    assert found == renewal.identity
    assert len(refusals) == 2


async def test_the_key_is_made_elsewhere() -> None:
    pair = await signing_request("system:node:n1", NODES)
    assert pair.key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert pair.request.startswith(b"-----BEGIN CERTIFICATE REQUEST-----")


def test_a_damaged_file_is_ignored(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"-----BEGIN PRIVATE KEY-----")
    given = issued(authority)
    assert stored_identity(tmp_path, given) == given
