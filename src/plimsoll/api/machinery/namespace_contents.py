"""What every namespace has: the service account `default`, and the CA's certificate in `kube-root-ca.crt`.

They are written together with the namespace, so that a pod can be created at once, and again by a controller when
they are deleted or changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.admission.service_account import DEFAULT_ACCOUNT, ROOT_CA
from plimsoll.rules.model.json_object import JsonObject

_ANNOTATIONS = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using "
    "internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed "
    "across distributions of Kubernetes clusters."
}


def namespace_contents(root_ca: str) -> Iterator[tuple[str, JsonObject]]:
    """(storage, document) of each; the document has a name and no namespace yet."""
    yield "serviceaccounts", {"metadata": {"name": DEFAULT_ACCOUNT}}
    if root_ca:
        metadata = {"name": ROOT_CA, "annotations": _ANNOTATIONS}
        yield "configmaps", {"metadata": metadata, "data": {"ca.crt": root_ca}}
