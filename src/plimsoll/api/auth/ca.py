"""The certificate authority of one cluster: created at the first start, then only read.

Files in `pki/` of the state directory, all 0600: `ca.crt`, `ca.key`, `server.crt`, `server.key` (renewed when
its names change, and before it expires), `client.crt`, `client.key` (with which the server calls nodes). Keys are
EC P-256. `cryptography` is imported only here and only to create something: it costs 130 ms and 14 MB.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from plimsoll.api.machinery.users import NODE_PREFIX, NODES
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import private_directory, write_private
from plimsoll.net.tls import server_context
from plimsoll.rules.model.names import dns_subdomain_problems

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

CA_YEARS, LEAF_DAYS = 10, 365
RENEW_AT = 0.8  # of a certificate's lifetime
CLOCK_SKEW = timedelta(minutes=5)
# A node's endpoint has a name of its own: with the node's name alone, a node that is called like the API server's host
# could present its certificate as the API server's.
NODE_DOMAIN = "nodes.plimsoll.internal"
# Names of the API server in every cluster, whatever its certificate has.
API_SERVER_NAMES = frozenset(
    {
        "127.0.0.1",
        "::1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "plimsoll-api",
    }
)


def endpoint_name(node: str) -> str:
    """The name in the server certificate of a node's endpoint."""
    return f"{node}.{NODE_DOMAIN}"


class Issued(msgspec.Struct, frozen=True):
    """A certificate with its key, both PEM."""

    certificate: bytes
    key: bytes


class CertificateNotSignedError(PlimsollError):
    """Why a signing request is refused."""


class Authority:
    def __init__(self, state: Path) -> None:
        self.directory = private_directory(state / "pki")
        self.ca_file = self.directory / "ca.crt"
        self._key_file = self.directory / "ca.key"

    def prepare(self, names: Sequence[str], now: datetime | None = None) -> None:
        """Create what is missing, expired or has other names; idempotent."""
        now = now or datetime.now(UTC)
        if not self.ca_file.exists() or not self._key_file.exists():
            authority = _self_signed(now)
            write_private(self._key_file, authority.key)
            write_private(self.ca_file, authority.certificate)
        self._renew("server", now, common_name="plimsoll-api", organizations=(), names=names)
        self._renew("client", now, common_name="plimsoll-api", organizations=("plimsoll:api",), names=())

    def issue(
        self,
        common_name: str,
        organizations: Sequence[str] = (),
        names: Sequence[str] = (),
        *,
        now: datetime | None = None,
        days: int = LEAF_DAYS,
        calls_too: bool = False,
    ) -> Issued:
        """With `names` a server certificate, without a client certificate (user = CN, groups = O).

        `calls_too`: both in one, for a node, which calls the API and serves its own endpoint.
        """
        from cryptography.hazmat.primitives.asymmetric import ec

        key, subject = ec.generate_private_key(ec.SECP256R1()), _name(common_name, organizations)
        now, life = now or datetime.now(UTC), timedelta(days=days)
        leaf = _leaf(*self.issuer(), subject, key.public_key(), names, now, life, calls_too=calls_too)
        return _pem(leaf, key)

    def issue_node(self, name: str) -> Issued:
        """A node's identity: user system:node:NAME, and the server name of its endpoint."""
        return self.issue(f"{NODE_PREFIX}{name}", [NODES], [endpoint_name(name)], calls_too=True)

    def sign_node(
        self,
        request: bytes,
        name: str,
        life: timedelta,
        now: datetime | None = None,
        *,
        serves_as: Collection[str] | None = None,
    ) -> bytes:
        """The certificate, PEM, for a node's own request (PKCS#10, PEM), whose key stays with the node.

        `serves_as`: for a serving certificate, the node's names and addresses, which the request may contain; without
        it the certificate is the node's identity, and the request may contain no names. Raises
        CertificateNotSignedError unless its subject is this node and it is signed with its own key.
        """
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

        try:
            csr = x509.load_pem_x509_csr(request)
            public_key = csr.public_key()
            is_proved = csr.is_signature_valid
        except (ValueError, UnsupportedAlgorithm) as error:
            raise CertificateNotSignedError(f"invalid certificate signing request: {error}") from None
        if not is_proved:
            raise CertificateNotSignedError("it is not signed with its own key")
        if csr.subject != _name(f"{NODE_PREFIX}{name}", [NODES]):
            raise CertificateNotSignedError(
                f"subject {csr.subject.rfc4514_string()} is not this node: O={NODES},CN={NODE_PREFIX}{name}"
            )
        if not isinstance(public_key, EllipticCurvePublicKey):
            raise CertificateNotSignedError(f"a {type(public_key).__name__} is not supported: use an EC key")
        names = _requested_names(csr)
        if names and serves_as is None:
            raise CertificateNotSignedError(f"a client certificate has no subject alternative names: {_listed(names)}")
        if refused := [each for each in names if each not in (serves_as or ())]:
            raise CertificateNotSignedError(f"not a name or address of this node: {_listed(refused)}")
        if refused := sorted(set(names) & self._api_server_names()):
            raise CertificateNotSignedError(f"a node may not serve as the API server: {_listed(refused)}")
        now, names = now or datetime.now(UTC), [endpoint_name(name), *names]
        is_client = serves_as is None
        return _pem_certificate(_leaf(*self.issuer(), csr.subject, public_key, names, now, life, calls_too=is_client))

    def _api_server_names(self) -> frozenset[str]:
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate((self.directory / "server.crt").read_bytes())
        return API_SERVER_NAMES | _alternative_names(certificate.extensions)

    def issuer(self) -> tuple[x509.Name, EllipticCurvePrivateKey]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(self._key_file.read_bytes(), None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise TypeError(f"ca.key contains a {type(key).__name__}, not an EC key")
        return x509.load_pem_x509_certificate(self.ca_file.read_bytes()).subject, key

    def server_context(self) -> ssl.SSLContext:
        """A client may send a certificate of this CA; any other or an expired one ends the handshake."""
        context = server_context()
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        context.load_verify_locations(self.ca_file)
        return context

    def client_context(self) -> ssl.SSLContext:
        """For calls of the API server to a node's endpoint."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(self.directory / "client.crt", self.directory / "client.key")
        return context

    def _renew(
        self, stem: str, now: datetime, common_name: str, organizations: Sequence[str], names: Sequence[str]
    ) -> None:
        certificate, key = self.directory / f"{stem}.crt", self.directory / f"{stem}.key"
        if certificate.exists() and key.exists() and _still_good(certificate.read_bytes(), names, now):
            return
        issued = self.issue(common_name, organizations, names, now=now)
        write_private(key, issued.key)
        write_private(certificate, issued.certificate)


def requested_node(request: bytes) -> str:
    """The node whose certificate is requested (PKCS#10, PEM); empty where it is no node's."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.load_pem_x509_csr(request).subject
    except ValueError:
        return ""
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    name = names[0].removeprefix(NODE_PREFIX) if len(names) == 1 and names[0].startswith(NODE_PREFIX) else ""
    return "" if dns_subdomain_problems(name) else name


def kubeconfig(server: str, ca_certificate: bytes, user: str, credential: Issued | str) -> bytes:
    """A kubeconfig with everything inside: the CA, and a client certificate or a bearer token."""
    if isinstance(credential, str):
        secret = {"token": credential}
    else:
        secret = {
            "client-certificate-data": _base64(credential.certificate),
            "client-key-data": _base64(credential.key),
        }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "plimsoll", "cluster": {"server": server, "certificate-authority-data": _base64(ca_certificate)}}
        ],
        "users": [{"name": user, "user": secret}],
        "contexts": [{"name": "plimsoll", "context": {"cluster": "plimsoll", "user": user}}],
        "current-context": "plimsoll",
    }
    return msgspec.yaml.encode(document)


