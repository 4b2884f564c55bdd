"""CronJobs: jobs at times of a schedule (`rules.controllers.cronjobs`)."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key
from plimsoll.api.controllers.dependents import Dependents, Orphans
from plimsoll.api.controllers.events import EventRecorder
from plimsoll.api.controllers.jobs import JOBS
from plimsoll.api.controllers.jobs import PREFIX as JOBS_PREFIX
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.controllers.cron_schedule import ScheduleError, parsed_schedule
from plimsoll.rules.controllers.cronjobs import CronStep, cron_step, with_active
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock

CRON_JOBS = ResourcePath("/apis/batch/v1", "cronjobs")
PREFIX = "batch/cronjobs/"


def controller(context: ControllerContext, clock: Clock) -> Controller:
    dependents = Dependents(context, "CronJob", PREFIX, Orphans())  # a cron job adopts nothing
    events = EventRecorder(context, "cronjob-controller", "CronJob", "batch/v1", clock)

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None:
            return None
        spec = document["spec"]
        try:
            schedule = parsed_schedule(spec.get("schedule") or "")
        except ScheduleError as error:
            await events.warning(document, "UnparseableSchedule", f"unparseable schedule: {error}")
            return None
        name = spec.get("timeZone") or schedule.zone
        zone = _zone(name)
        if zone is None:
            await events.warning(document, "UnknownTimeZone", f'invalid timeZone: "{name}"')
            return None
        jobs = dependents.of(document["metadata"]["uid"])
        own = reference(document, "CronJob", "batch/v1")
        return await carry_out(document, cron_step(document, jobs, schedule, zone, clock(), own))

    async def carry_out(document: JsonObject, step: CronStep) -> float | None:
        namespace, status = document["metadata"]["namespace"], step.status
        for job in step.delete:
            metadata = job["metadata"]
            change = request.delete(JOBS, metadata["name"], namespace, uid=metadata["uid"], propagation="Background")
            if await context.attempt(change, (404, 409)):
                await events.normal(document, "SuccessfulDelete", f"Deleted job {metadata['name']}")
        refused: ApiError | None = None
        if step.create is not None:
            name = step.create["metadata"]["name"]
            try:
                made = await context.client.ask(request.create(JOBS, step.create, namespace))
            except ApiError as error:
                refused, status = error, document.get("status") or {}
                await events.warning(document, "FailedCreate", f"Error creating job: {error.message}")
            else:
                dependents.note(f"{JOBS_PREFIX}{namespace}/{name}")
                await events.normal(document, "SuccessfulCreate", f"Created job {name}")
                status = with_active(status, made)
        await context.set_status(CRON_JOBS, document, status)
        for type_, reason, message in step.events:
            await (events.normal if type_ == "Normal" else events.warning)(document, reason, message)
        if refused is not None:
            raise refused
        return step.requeue_s

    sources = {PREFIX: own_key, JOBS_PREFIX: dependents.concerns}
    return Controller("cronjobs", context.store, sources, reconcile)


def _zone(name: str) -> tzinfo | None:
    """None where it is unknown here; a cron job without a time zone means UTC."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
