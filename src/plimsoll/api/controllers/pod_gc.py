"""Delete pods that no node will terminate (`rules.controllers.pod_gc`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.nodes import observed_generation
from plimsoll.kube import request
from plimsoll.rules.controllers.pod_gc import TERMINATED_THRESHOLD, collected
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock, rfc3339

ORPHANED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}
INTERVAL_S = 20.0
_REPLACED = (404, 409, 422)  # the pod is gone, or another one has its name
_ALL = "all"


def controller(
    context: ControllerContext,
    profile: Profile,
    clock: Clock,
    *,
    threshold: int = TERMINATED_THRESHOLD,
    every_s: float = INTERVAL_S,
) -> Controller:
    async def reconcile(_: str) -> float | None:
        pods = [pod async for pod in context.pods()]
        nodes = {record.key.rpartition("/")[2] for record in context.store.list("/nodes/")[1]}
        for garbage in collected(pods, nodes, threshold=threshold):
            metadata = garbage.pod.metadata
            name, namespace, uid = metadata.name, metadata.namespace, metadata.uid
            if garbage.fail_first:
                status: JsonObject = {"phase": "Failed"}
                observed = observed_generation(garbage.pod, profile)
                if garbage.is_orphan:
                    status["conditions"] = [{**ORPHANED, **observed, "lastTransitionTime": rfc3339(clock())}]
                change = {"metadata": {"uid": uid}, "status": {**status, **observed}}
                fail = request.patch(request.PODS, name, change, namespace, "status")
                if not await context.attempt(fail, _REPLACED):
                    continue
            await context.attempt(request.delete(request.PODS, name, namespace, grace_s=0, uid=uid), _REPLACED)
        return None

    return Controller("pod-gc", context.store, {}, reconcile, periodic=lambda: (_ALL,), every_s=every_s)
