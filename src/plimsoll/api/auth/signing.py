"""Signing approved certificate requests for clients of the API server (`kubernetes.io/kube-apiserver-client`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.api.auth.ca import CLOCK_SKEW, Authority, CertificateNotSignedError

if TYPE_CHECKING:
    from cryptography import x509

MASTERS = "system:masters"
_LEAST_RSA_BITS = 2048


def loaded_request(pem: bytes) -> x509.CertificateSigningRequest:
    """A PKCS#10 request that is signed with its own key; raises CertificateNotSignedError."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        found = x509.load_pem_x509_csr(pem)
        is_proved = found.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateNotSignedError("PEM block type must be CERTIFICATE REQUEST") from None
    if not is_proved:
        raise CertificateNotSignedError("it is not signed with its own key")
    return found


def organizations(pem: bytes) -> list[str]:
    from cryptography.x509.oid import NameOID

    return [str(each.value) for each in loaded_request(pem).subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def sign_client(authority: Authority, pem: bytes, life: timedelta, now: datetime | None = None) -> bytes:
    """A client certificate with the subject of the request and nothing else of it. Raises CertificateNotSignedError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID

    request = loaded_request(pem)
    key: Any = request.public_key()
    if isinstance(key, RSAPublicKey) and key.key_size < _LEAST_RSA_BITS:
        raise CertificateNotSignedError(f"an RSA key must have at least {_LEAST_RSA_BITS} bits")
    if not isinstance(key, (RSAPublicKey, EllipticCurvePublicKey)):
        raise CertificateNotSignedError(f"a {type(key).__name__} is not supported: use an RSA or EC key")
    if MASTERS in organizations(pem):
        raise CertificateNotSignedError(f"{MASTERS} is never signed")
    issuer, issuer_key = authority.issuer()
    at = now or datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - CLOCK_SKEW)
        .not_valid_after(at + life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)
