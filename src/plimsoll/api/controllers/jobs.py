"""Jobs: pods until enough have succeeded (`rules.controllers.jobs`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.pod_owners import pod_owner_controller
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.jobs import JobStep, job_status, job_step
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, rfc3339

JOBS = ResourcePath("/apis/batch/v1", "jobs")


def controller(context: ControllerContext, clock: Clock) -> Controller:
    def decide(job: JsonObject, pods: list[JsonObject]) -> tuple[JobStep, JsonObject]:
        step, before = job_step(job, pods), job.get("status") or {}
        status = job_status(job, pods, step, rfc3339(clock()))
        return step, {} if status == before else {**dict.fromkeys(before), **status}  # null removes a field

    return pod_owner_controller(context, "Job", "batch/v1", JOBS, decide)