def node_kubeconfig(authority: Authority, url: str, name: str) -> bytes:
    return kubeconfig(url, authority.ca_file.read_bytes(), f"{NODE_PREFIX}{name}", authority.issue_node(name))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _self_signed(now: datetime) -> Issued:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("plimsoll-ca", ())
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key(), now, timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate, key)


def _leaf(
    issuer: x509.Name,
    issuer_key: EllipticCurvePrivateKey,
    subject: x509.Name,
    public_key: EllipticCurvePublicKey,
    names: Sequence[str],
    now: datetime,
    life: timedelta,
    *,
    calls_too: bool,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if names else []
    if calls_too or not names:
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    builder = (
        _builder(subject, issuer, public_key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), False)
    return builder.sign(issuer_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem_certificate(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem(certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> Issued:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Issued(
        _pem_certificate(certificate),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _still_good(pem: bytes, names: Sequence[str], now: datetime) -> bool:
    """Whether it is below 80 % of its lifetime and has every one of the names."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    begin = certificate.not_valid_before_utc
    if now > begin + (certificate.not_valid_after_utc - begin) * RENEW_AT:
        return False
    if not names:
        return True
    return _alternative_names(certificate.extensions).issuperset(names)


def _alternative_names(extensions: x509.Extensions) -> frozenset[str]:
    from cryptography import x509

    try:
        found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in found)


def _requested_names(csr: x509.CertificateSigningRequest) -> list[str]:
    try:
        return sorted(_alternative_names(csr.extensions))
    except ValueError as error:
        raise CertificateNotSignedError(f"invalid certificate signing request: {error}") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
