"""Controllers that own pods: a rule says how many to create and which to delete; then the status is patched."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api.controllers.controller import Controller, ControllerContext, Dependents, own_key
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.jobs import JobStep
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.controllers.replicasets import Scaling, pod_from_template
from plimsoll.rules.model.json_object import JsonObject

# For an owner and its pods: the step, and the change of the status, empty where it is up to date.
Decide = Callable[[JsonObject, list[JsonObject]], tuple[Scaling | JobStep, JsonObject]]


def pod_owner_controller(
    context: ControllerContext, kind: str, api_version: str, resource: ResourcePath, decide: Decide
) -> Controller:
    prefix = f"{api_version.partition('/')[0]}/{resource.plural}/"
    dependents = Dependents(context, kind, prefix)

    async def reconcile(key: str) -> float | None:
        owner = context.document(key)
        if owner is None:
            return None
        name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
        step, change = decide(owner, dependents.of(owner["metadata"]["uid"]))
        for _ in range(step.create):
            pod = pod_from_template(owner, reference(owner, kind, api_version), f"{name}-")
            await context.client.ask(request.create(request.PODS, pod, namespace))
        for pod in step.delete:
            metadata = pod["metadata"]
            await context.client.ask(request.delete(request.PODS, metadata["name"], namespace, uid=metadata["uid"]))
        if change:
            await context.patch_status(resource, owner, change)
        return None

    return Controller(resource.plural, context.store, {prefix: own_key, "/pods/": dependents.concerns}, reconcile)
