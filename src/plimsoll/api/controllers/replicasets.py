"""ReplicaSets: as many pods as `spec.replicas` (`rules.controllers.replicasets`); an evicted pod is replaced."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.pod_owners import pod_owner_controller
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.replicasets import Scaling, replica_status, scaling
from plimsoll.rules.model.json_object import JsonObject

REPLICA_SETS = ResourcePath("/apis/apps/v1", "replicasets")
PREFIX = "apps/replicasets/"


def controller(context: ControllerContext) -> Controller:
    def decide(owner: JsonObject, pods: list[JsonObject]) -> tuple[Scaling, JsonObject]:
        status = replica_status(owner, pods)
        return scaling(owner, pods), {} if status == owner.get("status") else status

    return pod_owner_controller(context, "ReplicaSet", "apps/v1", REPLICA_SETS, decide)
