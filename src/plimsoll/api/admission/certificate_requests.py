"""CertificateSigningRequests as they are created, approved and signed: whose they are, and who may do it.

Kubernetes: plugin/pkg/admission/certificates (approval, signing, subjectrestriction).
"""

from __future__ import annotations

import base64
import binascii

from plimsoll.api.auth.ca import CertificateNotSignedError
from plimsoll.api.auth.roles import is_allowed
from plimsoll.api.auth.signing import MASTERS, loaded_request, organizations
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.status import forbidden, invalid_object
from plimsoll.errors import FieldError
from plimsoll.rules.access.rbac import Attributes
from plimsoll.rules.model.json_object import JsonObject

STORAGE = "certificatesigningrequests"
GROUP = "certificates.k8s.io"
API_CLIENT = "kubernetes.io/kube-apiserver-client"
_REQUESTER = ("username", "uid", "groups", "extra")
# By subresource: the verb on the signer that its caller needs.
_VERBS = {"approval": "approve", "status": "sign"}


def with_requester(call: ApiCall, document: JsonObject) -> JsonObject:
    """A new request says who has made it, whatever the client wrote there. Raises 403, 422."""
    resource = call.info.resource
    if resource.storage != STORAGE:
        return document
    spec, name = document.get("spec") or {}, (document.get("metadata") or {}).get("name") or ""
    try:
        request = base64.b64decode(spec.get("request") or "", validate=True)
        loaded_request(request)
    except (binascii.Error, CertificateNotSignedError) as error:
        finding = FieldError("FieldValueInvalid", "spec.request", str(error))
        raise invalid_object(resource, name, [finding]) from None
    if spec.get("signerName") == API_CLIENT and MASTERS in organizations(request):
        raise forbidden(resource, name, f"use of {API_CLIENT} signer with {MASTERS} group is not allowed")
    user = call.user.info()
    kept = {field: value for field, value in spec.items() if field not in _REQUESTER}
    return {**document, "spec": {**kept, **{field: user[field] for field in _REQUESTER if field in user}}}


def check_signer(cluster: Cluster, call: ApiCall, old: JsonObject, new: JsonObject) -> None:
    """Of an update, with the request as it is stored at that moment. Raises 403."""
    resource, subresource = call.info.resource, call.info.subresource
    if resource.storage != STORAGE or subresource not in _VERBS:
        return
    before, after = old.get("status") or {}, new.get("status") or {}
    if all((before.get(field) or None) == (after.get(field) or None) for field in ("certificate", "conditions")):
        return
    signer = (old.get("spec") or {}).get("signerName") or ""
    verb = _VERBS[subresource]
    if not _may(cluster, call, verb, signer):
        raise forbidden(resource, call.info.name, f'user not permitted to {verb} requests with signerName "{signer}"')


def _may(cluster: Cluster, call: ApiCall, verb: str, signer: str) -> bool:
    """By the signer's name, or by its domain (`example.com/*`)."""
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(is_allowed(call.user, Attributes(verb, "signers", GROUP, "", "", name), cluster) for name in names)
