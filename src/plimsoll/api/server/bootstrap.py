"""What a new cluster has: namespaces with a service account each, two priority classes, the roles (`default_roles`).

It also finishes deletions that a crash interrupted between their two writes: grace period 0 and no finalizers.
"""

from __future__ import annotations

from plimsoll.api.controllers.aggregation.api_services import ensure_built_in
from plimsoll.api.machinery.cluster import Cluster, decoded, key, prefix
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.api.machinery.namespace_contents import namespace_contents
from plimsoll.api.server.default_roles import ensure_roles
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.resources.defaulting import BUILT_IN
from plimsoll.store.records import Decision, Delete, Record

AUTHENTICATION = "extension-apiserver-authentication"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
# Kubernetes' names of what is done before the server answers, for the health checks: the index of the store is read,
# from which admission and all others read; and what is done here.
INDEX_HOOKS = ("generic-apiserver-start-informers", "start-apiserver-admission-initializer", "storage-readiness")
BOOTSTRAP_HOOKS = (
    "start-system-namespaces-controller",
    "scheduling/bootstrap-system-priority-classes",
    "start-cluster-authentication-info-controller",
    "kube-apiserver-autoregistration",
)
_DESCRIPTIONS = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to "
    "another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


async def bootstrap(cluster: Cluster) -> None:
    """Idempotent."""
    for name in NAMESPACES:
        document = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        await _ensure(cluster, stored_resource("namespaces"), "", name, document, {"kubernetes.io/metadata.name": name})
        for storage, content in namespace_contents(cluster.root_ca):
            own = content["metadata"]
            await _ensure(
                cluster, stored_resource(storage), name, own["name"], content, annotations=own.get("annotations")
            )
    for name, value in BUILT_IN.items():
        document = {"value": value, "description": _DESCRIPTIONS[name], "preemptionPolicy": "PreemptLowerPriority"}
        await _ensure(cluster, stored_resource("priorityclasses"), "", name, document)
    if cluster.root_ca:  # by which other API servers know the clients of this one
        about = {"data": {"client-ca-file": cluster.root_ca}}
        await _ensure(cluster, stored_resource("configmaps"), "kube-system", AUTHENTICATION, about)
    await ensure_roles(cluster)
    await ensure_built_in(cluster)
    await finish_deletions(cluster)


async def _ensure(
    cluster: Cluster,
    resource: ApiResource,
    namespace: str,
    name: str,
    document: JsonObject,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> None:
    metadata: JsonObject = {"name": name, "uid": cluster.new_uid(), "creationTimestamp": cluster.now()}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if resource.has_generation:
        metadata["generation"] = 1

    def decide(record: Record | None, version: int) -> Decision:
        return None if record is not None else body_of({**document, "metadata": metadata}, version)

    await cluster.store.change(key(resource, namespace, name), decide)


async def finish_deletions(cluster: Cluster) -> None:
    """At the start, and when this server begins to lead: another one may have been killed between the two writes."""
    _, records = cluster.store.list(prefix(stored_resource("pods")))
    for record in records:
        if b'"deletionGracePeriodSeconds":0' not in record.body:
            continue

        def decide(record: Record | None, version: int) -> Decision:
            if record is None:
                return None
            document = decoded(record)
            metadata = document["metadata"]
            is_over = metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds") == 0
            return Delete(body_of(document, version)) if is_over and not metadata.get("finalizers") else None

        await cluster.store.change(record.key, decide)
