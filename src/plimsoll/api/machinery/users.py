"""The user of a request: a client certificate's subject (user = CN, groups = O) or a bearer token, as in Kubernetes.

Tokens are random; only their SHA-256 is stored (`tokens.json`, 0600), so a backup does not contain them. A request with
an unknown token is refused for every path, also where anonymous requests are allowed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Any, Protocol

import msgspec

from plimsoll.linux.files.state_dir import write_private
from plimsoll.rules.model.json_object import JsonObject

MASTERS, VIEWERS, NODES, AUTHENTICATED = "system:masters", "plimsoll:viewers", "system:nodes", "system:authenticated"
SERVER = "plimsoll:api"  # the API server itself, when it calls a node
NODE_PREFIX = "system:node:"
TOKEN_PREFIX = "plm_"  # lets a secret scanner find a token that was committed by mistake


class User(msgspec.Struct, frozen=True):
    name: str
    groups: frozenset[str] = frozenset()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further facts, by name

    def info(self) -> JsonObject:
        """As UserInfo of authentication.k8s.io."""
        info: JsonObject = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        info["groups"] = sorted(self.groups)
        if self.extra:
            info["extra"] = {name: list(values) for name, values in self.extra}
        return info

    @property
    def node(self) -> str:
        """The name of the node, where the user is one; else empty."""
        if NODES in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX)
        return ""


ANONYMOUS = User("system:anonymous", frozenset({"system:unauthenticated"}))


class _StoredToken(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...]
    digest: str


class InvalidCredentialsError(Exception):
    """401 for every request. The reason is shown by TokenReview."""

    def __init__(self, reason: str = "invalid bearer token") -> None:
        super().__init__(reason)


def certificate_user(peer: dict[str, Any]) -> User | None:
    """From `SSLObject.getpeercert()`, which TLS has verified; None where there is no common name."""
    name, groups = "", {AUTHENTICATED}
    for relative in peer.get("subject", ()):
        for key, value in relative:
            if key == "commonName":
                name = value
            elif key == "organizationName":
                groups.add(value)
    return User(name, frozenset(groups)) if name else None


class Tokens:
    """The file of known tokens; read again when it changes, so that a new token works at once."""

    def __init__(self, state: Path) -> None:
        self._file = state / "tokens.json"
        self._stamp: tuple[int, int] | None = None
        self._stored: list[_StoredToken] = []

    def create(self, name: str, groups: tuple[str, ...]) -> str:
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        self._refresh()
        self._write([*self._stored, _StoredToken(name, groups, _digest(token))])
        return token

    def names(self) -> list[str]:
        self._refresh()
        return [token.name for token in self._stored]

    def revoke(self, name: str) -> int:
        """Remove the tokens of a user; how many there were."""
        self._refresh()
        left = [token for token in self._stored if token.name != name]
        gone = len(self._stored) - len(left)
        if gone:
            self._write(left)
        return gone

    def user(self, token: str) -> User:
        self._refresh()
        digest = _digest(token)
        for stored in self._stored:
            if hmac.compare_digest(stored.digest, digest):
                return User(stored.name, frozenset({*stored.groups, AUTHENTICATED}))
        raise InvalidCredentialsError

    def _write(self, tokens: list[_StoredToken]) -> None:
        write_private(self._file, msgspec.json.format(msgspec.json.encode(tokens)))
        self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            self._stored, self._stamp = [], None
            return
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._stored = msgspec.json.decode(self._file.read_bytes(), type=list[_StoredToken])
            self._stamp = stamp


def merged_tokens(before: bytes, mine: bytes, theirs: bytes) -> bytes:
    """The file of tokens after it was changed at two places: what was created or revoked at either one."""
    if mine == before:
        return theirs
    old, own, other = (msgspec.json.decode(each or b"[]", type=list[_StoredToken]) for each in (before, mine, theirs))
    kept = [token for token in other if token in own or token not in old]
    created = [token for token in own if token not in old and token not in other]
    return msgspec.json.format(msgspec.json.encode([*kept, *created]))


class TokenUsers(Protocol):
    def user(self, token: str) -> User:
        """Raises InvalidCredentialsError."""
        ...


def authenticate_user(authorization: str, peer: dict[str, Any] | None, tokens: TokenUsers) -> User:
    """A certificate takes precedence over a token, as in Kubernetes; without either the user is anonymous."""
    if peer and (user := certificate_user(peer)) is not None:
        return user
    if not authorization:
        return ANONYMOUS
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise InvalidCredentialsError
    return tokens.user(token.strip())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
