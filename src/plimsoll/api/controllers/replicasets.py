"""ReplicaSets and ReplicationControllers: as many pods as `spec.replicas`; an evicted pod is replaced."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.dependents import Orphans
from plimsoll.api.controllers.pod_owners import PODS_PREFIX, PodOwner
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.pods import is_active, min_ready_seconds, next_available_s, pod_from_template
from plimsoll.rules.controllers.replicasets import replica_status, scaling
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock

REPLICA_SETS = ResourcePath("/apis/apps/v1", "replicasets")
REPLICATION_CONTROLLERS = ResourcePath("/api/v1", "replicationcontrollers")
PREFIX = "apps/replicasets/"


def replica_set_controller(context: ControllerContext, orphans: Orphans, profile: Profile, clock: Clock) -> Controller:
    owner = PodOwner(context, orphans, "ReplicaSet", "apps/v1", REPLICA_SETS, "replicaset-controller", clock)
    return _controller(context, owner, clock, terminating=profile.terminating_replicas)


def replication_controller(context: ControllerContext, orphans: Orphans, clock: Clock) -> Controller:
    resource, component = REPLICATION_CONTROLLERS, "replication-controller"
    owner = PodOwner(context, orphans, "ReplicationController", "v1", resource, component, clock)
    return _controller(context, owner, clock, terminating=False)


def _controller(context: ControllerContext, owner: PodOwner, clock: Clock, *, terminating: bool) -> Controller:
    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None:
            return None
        pods = await owner.pods(document)
        step = scaling(document, pods, clock())
        prefix = f"{document['metadata']['name']}-"
        template, reference = document["spec"].get("template") or {}, owner.reference(document)
        made = [pod_from_template(template, reference, prefix=prefix) for _ in range(step.create)]
        error = await owner.create_all(document, made)
        await owner.delete(document, step.delete)
        status = replica_status(
            document, pods, clock(), error="" if error is None else error.message, terminating=terminating
        )
        await context.set_status(owner.resource, document, status)
        if error is not None:
            raise error
        return _next_available(document, pods, clock())

    sources = {owner.prefix: owner.dependents.owner_changed, PODS_PREFIX: owner.dependents.concerns}
    return Controller(owner.resource.plural, context.store, sources, reconcile)


def _next_available(owner: JsonObject, pods: list[JsonObject], now_s: float) -> float | None:
    return next_available_s(filter(is_active, pods), min_ready_seconds(owner), now_s)
