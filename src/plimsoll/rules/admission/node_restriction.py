"""What a node may write: the rules of kube-apiserver's NodeRestriction, with its sentences (05 B6).

Every function returns why the node may not, empty where it may. A node that is taken over must not be able to steer
pods to itself (labels, taints), to act on the pods of other nodes, or to read objects by creating pods that refer to
them. Two rules are stricter than Kubernetes': a node changes neither finalizers nor its own podCIDR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from plimsoll.errors import quoted
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MIRROR_ANNOTATION

# Labels of kubernetes.io and k8s.io that a node sets on itself, and the namespaces in which it sets any.
OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
OWN_LABEL_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
RESTRICTED_NAMESPACE = "node-restriction.kubernetes.io"

# A field of a pod that refers to an object of its namespace → the resource, and the fields that can have the name.
_REFERENCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "configMap": ("configmaps", ("name",)),
    "configMapRef": ("configmaps", ("name",)),
    "configMapKeyRef": ("configmaps", ("name",)),
    "secret": ("secrets", ("secretName", "name")),
    "secretRef": ("secrets", ("name",)),
    "secretKeyRef": ("secrets", ("name",)),
    "nodePublishSecretRef": ("secrets", ("name",)),
    "azureFile": ("secrets", ("secretName",)),
    "persistentVolumeClaim": ("persistentvolumeclaims", ("claimName",)),
}
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
# Volumes and projected sources that need the API, with the words of the refusal.
_API_VOLUMES = {
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
}
_API_PROJECTIONS = {
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def references(pod: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """(resource, name) of the objects in its namespace that a pod refers to. A mirror pod gives access to none."""
    if is_mirror(pod):
        return frozenset()
    return frozenset(_references(pod))


def is_mirror(pod: Mapping[str, Any]) -> bool:
    return MIRROR_ANNOTATION in ((pod.get("metadata") or {}).get("annotations") or {})


def _references(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    spec = pod.get("spec") or {}
    account = spec.get("serviceAccountName") or ""
    if account:
        yield "serviceaccounts", account
    for secret in spec.get("imagePullSecrets") or ():
        if secret.get("name"):
            yield "secrets", secret["name"]
    for kind in _CONTAINERS:
        for container in spec.get(kind) or ():
            yield from _named(container.get("env"))
            yield from _named(container.get("envFrom"))
    yield from _named(spec.get("volumes"))


def _named(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _named(each)
    elif isinstance(value, dict):
        for field, inner in value.items():
            if field in _REFERENCES and isinstance(inner, dict):
                resource, names = _REFERENCES[field]
                name = next((inner[each] for each in names if inner.get(each)), "")
                if name:
                    yield resource, name
            yield from _named(inner)


# --- pods ---


def pod_create_refusal(node: str, pod: JsonObject, node_uid: str) -> str:
    """A node creates mirror pods of its static pods: bound to it, owned by it, without references to the API."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if not is_mirror(pod):
        return f'pod does not have "{MIRROR_ANNOTATION}" annotation, node "{node}" can only create mirror pods'
    if spec.get("nodeName") != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = metadata.get("ownerReferences") or []
    if len(owners) > 1:
        return f'node "{node}" can only create pods with a single owner reference set to itself'
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        return f'node "{node}" can only create pods with an owner reference set to itself'
    if not owner.get("controller"):
        return f'node "{node}" can only create pods with a controller owner reference set to itself'
    if owner.get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    if owner.get("uid") != node_uid:
        return f"node {node} UID mismatch: expected {owner.get('uid') or ''} got {node_uid}"
    if metadata.get("finalizers"):
        return f'node "{node}" can not create pods with finalizers'
    if referenced := _api_reference(pod):
        return f'node "{node}" can not create pods that reference {referenced}'
    return ""


def _api_reference(pod: JsonObject) -> str:
    spec = pod.get("spec") or {}
    found = {resource for resource, _ in _references(pod)}
    for resource in ("serviceaccounts", "secrets", "configmaps"):
        if resource in found:
            return resource
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        for kind, words in _API_VOLUMES.items():
            if volume.get(kind) is not None:
                return words
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind, words in _API_PROJECTIONS.items():
                if source.get(kind) is not None:
                    return words
    return "persistentvolumeclaims" if "persistentvolumeclaims" in found else ""


def pod_delete_refusal(node: str, pod: JsonObject, *, is_eviction: bool = False) -> str:
    if (pod.get("spec") or {}).get("nodeName") == node:
        return ""
    if is_eviction:
        return f"node {node} can only evict pods with spec.nodeName set to itself"
    return f'node "{node}" can only delete pods with spec.nodeName set to itself'


