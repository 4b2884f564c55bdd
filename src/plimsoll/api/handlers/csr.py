"""certificatesigningrequests: a node requests its certificate, and the response contains it.

A kubelet posts its request and waits until it is approved and signed. This server does both at once, so nothing is
stored: a node that authenticates with its certificate gets the same identity for a new key (05 B9; renewed at 80 % of
its lifetime), and a user who may create `certificatesigningrequests/nodeclient`, as bootstrap tokens do, gets the
identity of the node that the request names, unless that node exists. A serving certificate has only names and addresses
of the node, never one of the API server. Other users, subjects, usages and signers are refused.
"""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta

from plimsoll.api.auth.ca import LEAF_DAYS, Authority, CertificateNotSignedError, endpoint_name, requested_node
from plimsoll.api.auth.roles import is_allowed
from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.status import invalid_object
from plimsoll.errors import FieldError
from plimsoll.rules.access.rbac import Attributes
from plimsoll.rules.model.json_object import JsonObject

CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
SIGNERS = (CLIENT, SERVING)
# What each signer signs; `key encipherment` may be added.
_USAGES = {CLIENT: {"digital signature", "client auth"}, SERVING: {"digital signature", "server auth"}}
LEAST_S, MOST_S = 600, LEAF_DAYS * 86400


def certificate_requests(authority: Authority) -> dict[Route, Handler]:
    async def create(cluster: Cluster, call: ApiCall) -> Response:
        resource = call.info.resource
        document = await read_object(cluster, call, kind_of(resource), write_options(call.info, call.user_agent))
        spec, name = document.get("spec") or {}, (document.get("metadata") or {}).get("name") or ""
        life_s = spec.get("expirationSeconds") or MOST_S

        def refused(field: str, reason: str) -> Exception:
            return invalid_object(resource, name, [FieldError("FieldValueInvalid", f"spec.{field}", reason)])

        if spec.get("signerName") not in SIGNERS:
            raise refused("signerName", f"must be {' or '.join(SIGNERS)}")
        client = spec["signerName"] == CLIENT
        node = call.user.node or (_joining_node(cluster, call, spec) if client else "")
        if not node:
            raise refused("username", f"{call.user.name} is not a node, and only nodes can request certificates")
        usages = set(spec.get("usages") or ())
        if usages and usages - {"key encipherment"} != _USAGES[spec["signerName"]]:
            raise refused("usages", f"must be {' and '.join(sorted(_USAGES[spec['signerName']]))}")
        if life_s < LEAST_S:
            raise refused("expirationSeconds", f"may not be less than {LEAST_S}")
        try:
            request = base64.b64decode(spec.get("request") or "", validate=True)
            certificate = authority.sign_node(
                request,
                node,
                timedelta(seconds=min(life_s, MOST_S)),
                serves_as=None if client else _own_names(cluster, node),
            )
        except (binascii.Error, CertificateNotSignedError) as error:
            raise refused("request", str(error)) from None
        now = cluster.now()
        metadata = {**(document.get("metadata") or {}), "uid": cluster.new_uid(), "creationTimestamp": now}
        approved = {
            "type": "Approved",
            "status": "True",
            "reason": "AutoApproved",
            "message": "Auto approving the certificate of a node that requests it for itself.",
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }
        answer = {
            **document,
            "metadata": metadata,
            "spec": {**spec, "username": call.user.name, "groups": sorted(call.user.groups)},
            "status": {"conditions": [approved], "certificate": base64.b64encode(certificate).decode()},
        }
        return Response(201, line(answer), is_ready=True)

    return {("certificates.k8s.io", "certificatesigningrequests", "", "create"): create}


def _joining_node(cluster: Cluster, call: ApiCall, spec: JsonObject) -> str:
    """The name of the node that joins with this request; empty where the user may not, or where it exists already.

    A bootstrap token is shared by many machines: it must not become the identity of a node that runs.
    """
    asked = Attributes("create", "certificatesigningrequests", "certificates.k8s.io", "nodeclient")
    if not is_allowed(call.user, asked, cluster):
        return ""
    node = requested_node(base64.b64decode(spec.get("request") or ""))
    return "" if not node or cluster.document("nodes", "", node) is not None else node


def _own_names(cluster: Cluster, node: str) -> frozenset[str]:
    """The node's name and the addresses that it has reported."""
    document = cluster.document("nodes", "", node) or {}
    addresses = (document.get("status") or {}).get("addresses") or ()
    return frozenset({node, endpoint_name(node), *(each.get("address") or "" for each in addresses)})
