"""`kubectl auth can-i [--list]`, `auth whoami`, and the same about other users: reviews, never stored."""

from __future__ import annotations

import msgspec

from plimsoll.api.auth.roles import may_read_path, rules_of, verdict
from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.status import bad_request, invalid_object
from plimsoll.api.machinery.users import User
from plimsoll.errors import FieldError
from plimsoll.rules.access.rbac import Attributes, Decision, PolicyRule
from plimsoll.rules.model.json_object import JsonObject


async def _read(cluster: Cluster, call: ApiCall) -> JsonObject:
    return await read_object(cluster, call, kind_of(call.info.resource), write_options(call.info, call.user_agent))


def _answer(review: JsonObject, status: JsonObject, metadata: JsonObject | None = None) -> Response:
    own = (review.get("metadata") or {}) if metadata is None else metadata
    return Response(201, line({**review, "metadata": own, "status": status}), is_ready=True)


async def self_access_review(cluster: Cluster, call: ApiCall) -> Response:
    review = await _read(cluster, call)
    return _decided(cluster, call, review, call.user, [])


async def access_review(cluster: Cluster, call: ApiCall) -> Response:
    """Of another user: what a node asks before it answers a caller."""
    review = await _read(cluster, call)
    return _decided(cluster, call, review, *_subject(review))


async def local_access_review(cluster: Cluster, call: ApiCall) -> Response:
    review, namespace = await _read(cluster, call), call.info.namespace
    user, errors = _subject(review)
    attributes = (review.get("spec") or {}).get("resourceAttributes") or {}
    if (attributes.get("namespace") or "") != namespace:
        reason = "must match metadata.namespace"
        shown = attributes.get("namespace") or ""
        errors.append(FieldError("FieldValueInvalid", "spec.resourceAttributes.namespace", reason, shown))
    if (review.get("spec") or {}).get("nonResourceAttributes") is not None:
        reason = "disallowed on this kind of request"
        errors.append(FieldError("FieldValueInvalid", "spec.nonResourceAttributes", reason))
    return _decided(cluster, call, review, user, errors)


def _subject(review: JsonObject) -> tuple[User, list[FieldError]]:
    spec = review.get("spec") or {}
    name, groups = spec.get("user") or "", frozenset(spec.get("groups") or ())
    if not name and not groups:
        reason = "at least one of user or group must be specified"
        return User(""), [FieldError("FieldValueInvalid", "spec.user", reason, "")]
    return User(name, groups), []


def _decided(cluster: Cluster, call: ApiCall, review: JsonObject, user: User, errors: list[FieldError]) -> Response:
    spec = review.get("spec") or {}
    attributes, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (attributes is None) == (path is None):
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(FieldError("FieldValueInvalid", "spec", reason))
    if errors:
        raise invalid_object(call.info.resource, "", errors)
    if attributes is not None:
        decision = verdict(user, _attributes(attributes), cluster)
    else:
        asked = path or {}
        verb = asked.get("verb") or "get"
        decision = Decision(may_read_path(user, asked.get("path") or "/", cluster, verb))
    status: JsonObject = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return _answer(review, status)


def _attributes(attributes: JsonObject) -> Attributes:
    fields = ("verb", "resource", "group", "subresource", "namespace", "name")
    return msgspec.convert({field: attributes.get(field) or "" for field in fields}, Attributes)


async def rules_review(cluster: Cluster, call: ApiCall) -> Response:
    review = await _read(cluster, call)
    namespace = (review.get("spec") or {}).get("namespace") or ""
    if not namespace:
        raise bad_request("no namespace on request")
    found = rules_of(call.user, namespace, cluster)
    status: JsonObject = {
        "resourceRules": [_resource_rule(rule) for rule in found.rules if rule.resources],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
            for rule in found.rules
            if rule.non_resource_urls
        ],
        "incomplete": bool(found.beyond),
    }
    if found.beyond:
        status["evaluationError"] = found.beyond
    return _answer(review, status)


def _resource_rule(rule: PolicyRule) -> JsonObject:
    written: JsonObject = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
    }
    if rule.resource_names:
        written["resourceNames"] = list(rule.resource_names)
    return written


async def self_review(cluster: Cluster, call: ApiCall) -> Response:
    review = await _read(cluster, call)
    metadata = {**(review.get("metadata") or {}), "creationTimestamp": cluster.now()}
    return _answer(review, {"userInfo": call.user.info()}, metadata)


_AUTHORIZATION = "authorization.k8s.io"
REVIEWS: dict[Route, Handler] = {
    (_AUTHORIZATION, "localsubjectaccessreviews", "", "create"): local_access_review,
    (_AUTHORIZATION, "selfsubjectaccessreviews", "", "create"): self_access_review,
    (_AUTHORIZATION, "selfsubjectrulesreviews", "", "create"): rules_review,
    (_AUTHORIZATION, "subjectaccessreviews", "", "create"): access_review,
    ("authentication.k8s.io", "selfsubjectreviews", "", "create"): self_review,
}
