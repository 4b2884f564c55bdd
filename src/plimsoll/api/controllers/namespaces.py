"""Namespaces that are being deleted: delete everything in them, then remove the last finalizer.

Pods are deleted first, and the rest once they have gone: what protects a running pod (a NetworkPolicy, a Secret of its
peer) stays as long as it runs.
"""

from __future__ import annotations

from collections import Counter

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key, read, resource_path
from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.kube import request
from plimsoll.kube.request import Request, ResourcePath
from plimsoll.rules.controllers.namespaces import deletion_conditions
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, rfc3339

NAMESPACES = ResourcePath("/api/v1", "namespaces")
REQUEUE_S = 1.0  # while objects in it terminate


def controller(context: ControllerContext, clock: Clock, catalog: Catalog = BUILT_IN) -> Controller:
    async def reconcile(key: str) -> float | None:
        namespace = context.document(key)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return None
        name = namespace["metadata"]["name"]
        kinds = [resource for resource in catalog.stored() if resource.namespaced]
        pods = [resource for resource in kinds if resource.storage == "pods"]
        for group in (pods, [resource for resource in kinds if resource.storage != "pods"]):
            await delete_all(group, name)
            if any(context.store.count(_prefix(resource, name)) for resource in group):
                await report(namespace, kinds)
                return REQUEUE_S
        namespace["spec"] = {**namespace.get("spec", {}), "finalizers": []}
        path = NAMESPACES.path(name=name, subresource="finalize")
        body = request.create(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", **namespace}).body
        await context.attempt(Request("PUT", path, body, request.JSON))
        return None

    async def delete_all(group: list[ApiResource], name: str) -> None:
        for resource in group:
            for record in context.store.list(_prefix(resource, name))[1]:
                metadata = read(record)["metadata"]
                if not metadata.get("deletionTimestamp"):
                    path = resource_path(resource)
                    await context.attempt(request.delete(path, metadata["name"], name, propagation="Background"))

    async def report(namespace: JsonObject, kinds: list[ApiResource]) -> None:
        name = namespace["metadata"]["name"]
        remaining, finalizers = Counter[str](), Counter[str]()
        for resource in kinds:
            for record in context.store.list(_prefix(resource, name))[1]:
                remaining[f"{resource.plural}.{resource.group}"] += 1
                finalizers.update(read(record)["metadata"].get("finalizers") or ())
        before = (namespace.get("status") or {}).get("conditions") or []
        conditions = deletion_conditions(before, remaining, finalizers, rfc3339(clock()))
        if conditions != before:
            change = {"status": {"conditions": conditions}}
            await context.attempt(request.patch(NAMESPACES, name, change, "", "status", content_type=request.MERGE))

    return Controller("namespaces", context.store, {"/namespaces/": own_key}, reconcile)


def _prefix(resource: ApiResource, namespace: str) -> str:
    return f"{resource.group}/{resource.plural}/{namespace}/"