def pod_status_refusal(node: str, old: JsonObject, new: JsonObject) -> str:
    if (old.get("spec") or {}).get("nodeName") != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
    before, after = old["metadata"], new["metadata"]
    if (before.get("labels") or {}) != (after.get("labels") or {}):
        return f'node "{node}" cannot update labels through pod status'
    if (before.get("finalizers") or []) != (after.get("finalizers") or []):
        return f'node "{node}" cannot update finalizers through pod status'
    claims = [(each.get("status") or {}).get("resourceClaimStatuses") or [] for each in (old, new)]
    return "" if claims[0] == claims[1] else f'node "{node}" cannot update resource claim statues'


# --- tokens of service accounts ---


def token_refusal(node: str, spec: JsonObject, pod: JsonObject | None, api_audiences: Collection[str]) -> str:
    """A node requests tokens only for its own pods, and only for audiences that a volume of the pod names.

    `pod`: the pod of the bound object reference, if it exists.
    """
    bound = spec.get("boundObjectRef") or {}
    if bound.get("apiVersion") != "v1" or bound.get("kind") != "Pod" or not bound.get("name"):
        return "node requested token not bound to a pod"
    uid = bound.get("uid") or ""
    if not uid:
        return "node requested token with a pod binding without a uid"
    if pod is None:
        return f'pods "{bound["name"]}" not found'
    if pod["metadata"]["uid"] != uid:
        return (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have "
            "been deleted and then recreated"
        )
    if (pod.get("spec") or {}).get("nodeName") != node:
        return "node requested token bound to a pod scheduled on a different node"
    allowed = set(_token_audiences(pod, api_audiences))
    for audience in spec.get("audiences") or ():
        if audience not in allowed:
            return f"audience {quoted(audience)} not found in pod spec volume"
    return ""


def _token_audiences(pod: JsonObject, api_audiences: Collection[str]) -> Iterator[str]:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            token = source.get("serviceAccountToken")
            if token is not None:
                yield from [token["audience"]] if token.get("audience") else api_audiences


# --- the Node ---


def node_create_refusal(node: str, document: JsonObject) -> str:
    metadata = document["metadata"]
    if other := _other_node(node, metadata.get("name") or ""):
        return other
    if (document.get("spec") or {}).get("configSource") is not None:
        return f'node "{node}" is not allowed to create pods with a non-nil configSource'
    if metadata.get("finalizers"):
        return f'node "{node}" is not allowed to modify finalizers'
    labels = forbidden_labels({}, metadata.get("labels") or {})
    return f'node "{node}" is not allowed to set the following labels: {", ".join(labels)}' if labels else ""


def node_update_refusal(node: str, old: JsonObject, new: JsonObject) -> str:
    if other := _other_node(node, old["metadata"]["name"]):
        return other
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if after.get("configSource") is not None and after["configSource"] != before.get("configSource"):
        return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
    for field in ("taints", "podCIDR", "podCIDRs"):
        if (before.get(field) or []) != (after.get(field) or []):
            return f'node "{node}" is not allowed to modify {field}'
    was, is_ = old["metadata"], new["metadata"]
    for field in ("ownerReferences", "finalizers"):
        if (was.get(field) or []) != (is_.get(field) or []):
            return f'node "{node}" is not allowed to modify {field}'
    labels = forbidden_labels(was.get("labels") or {}, is_.get("labels") or {})
    return f"is not allowed to modify labels: {', '.join(labels)}" if labels else ""


def _other_node(node: str, name: str) -> str:
    return "" if name == node else f'node "{node}" is not allowed to modify node "{name}"'


def forbidden_labels(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Of the labels that differ, those that a node may not change, sorted."""
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return sorted(name for name in changed if _is_forbidden(name))


def _is_forbidden(label: str) -> bool:
    namespace = label.partition("/")[0] if "/" in label else ""
    if _is_within(namespace, RESTRICTED_NAMESPACE):
        return True
    if not _is_within(namespace, "kubernetes.io") and not _is_within(namespace, "k8s.io"):
        return False
    return label not in OWN_LABELS and not any(_is_within(namespace, allowed) for allowed in OWN_LABEL_NAMESPACES)


def _is_within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith(f".{domain}")


def lease_refusal(node: str, namespace: str, name: str) -> str:
    if namespace != "kube-node-lease":
        return 'can only access leases in the "kube-node-lease" system namespace'
    return "" if name == node else "can only access node lease with the same name as the requesting node"
