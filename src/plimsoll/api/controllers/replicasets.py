"""ReplicaSets: as many pods as are wanted (`rules.controllers.replicasets`); an evicted pod is replaced."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, Dependents, itself
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.controllers.replicasets import pod_from_template, replica_status, scaling

SETS = ResourcePath("/apis/apps/v1", "replicasets")
PREFIX = "apps/replicasets/"


def loop(shelf: ControllerContext) -> Controller:
    dependents = Dependents(shelf, "ReplicaSet", PREFIX)

    async def look(key: str) -> float | None:
        found = shelf.document(key)
        if found is None:
            return None
        metadata = found["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        pods = dependents.of(metadata["uid"])
        step = scaling(found, pods)
        for _ in range(step.create):
            made = pod_from_template(found, reference(found, "ReplicaSet", "apps/v1"), f"{name}-")
            await shelf.client.ask(request.create(request.PODS, made, namespace))
        for pod in step.delete:
            gone = pod["metadata"]
            await shelf.client.ask(request.delete(request.PODS, gone["name"], namespace, uid=gone["uid"]))
        status = replica_status(found, pods)
        if status != found.get("status"):
            await shelf.client.ask(
                request.patch(SETS, name, {"status": status}, namespace, "status", content_type=request.MERGE)
            )
        return None

    return Controller("replicasets", shelf.store, {PREFIX: itself, "/pods/": dependents.concerns}, look)
