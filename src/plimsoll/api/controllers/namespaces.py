"""Namespaces that are being deleted: delete everything in them, then remove the last finalizer."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key, read, resource_path
from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.kube import request
from plimsoll.kube.request import Request, ResourcePath

NAMESPACES = ResourcePath("/api/v1", "namespaces")
REQUEUE_S = 1.0  # while objects in it terminate


def controller(context: ControllerContext, catalog: Catalog = BUILT_IN) -> Controller:
    async def reconcile(key: str) -> float | None:
        namespace = context.document(key)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return None
        name = namespace["metadata"]["name"]
        left = 0
        contents = {
            f"{resource.group}/{resource.plural}/": resource_path(resource)
            for resource in catalog.stored()
            if resource.namespaced
        }
        for prefix, resource in contents.items():
            for record in context.store.list(f"{prefix}{name}/")[1]:
                left += 1
                metadata = read(record)["metadata"]
                if not metadata.get("deletionTimestamp"):
                    await context.attempt(request.delete(resource, metadata["name"], name))
        if left and any(context.store.count(f"{prefix}{name}/") for prefix in contents):
            return REQUEUE_S
        namespace["spec"] = {**namespace.get("spec", {}), "finalizers": []}
        path = NAMESPACES.path(name=name, subresource="finalize")
        body = request.create(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", **namespace}).body
        await context.attempt(Request("PUT", path, body, request.JSON))
        return None

    return Controller("namespaces", context.store, {"/namespaces/": own_key}, reconcile)
