"""`kubectl auth can-i [--list]` and `auth whoami`: reviews of the requesting user, never stored."""

from __future__ import annotations

import msgspec

from plimsoll.api.auth.node_authorizer import Attributes, Decision
from plimsoll.api.auth.roles import ResourceRule, may_read_path, rules_of, verdict
from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.status import bad_request, invalid_object
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject


async def access_review(cluster: Cluster, call: ApiCall) -> Response:
    review = await read_object(cluster, call, kind_of(call.info.resource), write_options(call.info, call.user_agent))
    spec = review.get("spec") or {}
    attributes, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (attributes is None) == (path is None):
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid_object(call.info.resource, "", [FieldError("FieldValueInvalid", "spec", reason)])
    if attributes is not None:
        decision = verdict(call.user, _attributes(attributes), cluster.node_graph)
    else:
        decision = Decision(may_read_path(call.user, (path or {}).get("path") or "/"))
    status: JsonObject = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    document = {**review, "metadata": review.get("metadata") or {}, "status": status}
    return Response(201, line(document), is_ready=True)


def _attributes(attributes: JsonObject) -> Attributes:
    fields = ("verb", "resource", "group", "subresource", "namespace", "name")
    return msgspec.convert({field: attributes.get(field) or "" for field in fields}, Attributes)


async def rules_review(cluster: Cluster, call: ApiCall) -> Response:
    review = await read_object(cluster, call, kind_of(call.info.resource), write_options(call.info, call.user_agent))
    namespace = (review.get("spec") or {}).get("namespace") or ""
    if not namespace:
        raise bad_request("no namespace on request")
    rules = rules_of(call.user, namespace)
    status: JsonObject = {
        "resourceRules": [_written(rule) for rule in rules.resources],
        "nonResourceRules": [{"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules.paths],
        "incomplete": bool(rules.beyond),
    }
    if rules.beyond:
        status["evaluationError"] = rules.beyond
    return Response(201, line({**review, "metadata": review.get("metadata") or {}, "status": status}), is_ready=True)


def _written(rule: ResourceRule) -> JsonObject:
    written: JsonObject = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.groups),
        "resources": list(rule.resources),
    }
    if rule.names:
        written["resourceNames"] = list(rule.names)
    return written


async def self_review(cluster: Cluster, call: ApiCall) -> Response:
    review = await read_object(cluster, call, kind_of(call.info.resource), write_options(call.info, call.user_agent))
    info = call.user.info()
    metadata = {**(review.get("metadata") or {}), "creationTimestamp": cluster.now()}
    return Response(201, line({**review, "metadata": metadata, "status": {"userInfo": info}}), is_ready=True)


REVIEWS: dict[Route, Handler] = {
    ("authorization.k8s.io", "selfsubjectaccessreviews", "", "create"): access_review,
    ("authorization.k8s.io", "selfsubjectrulesreviews", "", "create"): rules_review,
    ("authentication.k8s.io", "selfsubjectreviews", "", "create"): self_review,
}
