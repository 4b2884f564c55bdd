"""Bootstrap tokens: `ID.SECRET`, kept in the Secret kube-system/bootstrap-token-ID, with which a node joins."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping

from plimsoll.rules.timestamps import epoch_seconds

NAMESPACE = "kube-system"
SECRET_TYPE = "bootstrap.kubernetes.io/token"
SECRET_PREFIX = "bootstrap-token-"
USER_PREFIX, GROUP = "system:bootstrap:", "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})", re.ASCII)
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", re.ASCII)


def parts(token: str) -> tuple[str, str] | None:
    """(ID, secret) of a token; None where it is not a bootstrap token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else (match[1], match[2])


def groups(identifier: str, secret: str, kind: str, data: Mapping[str, str], now_s: float) -> frozenset[str] | None:
    """The groups of the token's user; None where the Secret (its type and its decoded data) does not admit it."""
    if kind != SECRET_TYPE or data.get("token-id") != identifier:
        return None
    if not hmac.compare_digest(data.get("token-secret", "").encode(), secret.encode()):
        return None
    if data.get("usage-bootstrap-authentication") != "true":
        return None
    if expires := data.get("expiration"):
        end_s = epoch_seconds(expires)
        if end_s is None or end_s <= now_s:
            return None
    extra = [each for each in data.get("auth-extra-groups", "").split(",") if each]
    if not all(_EXTRA_GROUP.fullmatch(each) for each in extra):
        return None
    return frozenset({GROUP, *extra})
