"""Tokens of service accounts: JSON Web Tokens that this server signs, and the key with which others check them.

The key (EC P-256, ES256) is in `pki/sa.key`, 0600, created at the first use. A signature is checked once for each
token and remembered; expiry and bound objects are checked at every request.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from plimsoll.api.machinery.users import InvalidCredentialsError
from plimsoll.linux.files.state_dir import private_directory, write_private
from plimsoll.rules.access.token_claims import Claims

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KEY_FILE = "pki/sa.key"
ISSUER = "https://kubernetes.default.svc.cluster.local"
JWKS_PATH, CONFIGURATION_PATH = "/openid/v1/jwks", "/.well-known/openid-configuration"
_NUMBER_BYTES = 32  # r and s of a signature, x and y of the key
_CACHED = 4096
_claims = msgspec.json.Decoder(Claims)


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""


_header = msgspec.json.Decoder(_Header)


class AccountTokens:
    def __init__(self, state: Path, issuer: str = ISSUER) -> None:
        self._file = state / KEY_FILE
        self.issuer = issuer
        self.audiences = (issuer,)
        self._verified: dict[bytes, Claims] = {}  # by the token's digest

    def prepare(self) -> None:
        """Create the key if there is none."""
        self._key  # noqa: B018

    @cached_property
    def _key(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        if not self._file.exists():
            private_directory(self._file.parent)
            new = ec.generate_private_key(ec.SECP256R1())
            write_private(self._file, new.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        key = load_pem_private_key(self._file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self._file} contains a {type(key).__name__}, not an EC key")
        return key

    @cached_property
    def key_id(self) -> str:
        """As Kubernetes names a key: the SHA-256 of its DER form."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _encoded(hashlib.sha256(public).digest())

    def sign(self, claims: Claims) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        head = _encoded(msgspec.json.encode(_Header("ES256", self.key_id)))
        signed = f"{head}.{_encoded(msgspec.json.encode(claims))}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encoded(_number(r) + _number(s))}"

    def verified(self, token: str) -> Claims:
        """The claims of a token that this server has signed; raises InvalidCredentialsError. It may have expired."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        claims = self._verified.get(digest)
        if claims is None:
            claims = self._checked(token)
            if len(self._verified) >= _CACHED:
                del self._verified[next(iter(self._verified))]
            self._verified[digest] = claims
        return claims

    def _checked(self, token: str) -> Claims:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        signed, _, last = token.rpartition(".")
        head, _, body = signed.partition(".")
        try:
            header, signature = _header.decode(_decoded(head)), _decoded(last)
            claims = _claims.decode(_decoded(body))
        except (ValueError, msgspec.DecodeError) as error:
            raise InvalidCredentialsError("invalid bearer token") from error
        if header.alg != "ES256" or header.kid != self.key_id or len(signature) != 2 * _NUMBER_BYTES:
            raise InvalidCredentialsError("invalid bearer token")
        r, s = (int.from_bytes(part, "big") for part in (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:]))
        try:
            self._key.public_key().verify(utils.encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise InvalidCredentialsError("invalid bearer token") from None
        if claims.iss != self.issuer:
            raise InvalidCredentialsError("invalid bearer token")
        return claims

    def key_set(self) -> bytes:
        numbers = self._key.public_key().public_numbers()
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": "P-256",
            "alg": "ES256",
            "x": _encoded(_number(numbers.x)),
            "y": _encoded(_number(numbers.y)),
        }
        return msgspec.json.encode({"keys": [key]})

    def configuration(self, address: str) -> bytes:
        """What OpenID Connect discovery says about this issuer."""
        return msgspec.json.encode(
            {
                "issuer": self.issuer,
                "jwks_uri": f"https://{address}{JWKS_PATH}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }
        )


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "big")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
