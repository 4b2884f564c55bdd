"""The claims of a service account's token: written for a TokenRequest, and checked when it is used.

A token names its account and, if it is bound, a pod, secret or node; it is valid as long as each of them exists with
the same UID. A pod's token that was requested for 3607 s lasts a year, as in Kubernetes, so that a client which reads
its file only once keeps working; `warnafter` has the requested time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject

LEAST_S, MOST_S = 600, 1 << 32
DEFAULT_S = 3600
EXTENDED_FROM_S, EXTENDED_S = 3607, 365 * 86400
LEEWAY_S = 60
USER_PREFIX = "system:serviceaccount:"
ACCOUNTS = "system:serviceaccounts"
POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
NODE_NAME, NODE_UID = "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid"
CREDENTIAL = "authentication.kubernetes.io/credential-id"


class ObjectRef(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    uid: str = ""


class KubernetesClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str = ""
    node: ObjectRef | None = None
    pod: ObjectRef | None = None
    secret: ObjectRef | None = None
    serviceaccount: ObjectRef = ObjectRef()
    warnafter: int | None = None


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """In the order in which Kubernetes writes them."""

    aud: tuple[str, ...] = ()
    exp: int | None = None
    iat: int | None = None
    iss: str = ""
    jti: str = ""
    kubernetes: KubernetesClaims = msgspec.field(name="kubernetes.io", default=KubernetesClaims())
    nbf: int | None = None
    sub: str = ""


# Reads (uid, deletionTimestamp in seconds or None) of (resource, namespace, name); None where it does not exist.
Identity = tuple[str, float | None]
Lookup = Callable[[str, str, str], Identity | None]


def request_errors(spec: JsonObject) -> list[FieldError]:
    seconds = spec["expirationSeconds"]
    path = "spec.expirationSeconds"
    if seconds < LEAST_S:
        return [FieldError("FieldValueInvalid", path, "may not specify a duration less than 10 minutes", seconds)]
    if seconds > MOST_S:
        return [FieldError("FieldValueInvalid", path, "may not specify a duration larger than 2^32 seconds", seconds)]
    return []


def token_claims(
    account: ObjectRef,
    namespace: str,
    *,
    audiences: Sequence[str],
    api_audiences: Sequence[str],
    seconds: int,
    now_s: float,
    issuer: str,
    identifier: str,
    pod: ObjectRef | None = None,
    node: ObjectRef | None = None,
    secret: ObjectRef | None = None,
) -> Claims:
    warn_after = None
    lasts_s = seconds
    if pod is not None and seconds == EXTENDED_FROM_S and set(audiences) <= set(api_audiences):
        warn_after, lasts_s = int(now_s) + seconds, EXTENDED_S
    bound = KubernetesClaims(namespace, node, pod, secret, account, warn_after)
    now = int(now_s)
    subject = f"{USER_PREFIX}{namespace}:{account.name}"
    return Claims(tuple(audiences), now + lasts_s, now, issuer, identifier, bound, now, subject)


def refusal(claims: Claims, lookup: Lookup, now_s: float) -> str:
    """Why the token is not valid now; empty where it is."""
    if claims.exp is not None and now_s > claims.exp + LEEWAY_S:
        return "service account token has expired"
    if claims.nbf is not None and now_s < claims.nbf - LEEWAY_S:
        return "service account token is not valid yet"
    if claims.iat is not None and now_s < claims.iat - LEEWAY_S:
        return "service account token is issued in the future"
    bound = claims.kubernetes
    account, namespace = bound.serviceaccount, bound.namespace
    if claims.sub != f"{USER_PREFIX}{namespace}:{account.name}":
        return "service account token has another subject"
    found = lookup("serviceaccounts", namespace, account.name)
    if found is None:
        return f'serviceaccounts "{account.name}" not found'
    if found[0] != account.uid:
        return f"service account UID ({found[0]}) does not match claim ({account.uid})"
    if _is_over(found, now_s):
        return f"service account {namespace}/{account.name} has been deleted"
    for resource, place, reference in _bound_objects(bound):
        one = lookup(resource, place, reference.name)
        if one is None or _is_over(one, now_s):
            return "service account token has been invalidated"
        if one[0] != reference.uid:
            kind = resource.removesuffix("s")
            return f"{kind} UID ({one[0]}) does not match service account {kind} ref claim ({reference.uid})"
    return ""


def _bound_objects(bound: KubernetesClaims) -> Iterable[tuple[str, str, ObjectRef]]:
    if bound.secret is not None:
        yield "secrets", bound.namespace, bound.secret
    if bound.pod is not None:
        yield "pods", bound.namespace, bound.pod  # its node is only named
    elif bound.node is not None:
        yield "nodes", "", bound.node


def _is_over(found: Identity, now_s: float) -> bool:
    return found[1] is not None and found[1] < now_s - LEEWAY_S


def account_groups(namespace: str) -> frozenset[str]:
    return frozenset({ACCOUNTS, f"{ACCOUNTS}:{namespace}", "system:authenticated"})


def account_extra(claims: Claims) -> dict[str, tuple[str, ...]]:
    """What `kubectl auth whoami` shows besides name, UID and groups."""
    bound = claims.kubernetes
    extra: dict[str, tuple[str, ...]] = {}
    if claims.jti:
        extra[CREDENTIAL] = (f"JTI={claims.jti}",)
    for reference, name, uid in ((bound.pod, POD_NAME, POD_UID), (bound.node, NODE_NAME, NODE_UID)):
        if reference is not None and reference.name:
            extra[name] = (reference.name,)
            if reference.uid:
                extra[uid] = (reference.uid,)
    return extra
