"""A new key and a signing request for its certificate, generated in a process of its own.

`cryptography` takes 14 MB for the lifetime of a process, and an agent needs it for a moment every ten months. So this
module runs as a program, writes the key and the request (both PEM) to its standard output, and exits.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from plimsoll.aio import run_command
from plimsoll.errors import PlimsollError

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

GENERATE_S = 30.0
_END_OF_KEY = b"-----END PRIVATE KEY-----\n"


class KeyGenerationError(PlimsollError):
    pass


class SigningRequest(msgspec.Struct, frozen=True):
    key: bytes
    request: bytes


async def signing_request(common_name: str, organization: str, names: Sequence[str] = ()) -> SigningRequest:
    """`names`: host names and addresses, for a serving certificate."""
    command = (sys.executable, "-I", "-m", __name__, common_name, organization, *names)
    try:
        code, output, errors = await run_command(*command, timeout_s=GENERATE_S)
    except TimeoutError:
        raise KeyGenerationError(f"no key was generated within {GENERATE_S:g} s") from None
    key, end, request = output.partition(_END_OF_KEY)
    if code or not end:
        raise KeyGenerationError(errors.decode(errors="replace").strip().rpartition("\n")[2] or "no key was generated")
    return SigningRequest(key + end, request)


def generate(common_name: str, organization: str, *names: str) -> SigningRequest:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
        x509.NameAttribute(NameOID.COMMON_NAME, common_name),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), False)
    request = builder.sign(key, hashes.SHA256())
    return SigningRequest(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), request.public_bytes(Encoding.PEM)
    )


def _general_name(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


if __name__ == "__main__":
    pair = generate(*sys.argv[1:])
    sys.stdout.buffer.write(pair.key + pair.request)
