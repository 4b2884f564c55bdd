"""certificatesigningrequests: stored, approved and signed.

A node that renews its own identity, and a user who may create `…/nodeclient` for a node that does not exist (bootstrap
tokens), are approved at once; with `approves_serving` also a node that asks for a serving certificate with its own
names and addresses. Everyone else waits for `kubectl certificate approve`. What is approved is signed in the same
request, so there is no controller that could be behind. Signers: `kube-apiserver-client` (any subject but
`system:masters`), `kube-apiserver-client-kubelet` (nodes) and `kubelet-serving` (names and addresses of the node only).
"""

from __future__ import annotations

import base64
from datetime import timedelta

import msgspec

from plimsoll.api.admission.certificate_requests import API_CLIENT, GROUP, STORAGE
from plimsoll.api.auth.ca import LEAF_DAYS, Authority, CertificateNotSignedError, endpoint_name, requested_node
from plimsoll.api.auth.roles import is_allowed
from plimsoll.api.auth.signing import sign_client
from plimsoll.api.handlers.create import create_object
from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.handlers.patch import patch
from plimsoll.api.handlers.update import update, write
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, kind_of
from plimsoll.api.machinery.metadata import check_preconditions
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.users import AUTHENTICATED, MASTERS, User
from plimsoll.rules.access.rbac import Attributes
from plimsoll.rules.model.json_object import JsonObject

PLURAL = STORAGE
CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
SIGNERS = (API_CLIENT, CLIENT, SERVING)
# What each signer signs; `key encipherment` may be added.
_USAGES = {
    API_CLIENT: {"digital signature", "client auth"},
    CLIENT: {"digital signature", "client auth"},
    SERVING: {"digital signature", "server auth"},
}
_CONTROLLER = User("system:kube-controller-manager", frozenset({MASTERS, AUTHENTICATED}))
MOST_S = LEAF_DAYS * 86400


def certificate_requests(authority: Authority, *, approves_serving: bool = False) -> dict[Route, Handler]:
    async def create(cluster: Cluster, call: ApiCall) -> Response:
        options = write_options(call.info, call.user_agent)
        document = await read_object(cluster, call, kind_of(call.info.resource), options)
        made = await create_object(cluster, call, options, document)
        stored = msgspec.json.decode(made.body)
        message = _auto_approval(cluster, call, stored["spec"], approves_serving=approves_serving)
        if not message or options.dry_run:
            return made
        approved = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
        await _set(cluster, call, stored, "approval", {"conditions": [approved]})
        signed = await sign(cluster, call, stored)
        return msgspec.structs.replace(signed or made, code=201)

    async def approve(cluster: Cluster, call: ApiCall) -> Response:
        answer = await (patch if call.info.verb == "patch" else update)(cluster, call)
        if write_options(call.info, call.user_agent).dry_run:
            return answer
        return await sign(cluster, call, msgspec.json.decode(answer.body)) or answer

    async def sign(cluster: Cluster, call: ApiCall, asked: JsonObject) -> Response | None:
        """The approved request with its certificate, or with the condition Failed; None if there is nothing to sign."""
        stored = cluster.document(PLURAL, "", asked["metadata"]["name"])
        if stored is None or stored["metadata"]["uid"] != asked["metadata"]["uid"]:
            return None
        spec, status = stored.get("spec") or {}, stored.get("status") or {}
        types = {each.get("type") for each in status.get("conditions") or []}
        if "Approved" not in types or types & {"Denied", "Failed"} or status.get("certificate"):
            return None
        if spec.get("signerName") not in SIGNERS:
            return None  # another party signs it
        try:
            certificate = _signed(cluster, authority, spec)
        except CertificateNotSignedError as error:
            failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": str(error)}
            failed |= {"lastUpdateTime": cluster.now(), "lastTransitionTime": cluster.now()}
            return await _set(cluster, call, stored, "status", {"conditions": [failed]})
        return await _set(cluster, call, stored, "status", {"certificate": base64.b64encode(certificate).decode()})

    return {
        (GROUP, PLURAL, "", "create"): create,
        (GROUP, PLURAL, "approval", "update"): approve,
        (GROUP, PLURAL, "approval", "patch"): approve,
    }


async def _set(cluster: Cluster, call: ApiCall, request: JsonObject, subresource: str, status: JsonObject) -> Response:
    """Write to a subresource of this request, and of no later one with its name, as the server itself does."""
    name, uid = request["metadata"]["name"], request["metadata"]["uid"]
    info = msgspec.structs.replace(call.info, verb="update", name=name, subresource=subresource, query={})
    own = msgspec.structs.replace(call, info=info, body=b"", user=_CONTROLLER)

    def mutate(live: JsonObject) -> tuple[JsonObject, bool]:
        check_preconditions(info.resource, name, live["metadata"], uid, "")
        return {**live, "status": {**(live.get("status") or {}), **status}}, False

    return await write(cluster, own, write_options(info, _CONTROLLER.name), mutate)


def _signed(cluster: Cluster, authority: Authority, spec: JsonObject) -> bytes:
    signer, request = spec["signerName"], base64.b64decode(spec["request"])
    usages = set(spec.get("usages") or ())
    if usages - {"key encipherment"} != _USAGES[signer]:
        raise CertificateNotSignedError(f"usages must be {' and '.join(sorted(_USAGES[signer]))}")
    life = timedelta(seconds=min(spec.get("expirationSeconds") or MOST_S, MOST_S))
    if signer == API_CLIENT:
        return sign_client(authority, request, life)
    node = requested_node(request)
    if not node:
        raise CertificateNotSignedError("subject common name does not begin with system:node: ")
    return authority.sign_node(request, node, life, serves_as=None if signer == CLIENT else _own_names(cluster, node))


def _auto_approval(cluster: Cluster, call: ApiCall, spec: JsonObject, *, approves_serving: bool) -> str:
    """What the condition says where a request is approved without anyone looking at it; else empty."""
    signer = spec.get("signerName")
    if signer not in (CLIENT, SERVING) or set(spec.get("usages") or ()) - {"key encipherment"} != _USAGES[signer]:
        return ""
    node = requested_node(base64.b64decode(spec["request"]))
    if not node:
        return ""
    if signer == SERVING:  # the signer checks that it has only names and addresses of this node
        is_own = approves_serving and call.user.node == node
        return "Auto approving a node's serving certificate for its own names." if is_own else ""
    if call.user.node:
        if call.user.node != node or not _may(cluster, call, "selfnodeclient"):
            return ""
        return "Auto approving self kubelet client certificate after SubjectAccessReview."
    # A bootstrap token is shared by many machines: it must not become the identity of a node that runs.
    if not _may(cluster, call, "nodeclient") or cluster.document("nodes", "", node) is not None:
        return ""
    return "Auto approving kubelet client certificate after SubjectAccessReview."


def _may(cluster: Cluster, call: ApiCall, subresource: str) -> bool:
    return is_allowed(call.user, Attributes("create", PLURAL, GROUP, subresource), cluster)


def _own_names(cluster: Cluster, node: str) -> frozenset[str]:
    """The node's name and the addresses that it has reported."""
    document = cluster.document("nodes", "", node) or {}
    addresses = (document.get("status") or {}).get("addresses") or ()
    return frozenset({node, endpoint_name(node), *(each.get("address") or "" for each in addresses)})
