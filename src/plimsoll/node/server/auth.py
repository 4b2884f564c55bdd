"""Authentication and authorization of the node's server.

The API server, identified by its client certificate, may do everything. Other callers have a certificate of the
cluster's CA or a bearer token and are checked as the kubelet does: TokenReview for the token, SubjectAccessReview for
`get` on `nodes/stats`, `nodes/metrics`, … They may only read. Results are cached for a while, since scrapers return
every few seconds. Tokens are not stored, only their digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError
from plimsoll.node.server.http import HttpError

API_SERVERS = "plimsoll:api"  # the group in the API server's client certificate
TOKEN_TTL_S, ALLOWED_TTL_S, DENIED_TTL_S = 120.0, 300.0, 30.0
MAX_CACHED = 1024
TOKEN_REVIEWS = ResourcePath("/apis/authentication.k8s.io/v1", "tokenreviews")
ACCESS_REVIEWS = ResourcePath("/apis/authorization.k8s.io/v1", "subjectaccessreviews")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_SUBRESOURCES = {"stats": "stats", "metrics": "metrics", "pods": "pods", "runningpods": "pods", "allocatedPods": "pods"}


class Caller(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()


class AccessReviewer(Protocol):
    """The part of `kube.client.Client` that is needed here."""

    async def ask(self, request: request.Request) -> dict[str, Any]: ...


class EndpointAccess:
    def __init__(
        self,
        node: str,
        client: AccessReviewer | None,
        clock: Callable[[], float],
        api_servers: tuple[str, ...] = (API_SERVERS,),
    ) -> None:
        """`api_servers`: users or groups in certificates of API servers. Without a client all other callers are
        rejected."""
        self._node, self._client, self._clock, self._api_servers = node, client, clock, frozenset(api_servers)
        self._callers: dict[bytes, tuple[float, Caller | None]] = {}
        self._verdicts: dict[tuple[Caller, str], tuple[float, bool]] = {}

    async def check(self, peer: Mapping[str, Any] | None, authorization: bytes, component: str, *, reads: bool) -> None:
        """Raises HttpError 401 or 403 where this caller may not request `/component…`."""
        caller = certificate_caller(peer) if peer else await self._token_caller(authorization)
        if caller is None:
            raise HttpError(401, "Unauthorized")
        if peer and self._api_servers.intersection((caller.name, *caller.groups)):
            return
        subresource = _SUBRESOURCES.get(component, "proxy")
        if not reads or not await self._may(caller, subresource):
            verb = "get" if reads else "create"
            raise HttpError(
                403, f"Forbidden (user={caller.name}, verb={verb}, resource=nodes, subresource={subresource})"
            )

    async def _token_caller(self, authorization: bytes) -> Caller | None:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip() or self._client is None:
            return None
        digest = hashlib.sha256(token.strip()).digest()
        cached = self._callers.get(digest)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        spec = {"token": token.strip().decode("latin-1")}
        status = await self._review(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec)
        if status is None:
            return None  # no answer: nothing to cache
        user = status.get("user") or {}
        caller = None
        if status.get("authenticated") is True and user.get("username"):
            caller = Caller(user["username"], tuple(user.get("groups") or ()))
        _cache(self._callers, digest, (self._clock() + TOKEN_TTL_S, caller))
        return caller

    async def _may(self, caller: Caller, subresource: str) -> bool:
        cached = self._verdicts.get((caller, subresource))
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        attributes = {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": subresource,
            "name": self._node,
        }
        spec = {"user": caller.name, "groups": list(caller.groups), "resourceAttributes": attributes}
        status = await self._review(ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        if status is None:
            return False
        allowed = status.get("allowed") is True
        until = self._clock() + (ALLOWED_TTL_S if allowed else DENIED_TTL_S)
        _cache(self._verdicts, (caller, subresource), (until, allowed))
        return allowed

    async def _review(
        self, reviews: ResourcePath, version: str, kind: str, spec: dict[str, Any]
    ) -> dict[str, Any] | None:
        """None where the API server does not answer; the caller is then rejected."""
        if self._client is None:
            return None
        review = {"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec}
        try:
            answer = await self._client.ask(request.create(reviews, review))
        except (ApiError, UnreachableError, TimeoutError):
            return None
        return answer.get("status") or {}


def certificate_caller(peer: Mapping[str, Any]) -> Caller | None:
    """User = CN, groups = O, as Kubernetes reads a certificate; `peer` is what Python's ssl returns."""
    names = [pair for part in peer.get("subject") or () for pair in part]
    common = next((value for key, value in names if key == "commonName"), "")
    return Caller(common, tuple(value for key, value in names if key == "organizationName")) if common else None


def _cache(entries: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    entries.pop(key, None)
    while len(entries) >= MAX_CACHED:
        del entries[next(iter(entries))]
    entries[key] = value
