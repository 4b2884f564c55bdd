"""Impersonation (`kubectl --as`): a request with the rights of another user, by one who may `impersonate` it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from plimsoll.api.auth.roles import denial, is_allowed, verdict
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.exchange import Headers
from plimsoll.api.machinery.status import StatusError, internal_error
from plimsoll.api.machinery.users import AUTHENTICATED, User
from plimsoll.rules.access.rbac import Attributes
from plimsoll.rules.access.token_claims import USER_PREFIX, account_groups

USER, GROUP, UID, EXTRA = b"impersonate-user", b"impersonate-group", b"impersonate-uid", b"impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def impersonated(user: User, headers: Headers, every: list[tuple[bytes, bytes]], cluster: Cluster) -> User:
    """The user of the request; `every`: all headers, since a group may come several times. Raises 403, 500."""
    if not any(name.startswith(b"impersonate-") for name in headers):
        return user
    name = headers.get(USER, b"").decode("latin-1")
    groups = [value.decode("latin-1") for header, value in every if header.lower() == GROUP]
    uid = headers.get(UID, b"").decode("latin-1")
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in every:
        if header.lower().startswith(EXTRA):
            field = unquote(header.lower().removeprefix(EXTRA).decode("latin-1"))
            extra[field] = (*extra.get(field, ()), value.decode("latin-1"))
    if not name:
        given = "groups" if groups else "uid" if uid else "userextras"
        raise internal_error(f"requested [{given}] without impersonating a user")
    account = name.removeprefix(USER_PREFIX).partition(":") if name.startswith(USER_PREFIX) else ("", "", "")
    for request in _requests(name, groups, uid, extra, account):
        if not is_allowed(user, request, cluster):
            raise _refusal(user, request, cluster)
    if account[1] and not groups:
        groups = sorted(account_groups(account[0]))
    return User(name, frozenset({*groups, AUTHENTICATED}), uid, tuple(extra.items()))


def _requests(
    name: str, groups: list[str], uid: str, extra: dict[str, tuple[str, ...]], account: tuple[str, str, str]
) -> Iterator[Attributes]:
    if account[1]:
        yield Attributes("impersonate", "serviceaccounts", namespace=account[0], name=account[2])
    else:
        yield Attributes("impersonate", "users", name=name)
    for group in groups:
        yield Attributes("impersonate", "groups", name=group)
    if uid:
        yield Attributes("impersonate", "uids", _AUTHENTICATION, name=uid)
    for field, values in extra.items():
        for value in values:
            yield Attributes("impersonate", "userextras", _AUTHENTICATION, field, name=value)


def _refusal(user: User, request: Attributes, cluster: Cluster) -> StatusError:
    reason = verdict(user, request, cluster).reason
    shown = f"{request.resource}.{request.group}" if request.group else request.resource
    message = f'{shown} "{request.name}" is forbidden: {denial(user, request, reason)}'
    details = {"name": request.name, "group": request.group, "kind": request.resource}
    return StatusError(403, "Forbidden", message, {field: value for field, value in details.items() if value})
