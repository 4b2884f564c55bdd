"""Deployments: one ReplicaSet for each template, rolled from the old to the new (`rules.controllers.deployments`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, Dependents, itself
from plimsoll.api.controllers.replicasets import PREFIX as SETS_PREFIX
from plimsoll.api.controllers.replicasets import SETS
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.deployments import deployment_conditions, deployment_status, replica_set_of, rollout
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.timestamps import Clock, rfc3339

DEPLOYMENTS = ResourcePath("/apis/apps/v1", "deployments")
PREFIX = "apps/deployments/"


def loop(shelf: ControllerContext, clock: Clock) -> Controller:
    dependents = Dependents(shelf, "Deployment", PREFIX)

    async def look(key: str) -> float | None:
        found = shelf.document(key)
        if found is None or found["metadata"].get("deletionTimestamp") or found["spec"].get("paused"):
            return None
        metadata = found["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        sets = dependents.of(metadata["uid"])
        made = replica_set_of(found, reference(found, "Deployment", "apps/v1"))
        new = next((each for each in sets if each["metadata"]["name"] == made["metadata"]["name"]), None)
        if new is None:
            await shelf.client.ask(request.create(SETS, made, namespace))
            return None  # its appearance brings us back
        old = [each for each in sets if each is not new]
        for each, size in rollout(found, new, old).items():
            change = {"spec": {"replicas": size}}
            await shelf.client.ask(request.patch(SETS, each, change, namespace, content_type=request.MERGE))
        status = deployment_status(found, new, old)
        status["conditions"] = deployment_conditions(found, status, new["metadata"]["name"], rfc3339(clock()))
        if status != found.get("status"):
            await shelf.client.ask(
                request.patch(DEPLOYMENTS, name, {"status": status}, namespace, "status", content_type=request.MERGE)
            )
        return None

    return Controller("deployments", shelf.store, {PREFIX: itself, SETS_PREFIX: dependents.concerns}, look)
