"""Assemble authentication: the CA's client certificates first, then bearer tokens."""

from __future__ import annotations

import socket
from pathlib import Path

from plimsoll.api.auth.ca import Authority, kubeconfig
from plimsoll.api.machinery.exchange import Authenticator, Headers, Scope
from plimsoll.api.machinery.users import MASTERS, Tokens, User, authenticate_user
from plimsoll.linux.files.state_dir import write_private

ADMIN = "admin"
ADMIN_FILE = "admin.kubeconfig"


def authenticator(state: Path) -> Authenticator:
    tokens = Tokens(state)

    def authenticate(scope: Scope, headers: Headers) -> User:
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        return authenticate_user(authorization, scope.get("state", {}).get("peer"), tokens)

    return authenticate


def server_names(host: str) -> tuple[str, ...]:
    """The names in the server's certificate: where it listens, and this machine's name."""
    names = ["127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default"]
    if host not in ("", "0.0.0.0", "::"):
        names.append(host)
    names.append(socket.gethostname())
    return tuple(dict.fromkeys(names))


def write_admin_kubeconfig(state: Path, authority: Authority, url: str) -> Path:
    """Written at every start, because the address may have changed; the certificate is new each time, too."""
    path = state / ADMIN_FILE
    issued = authority.issue(ADMIN, (MASTERS,))
    write_private(path, kubeconfig(url, authority.ca_file.read_bytes(), ADMIN, issued))
    return path
