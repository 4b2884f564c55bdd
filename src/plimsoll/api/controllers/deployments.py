"""Deployments: one ReplicaSet for each template, rolled from old to new (`rules.controllers.deployment_steps`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, read
from plimsoll.api.controllers.dependents import Dependents, Orphans
from plimsoll.api.controllers.events import EventRecorder
from plimsoll.api.controllers.pod_owners import PODS_PREFIX
from plimsoll.api.controllers.replicasets import PREFIX as REPLICA_SETS_PREFIX
from plimsoll.api.controllers.replicasets import REPLICA_SETS
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.controllers.deployment_status import CREATE_ERROR
from plimsoll.rules.controllers.deployment_steps import DeploymentStep, collided, deployment_step, failed_creation
from plimsoll.rules.controllers.deployments import REVISION, is_recreate, new_and_old
from plimsoll.rules.controllers.owner_references import controller_of, reference
from plimsoll.rules.controllers.pods import TERMINAL, phase_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock

DEPLOYMENTS = ResourcePath("/apis/apps/v1", "deployments")
PREFIX = "apps/deployments/"
RECREATE_POLL_S = 0.5  # while pods of the old template stop


def controller(context: ControllerContext, orphans: Orphans, profile: Profile, clock: Clock) -> Controller:
    """`orphans`: ReplicaSets without a controller."""
    dependents = Dependents(context, "Deployment", PREFIX, orphans)
    events = EventRecorder(context, "deployment-controller", "Deployment", "apps/v1", clock)

    async def reconcile(key: str) -> float | None:
        deployment = context.document(key)
        if deployment is None:
            return None
        sets = await dependents.claimed(deployment, own_reference(deployment), REPLICA_SETS)
        waits = is_recreate(deployment) and runs_old(deployment, sets)
        step = deployment_step(
            deployment,
            sets,
            clock(),
            reference=own_reference(deployment),
            runs_old=waits,
            terminating=profile.terminating_replicas,
        )
        if step.create is not None and not await create(deployment, step.create):
            return None
        await change_sets(deployment, step)
        if step.revision:
            await context.patch(DEPLOYMENTS, deployment, {"metadata": {"annotations": {REVISION: step.revision}}})
        if step.status is not None:
            await context.set_status(DEPLOYMENTS, deployment, step.status)
        return RECREATE_POLL_S if waits else step.requeue_s

    def own_reference(deployment: JsonObject) -> JsonObject:
        return reference(deployment, "Deployment", "apps/v1")

    def runs_old(deployment: JsonObject, sets: list[JsonObject]) -> bool:
        """Whether a pod of an older template has not stopped yet, even if its ReplicaSet counts it no longer."""
        owners = {each["metadata"]["uid"] for each in new_and_old(deployment, sets)[1]}
        if not owners:
            return False
        _, records = context.store.list(f"{PODS_PREFIX}{deployment['metadata']['namespace']}/")
        named = (read(record) for record in records if any(uid.encode() in record.body for uid in owners))
        return any(controller_of(pod) in owners and phase_of(pod) not in TERMINAL for pod in named)

    async def create(deployment: JsonObject, made: JsonObject) -> bool:
        """False where it failed; then the status says so."""
        namespace, name = deployment["metadata"]["namespace"], made["metadata"]["name"]
        try:
            await context.client.ask(request.create(REPLICA_SETS, made, namespace))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                await context.set_status(DEPLOYMENTS, deployment, collided(deployment))
                return False
            message, status = failed_creation(deployment, name, error.message, clock())
            await context.set_status(DEPLOYMENTS, deployment, status)
            await events.warning(deployment, CREATE_ERROR, message)
            raise
        dependents.note(f"{REPLICA_SETS_PREFIX}{namespace}/{name}")
        if size := made["spec"]["replicas"]:
            message = f"Scaled up replica set {name} from 0 to {size}"
            await events.normal(deployment, "ScalingReplicaSet", message)
        return True

    async def change_sets(deployment: JsonObject, step: DeploymentStep) -> None:
        namespace = deployment["metadata"]["namespace"]
        for name, patch, message in step.changes:
            change = request.patch(REPLICA_SETS, name, patch, namespace, content_type=request.MERGE)
            if await context.attempt(change) and message:
                await events.normal(deployment, "ScalingReplicaSet", message)
        for each in step.delete:
            await context.delete(REPLICA_SETS, each)

    sources = {PREFIX: dependents.owner_changed, REPLICA_SETS_PREFIX: dependents.concerns}
    return Controller("deployments", context.store, sources, reconcile)
