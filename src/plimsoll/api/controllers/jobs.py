"""Jobs: pods until enough have succeeded (`rules.controllers.jobs`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, Dependents, itself
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.jobs import job_status, job_step
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.controllers.replicasets import pod_from_template
from plimsoll.rules.timestamps import Clock, rfc3339

JOBS = ResourcePath("/apis/batch/v1", "jobs")
PREFIX = "batch/jobs/"


def loop(shelf: ControllerContext, clock: Clock) -> Controller:
    dependents = Dependents(shelf, "Job", PREFIX)

    async def look(key: str) -> float | None:
        found = shelf.document(key)
        if found is None:
            return None
        metadata = found["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        pods = dependents.of(metadata["uid"])
        step = job_step(found, pods)
        for _ in range(step.create):
            made = pod_from_template(found, reference(found, "Job", "batch/v1"), f"{name}-")
            await shelf.client.ask(request.create(request.PODS, made, namespace))
        for pod in step.delete:
            gone = pod["metadata"]
            await shelf.client.ask(request.delete(request.PODS, gone["name"], namespace, uid=gone["uid"]))
        status = job_status(found, pods, step, rfc3339(clock()))
        if status != found.get("status"):
            change = {"status": {**dict.fromkeys(found.get("status") or {}), **status}}  # null takes a field away
            await shelf.client.ask(request.patch(JOBS, name, change, namespace, "status", content_type=request.MERGE))
        return None

    return Controller("jobs", shelf.store, {PREFIX: itself, "/pods/": dependents.concerns}, look)
