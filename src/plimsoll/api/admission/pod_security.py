"""Pod Security admission in the API server: reads the namespace of a request and carries out the rules' verdict.

Pods that the enforced standard forbids are refused (403). What `warn` finds becomes Warning headers, what `audit` finds
annotations of the audit event. The labels of a namespace are checked when it is written.
"""

from __future__ import annotations

from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.status import forbidden, invalid_object
from plimsoll.rules.admission.pod_security import (
    IGNORED_SUBRESOURCES,
    PREFIX,
    TEMPLATES,
    is_significant,
    namespace_errors,
    namespace_warnings,
    template_of,
    verdict,
)
from plimsoll.rules.model.json_object import JsonObject

_NAMESPACES = stored_resource("namespaces")
_MARK = PREFIX.encode()


def check_pod_security(cluster: Cluster, call: ApiCall, old: JsonObject | None, new: JsonObject) -> None:
    """Of a create (`old` is None) or an update, on the event loop. Raises 403 and 422."""
    resource, subresource = call.info.resource, call.info.subresource
    if resource.storage == "namespaces" and not subresource:
        _check_namespace(cluster, call, old, new)
    if resource.storage not in TEMPLATES:
        return
    is_pod = resource.storage == "pods"
    if subresource and (not is_pod or subresource in IGNORED_SUBRESOURCES):
        return
    if is_pod and old is not None and not is_significant(old, new):
        return
    namespace = call.info.namespace
    labels = _labels(cluster, namespace)
    found = verdict(
        cluster.pod_security, namespace, labels, call.user.name, template_of(resource.storage, new), is_pod=is_pod
    )
    call.annotations.update(found.annotations)
    if found.refusal:
        raise forbidden(resource, new["metadata"]["name"], found.refusal)
    call.warnings.extend(found.warnings)


def _labels(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The namespace's, if any of them is about Pod Security."""
    record = cluster.store.get(key(_NAMESPACES, "", namespace))
    if record is None or _MARK not in record.body:
        return {}
    return decoded(record)["metadata"].get("labels") or {}


def _check_namespace(cluster: Cluster, call: ApiCall, old: JsonObject | None, new: JsonObject) -> None:
    name = new["metadata"]["name"]
    labels = new["metadata"].get("labels") or {}
    before = None if old is None else old["metadata"].get("labels") or {}
    errors = namespace_errors(cluster.pod_security, labels, before)
    if errors:
        raise invalid_object(_NAMESPACES, name, errors)
    if labels != before:
        pods = cluster.documents("pods", name) if before is not None else ()
        call.warnings.extend(namespace_warnings(cluster.pod_security, name, labels, before, pods))
