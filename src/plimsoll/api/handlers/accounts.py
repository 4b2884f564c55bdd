"""serviceaccounts/NAME/token (TokenRequest) and TokenReview: issue tokens of service accounts, and whose they are."""

from __future__ import annotations

from plimsoll.api.admission.node_restriction import check_token
from plimsoll.api.auth.authenticator import Credentials
from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.status import StatusError, bad_request, invalid, not_found, object_details
from plimsoll.api.machinery.users import InvalidCredentialsError
from plimsoll.codec.schema.schema import schema
from plimsoll.errors import FieldError
from plimsoll.rules.access.token_claims import DEFAULT_S, ObjectRef, request_errors, token_claims
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import rfc3339

_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"
_REQUEST = schema(f"{_GROUP}/v1", _KIND)
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


def account_handlers(credentials: Credentials) -> dict[Route, Handler]:
    async def request_token(cluster: Cluster, call: ApiCall) -> Response:
        info = call.info
        sent = await read_object(cluster, call, _REQUEST, write_options(info, call.user_agent))
        metadata = dict(sent.get("metadata") or {})
        for field, value, what in (("name", info.name, "name"), ("namespace", info.namespace, "namespace")):
            if metadata.get(field) and metadata[field] != value:
                reason = f"must match the service account {what} if specified"
                finding = FieldError("FieldValueInvalid", f"metadata.{field}", reason, metadata[field])
                raise invalid(_GROUP, _KIND, info.name, [finding])
        account = cluster.document("serviceaccounts", info.namespace, info.name)
        if account is None:
            raise not_found(info.resource, info.name)
        own_uid = account["metadata"]["uid"]
        if metadata.get("uid") and metadata["uid"] != own_uid:
            raise _conflict(
                _GROUP,
                _KIND,
                info.name,
                f"the UID in the token request ({metadata['uid']}) does not match the UID of the service account "
                f"({own_uid})",
            )
        tokens, now_s = credentials.accounts, cluster.clock()
        spec = dict(sent.get("spec") or {})
        spec["audiences"] = list(spec.get("audiences") or tokens.audiences)
        spec["expirationSeconds"] = DEFAULT_S if spec.get("expirationSeconds") is None else spec["expirationSeconds"]
        if errors := request_errors(spec):
            raise invalid(_GROUP, _KIND, "", errors)
        bound, kind = _bound_object(cluster, info.namespace, info.name, spec)
        check_token(cluster, call, spec, tokens.audiences)
        pod_node = (bound.get("spec") or {}).get("nodeName") if bound is not None and kind == "Pod" else ""
        claims = token_claims(
            ObjectRef(info.name, own_uid),
            info.namespace,
            audiences=spec["audiences"],
            api_audiences=tokens.audiences,
            seconds=spec["expirationSeconds"],
            now_s=now_s,
            issuer=tokens.issuer,
            identifier=cluster.new_uid(),
            pod=_reference(bound) if kind == "Pod" else None,
            secret=_reference(bound) if kind == "Secret" else None,
            node=_reference(bound) if kind == "Node" else _node_of(cluster, pod_node),
        )
        metadata |= {
            "name": info.name,
            "namespace": info.namespace,
            "uid": own_uid,
            "creationTimestamp": rfc3339(now_s),
        }
        status = {"token": tokens.sign(claims), "expirationTimestamp": rfc3339(now_s + spec["expirationSeconds"])}
        answer = {"kind": _KIND, "apiVersion": f"{_GROUP}/v1", "metadata": metadata, "spec": spec, "status": status}
        return Response(201, line(answer), is_ready=True)

    async def review_token(cluster: Cluster, call: ApiCall) -> Response:
        resource = call.info.resource
        review = await read_object(cluster, call, kind_of(resource), write_options(call.info, call.user_agent))
        spec = review.get("spec") or {}
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        asked = spec.get("audiences") or list(credentials.accounts.audiences)
        status: JsonObject
        try:
            user, audiences = credentials.reviewed(spec["token"], asked)
        except InvalidCredentialsError as error:
            status = {"user": {}, "error": str(error)}
        else:
            status = {"authenticated": True, "user": user.info(), "audiences": list(audiences)}
        metadata = review.get("metadata") or {}
        return Response(201, line({**review, "metadata": metadata, "status": status}), is_ready=True)

    return {
        ("", "serviceaccounts", "token", "create"): request_token,
        (_GROUP, "tokenreviews", "", "create"): review_token,
    }


def _bound_object(cluster: Cluster, namespace: str, account: str, spec: JsonObject) -> tuple[JsonObject | None, str]:
    """The object that the token depends on, and its kind; raises 400, 404, 409."""
    reference = spec.get("boundObjectRef")
    if not reference:
        return None, ""
    kind, version, name = (reference.get(field) or "" for field in ("kind", "apiVersion", "name"))
    if "/" in version or kind not in _BINDABLE:
        group, _, number = version.rpartition("/")
        raise bad_request(f"cannot bind token to object of type {group}/{number}, Kind={kind}")
    resource: ApiResource = stored_resource(_BINDABLE[kind])
    found = cluster.document(resource.storage, namespace if resource.namespaced else "", name)
    if found is None:
        raise not_found(resource, name)
    if kind == "Pod" and (found.get("spec") or {}).get("serviceAccountName") != account:
        raise bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        )
    uid = reference.get("uid") or ""
    if uid and uid != found["metadata"]["uid"]:
        raise _conflict(
            "",
            kind,
            name,
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have "
            "been deleted and then recreated",
        )
    return found, kind


def _conflict(group: str, kind: str, name: str, why: str) -> StatusError:
    shown = f"{kind}.{group}" if group else kind
    message = f'Operation cannot be fulfilled on {shown} "{name}": {why}'
    return StatusError(409, "Conflict", message, object_details(name, group, kind))


def _reference(document: JsonObject | None) -> ObjectRef | None:
    return None if document is None else ObjectRef(document["metadata"]["name"], document["metadata"]["uid"])


def _node_of(cluster: Cluster, name: str | None) -> ObjectRef | None:
    """A node that does not exist is named without its UID."""
    if not name:
        return None
    return _reference(cluster.document("nodes", "", name)) or ObjectRef(name)
