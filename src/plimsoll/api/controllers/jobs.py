"""Jobs: pods until enough have succeeded (`rules.controllers.jobs`); finished ones are deleted after their TTL."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.dependents import Orphans
from plimsoll.api.controllers.pod_owners import PODS_PREFIX, PodOwner
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.jobs import (
    TRACKING,
    JobStep,
    expires_in_s,
    has_finalizer,
    is_finished,
    is_managed_here,
    job_step,
    without_finalizer,
)
from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock

JOBS = ResourcePath("/apis/batch/v1", "jobs")
PREFIX = "batch/jobs/"
_FINALIZER = TRACKING.encode()


def controller(context: ControllerContext, orphans: Orphans, clock: Clock) -> Controller:
    owner = PodOwner(context, orphans, "Job", "batch/v1", JOBS, "job-controller", clock, finalizer=TRACKING)

    async def reconcile(key: str) -> float | None:
        if key.startswith(PODS_PREFIX):
            return await release(key)
        job = context.document(key)
        if job is None or not is_managed_here(job):
            return None
        if is_finished(job):
            return await expire(job)
        return await carry_out(job, job_step(job, await owner.pods(job), clock(), owner.reference(job)))

    async def carry_out(job: JsonObject, step: JobStep) -> float | None:
        for pod in step.delete if step.delete_untracked else ():
            await untrack(pod)
        await owner.delete(job, step.delete)
        error = await owner.create_all(job, list(step.create))
        status = step.status if error is None else {**step.status, "active": (job.get("status") or {}).get("active", 0)}
        await context.set_status(JOBS, job, status)
        for type_, reason, message in step.events:
            await (owner.events.normal if type_ == "Normal" else owner.events.warning)(job, reason, message)
        for pod in step.uncounted:
            await untrack(pod)
        if error is not None:
            raise error
        return step.requeue_s

    async def expire(job: JsonObject) -> float | None:
        left_s = expires_in_s(job, clock())
        if left_s:
            return left_s
        if left_s is not None:
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            change = request.delete(JOBS, name, namespace, uid=job["metadata"]["uid"], propagation="Foreground")
            await context.attempt(change, (404, 409))
        return None

    async def untrack(pod: JsonObject) -> None:
        if has_finalizer(pod):
            left = without_finalizer(pod)
            await context.patch(request.PODS, pod, {"metadata": {"finalizers": left or None}})

    async def release(key: str) -> float | None:
        """A pod that no job counts any more loses its finalizer."""
        pod = context.document(key)
        if pod is not None and not is_tracked(pod):
            await untrack(pod)
        return None

    def is_tracked(pod: JsonObject) -> bool:
        uid, namespace = controller_of(pod), pod["metadata"]["namespace"]
        for each in pod["metadata"].get("ownerReferences") or ():
            if each.get("uid") == uid and each.get("kind") == "Job":
                job = context.document(f"{PREFIX}{namespace}/{each['name']}")
                return job is not None and job["metadata"]["uid"] == uid and not is_finished(job)
        return False

    def concerns(key: str, body: bytes) -> Iterable[str]:
        yield from owner.dependents.concerns(key, body)
        if _FINALIZER in body:
            yield key

    sources = {PREFIX: owner.dependents.owner_changed, PODS_PREFIX: concerns}
    return Controller("jobs", context.store, sources, reconcile)
