"""Deployments: one ReplicaSet for each template, rolled from the old to the new (`rules.controllers.deployments`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, Dependents, own_key
from plimsoll.api.controllers.replicasets import PREFIX as REPLICA_SETS_PREFIX
from plimsoll.api.controllers.replicasets import REPLICA_SETS
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.deployments import deployment_conditions, deployment_status, replica_set_of, rollout
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.timestamps import Clock, rfc3339

DEPLOYMENTS = ResourcePath("/apis/apps/v1", "deployments")
PREFIX = "apps/deployments/"


def controller(context: ControllerContext, clock: Clock) -> Controller:
    dependents = Dependents(context, "Deployment", PREFIX)

    async def reconcile(key: str) -> float | None:
        deployment = context.document(key)
        if deployment is None:
            return None
        metadata = deployment["metadata"]
        if metadata.get("deletionTimestamp") or deployment["spec"].get("paused"):
            return None
        namespace, sets = metadata["namespace"], dependents.of(metadata["uid"])
        desired = replica_set_of(deployment, reference(deployment, "Deployment", "apps/v1"))
        by_name = {replica_set["metadata"]["name"]: replica_set for replica_set in sets}
        new = by_name.get(desired["metadata"]["name"])
        if new is None:
            await context.client.ask(request.create(REPLICA_SETS, desired, namespace))
            return None  # its creation enqueues this key again
        old = [replica_set for replica_set in sets if replica_set is not new]
        for name, size in rollout(deployment, new, old).items():
            change = {"spec": {"replicas": size}}
            await context.client.ask(request.patch(REPLICA_SETS, name, change, namespace, content_type=request.MERGE))
        status = deployment_status(deployment, new, old)
        status["conditions"] = deployment_conditions(deployment, status, new["metadata"]["name"], rfc3339(clock()))
        if status != deployment.get("status"):
            await context.patch_status(DEPLOYMENTS, deployment, status)
        return None

    sources = {PREFIX: own_key, REPLICA_SETS_PREFIX: dependents.concerns}
    return Controller("deployments", context.store, sources, reconcile)
