"""Assemble authentication: the CA's client certificates first, then bearer tokens of users and of service accounts."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from plimsoll.api.auth.account_tokens import AccountTokens
from plimsoll.api.auth.ca import Authority, kubeconfig
from plimsoll.api.auth.sessions import SESSION_PREFIX, Sessions
from plimsoll.api.machinery.cluster import Cluster, key
from plimsoll.api.machinery.exchange import Headers, Scope
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.users import (
    AUTHENTICATED,
    MASTERS,
    TOKEN_PREFIX,
    InvalidCredentialsError,
    Tokens,
    User,
    authenticate_user,
)
from plimsoll.linux.files.state_dir import write_private
from plimsoll.rules.access import bootstrap_tokens
from plimsoll.rules.access.token_claims import Identity, account_extra, account_groups, refusal
from plimsoll.rules.timestamps import epoch_seconds

ADMIN = "admin"
ADMIN_FILE = "admin.kubeconfig"


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_identified = msgspec.json.Decoder(_Object)


class Credentials:
    """`cluster` is set while the server runs: a token of a service account is checked against its objects."""

    def __init__(self, state: Path) -> None:
        self.accounts = AccountTokens(state)
        self.cluster: Cluster | None = None
        self._tokens = Tokens(state)
        self.sessions = Sessions(time.monotonic)

    def __call__(self, scope: Scope, headers: Headers) -> User:
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        return authenticate_user(authorization, scope.get("state", {}).get("peer"), self)

    def user(self, token: str) -> User:
        return self.reviewed(token, self.accounts.audiences)[0]

    def reviewed(self, token: str, audiences: Collection[str]) -> tuple[User, tuple[str, ...]]:
        """The user, and which of these audiences may accept the token; raises InvalidCredentialsError."""
        if token.startswith(SESSION_PREFIX):
            return self.sessions.user(token, self.user), self._own_audiences(audiences)
        if (own := bootstrap_tokens.parts(token)) is not None:
            return self._bootstrap_user(*own), self._own_audiences(audiences)
        if token.startswith(TOKEN_PREFIX) or token.count(".") != 2:
            return self._tokens.user(token), self._own_audiences(audiences)
        claims = self.accounts.verified(token)
        accepted = tuple(each for each in audiences if each in claims.aud)
        if not accepted:
            raise InvalidCredentialsError("the token is for other audiences")
        if self.cluster is None:
            raise InvalidCredentialsError("the server has not started")
        reason = refusal(claims, self._identity, self.cluster.clock())
        if reason:
            raise InvalidCredentialsError(reason)
        bound = claims.kubernetes
        extra = tuple(account_extra(claims).items())
        return User(claims.sub, account_groups(bound.namespace), bound.serviceaccount.uid, extra), accepted

    def _own_audiences(self, audiences: Collection[str]) -> tuple[str, ...]:
        """Of a token that names no audience: it is for this server alone."""
        accepted = tuple(each for each in audiences if each in self.accounts.audiences)
        if not accepted:
            raise InvalidCredentialsError("the token is for other audiences")
        return accepted

    def _bootstrap_user(self, identifier: str, secret: str) -> User:
        name = f"{bootstrap_tokens.SECRET_PREFIX}{identifier}"
        found = self.cluster.document("secrets", bootstrap_tokens.NAMESPACE, name) if self.cluster else None
        if found is None or self.cluster is None or found["metadata"].get("deletionTimestamp"):
            raise InvalidCredentialsError
        data = {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in found.get("data", {}).items()}
        groups = bootstrap_tokens.groups(identifier, secret, found.get("type") or "", data, self.cluster.clock())
        if groups is None:
            raise InvalidCredentialsError
        return User(f"{bootstrap_tokens.USER_PREFIX}{identifier}", groups | {AUTHENTICATED})

    def _identity(self, resource: str, namespace: str, name: str) -> Identity | None:
        assert self.cluster is not None
        record = self.cluster.store.get(key(stored_resource(resource), namespace, name))
        if record is None:
            return None
        metadata = _identified.decode(record.body).metadata
        return metadata.uid, epoch_seconds(metadata.deletion_timestamp)


def server_names(*hosts: str) -> tuple[str, ...]:
    """The names in the server's certificate: where it listens, the service `kubernetes`, and this machine's name."""
    names = ["127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names.append("kubernetes.default.svc.cluster.local")
    names += (host for host in hosts if host not in ("", "0.0.0.0", "::"))
    names.append(socket.gethostname())
    return tuple(dict.fromkeys(names))


def write_admin_kubeconfig(state: Path, authority: Authority, url: str) -> Path:
    """Written at every start, because the address may have changed; the certificate is new each time, too."""
    path = state / ADMIN_FILE
    issued = authority.issue(ADMIN, (MASTERS,))
    write_private(path, kubeconfig(url, authority.ca_file.read_bytes(), ADMIN, issued))
    return path
