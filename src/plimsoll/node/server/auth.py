"""Authentication and authorization of the node's server, delegated to the API server as a kubelet does.

A caller has a certificate of the cluster's CA, or a bearer token (TokenReview). What it may do is asked with a
SubjectAccessReview about `nodes/stats`, `nodes/metrics`, `nodes/log` or `nodes/proxy`; with KubeletFineGrainedAuthz
first about `nodes/pods`, `nodes/healthz` or `nodes/configz`. The API server itself is such a caller: it is bound to the
ClusterRole system:kubelet-api-admin. exec, attach and port-forward are `create`, also where a WebSocket begins with
GET: the right to read is not enough. Results are cached, since scrapers return every few seconds. Tokens are not
stored, only their digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError
from plimsoll.node.server.http import HttpError
from plimsoll.rules.node.node_config import NodeConfig

AUTHENTICATED = "system:authenticated"
MAX_CACHED = 1024
TOKEN_REVIEWS = ResourcePath("/apis/authentication.k8s.io/v1", "tokenreviews")
ACCESS_REVIEWS = ResourcePath("/apis/authorization.k8s.io/v1", "subjectaccessreviews")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_SUBRESOURCES = {
    "stats": "stats",
    "live": "stats",
    "history": "stats",
    "metrics": "metrics",
    "logs": "log",
    "checkpoint": "checkpoint",
    "statusz": "statusz",
}
_FINE_GRAINED = {
    "pods": "pods",
    "runningpods": "pods",
    "allocatedPods": "pods",
    "healthz": "healthz",
    "configz": "configz",
}
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Caller(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()


class AccessReviewer(Protocol):
    """The part of `kube.client.Client` that is needed here."""

    async def ask(self, request: request.Request) -> dict[str, Any]: ...


class AccessPolicy(msgspec.Struct, frozen=True):
    """What the kubelet's configuration says about callers."""

    fine_grained: bool = True  # gate KubeletFineGrainedAuthz
    always_allow: bool = False  # authorization.mode AlwaysAllow: every caller with valid credentials
    token_ttl_s: float = 120.0
    allowed_ttl_s: float = 300.0
    denied_ttl_s: float = 30.0


def access_policy(setting: NodeConfig) -> AccessPolicy:
    config = setting.config
    return AccessPolicy(
        fine_grained=config.gate("KubeletFineGrainedAuthz"),
        always_allow=config.authorization_mode == "AlwaysAllow",
        token_ttl_s=config.token_cache_s,
        allowed_ttl_s=config.allowed_cache_s,
        denied_ttl_s=config.denied_cache_s,
    )


class EndpointAccess:
    def __init__(
        self,
        node: str,
        client: AccessReviewer,
        clock: Callable[[], float],
        policy: AccessPolicy = AccessPolicy(),  # noqa: B008 (a frozen value)
    ) -> None:
        self._node, self._client, self._clock, self._policy = node, client, clock, policy
        self._callers: dict[bytes, tuple[float, Caller | None]] = {}
        self._verdicts: dict[tuple[Caller, str, str], tuple[float, bool]] = {}

    async def check(
        self, peer: Mapping[str, Any] | None, authorization: bytes, method: str, component: str, *, streams: bool
    ) -> None:
        """Raises HttpError 401 or 403 where this caller may not request `/component…`."""
        caller = certificate_caller(peer) if peer else await self._token_caller(authorization)
        if caller is None:
            raise HttpError(401, "Unauthorized")
        if self._policy.always_allow:
            return
        verb = "create" if streams else _VERBS.get(method, method.lower())
        asked = subresources(component, fine_grained=self._policy.fine_grained)
        for subresource in asked:
            if await self._may(caller, verb, subresource):
                return
        listed = " ".join(asked)
        raise HttpError(403, f"Forbidden (user={caller.name}, verb={verb}, resource=nodes, subresource(s)=[{listed}])")

    async def _token_caller(self, authorization: bytes) -> Caller | None:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
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
        _cache(self._callers, digest, (self._clock() + self._policy.token_ttl_s, caller))
        return caller

    async def _may(self, caller: Caller, verb: str, subresource: str) -> bool:
        cached = self._verdicts.get((caller, verb, subresource))
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        attributes = {
            "verb": verb,
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
        until = self._clock() + (self._policy.allowed_ttl_s if allowed else self._policy.denied_ttl_s)
        _cache(self._verdicts, (caller, verb, subresource), (until, allowed))
        return allowed

    async def _review(
        self, reviews: ResourcePath, version: str, kind: str, spec: dict[str, Any]
    ) -> dict[str, Any] | None:
        """None where the API server does not answer; the caller is then rejected."""
        review = {"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec}
        try:
            answer = await self._client.ask(request.create(reviews, review))
        except (ApiError, UnreachableError, TimeoutError):
            return None
        return answer.get("status") or {}


def subresources(component: str, *, fine_grained: bool) -> tuple[str, ...]:
    """Of `nodes`, one of which a caller of `/component…` needs."""
    general = _SUBRESOURCES.get(component, "proxy")
    return (_FINE_GRAINED[component], general) if fine_grained and component in _FINE_GRAINED else (general,)


def certificate_caller(peer: Mapping[str, Any]) -> Caller | None:
    """User = CN, groups = O, as Kubernetes reads a certificate; `peer` is what Python's ssl returns."""
    names = [pair for part in peer.get("subject") or () for pair in part]
    common = next((value for key, value in names if key == "commonName"), "")
    groups = (value for key, value in names if key == "organizationName")
    return Caller(common, (*groups, AUTHENTICATED)) if common else None


def _cache(entries: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    entries.pop(key, None)
    while len(entries) >= MAX_CACHED:
        del entries[next(iter(entries))]
    entries[key] = value
