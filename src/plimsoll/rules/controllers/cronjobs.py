"""CronJobs: which job to start now, which to delete, and when to look at the schedule again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import msgspec

from plimsoll.rules.controllers.cron_schedule import Schedule
from plimsoll.rules.controllers.jobs import is_finished
from plimsoll.rules.controllers.pods import has_condition
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MOST_MISSED = 100


class CronStep(msgspec.Struct, frozen=True):
    create: JsonObject | None = None
    delete: tuple[JsonObject, ...] = ()
    status: JsonObject = {}
    events: tuple[tuple[str, str, str], ...] = ()  # type, reason, message
    requeue_s: float | None = None


def due(
    schedule: Schedule, since_s: float, now_s: float, zone: tzinfo, earliest_s: float | None = None
) -> tuple[float | None, int]:
    """The last time of the schedule up to now, and how many there were since (counted up to a limit)."""
    begin_s = since_s if earliest_s is None else max(since_s, earliest_s)
    last, missed, at_s = None, 0, schedule.after(begin_s, zone)
    while at_s is not None and at_s <= now_s:
        last, missed = at_s, missed + 1
        if missed > MOST_MISSED:  # jump: only the last one counts
            return _last_before(schedule, at_s, now_s, zone), missed
        at_s = schedule.after(at_s, zone)
    return last, missed


def _last_before(schedule: Schedule, after_s: float, now_s: float, zone: tzinfo) -> float:
    """The last time up to now, without visiting all before it."""
    last, high = after_s, now_s  # a time of the schedule; none is between `high` and now
    while high - last > 60:
        middle = (last + high) / 2
        found = schedule.after(middle, zone)
        if found is not None and found <= now_s:
            last = found
        else:
            high = middle
    while (following := schedule.after(last, zone)) is not None and following <= now_s:
        last = following
    return last


def cron_step(
    owner: JsonObject, jobs: Sequence[JsonObject], schedule: Schedule, zone: tzinfo, now_s: float, reference: JsonObject
) -> CronStep:
    """`jobs`: those that the cron job controls."""
    return _CronJob(owner, jobs, schedule, zone, now_s, reference).step()


class _CronJob:
    def __init__(
        self,
        owner: JsonObject,
        jobs: Sequence[JsonObject],
        schedule: Schedule,
        zone: tzinfo,
        now_s: float,
        reference: JsonObject,
    ) -> None:
        self.owner, self.jobs, self.schedule, self.zone = owner, jobs, schedule, zone
        self.now_s, self.reference = now_s, reference
        self.spec, self.status = owner["spec"], {**(owner.get("status") or {})}
        self.events: list[tuple[str, str, str]] = []
        self.delete: list[JsonObject] = []

    def step(self) -> CronStep:
        self._note_active()
        self._clean_up()
        create, requeue_s = None, None
        if not self.owner["metadata"].get("deletionTimestamp") and not self.spec.get("suspend"):
            create = self._start()
            following = self.schedule.after(self.now_s, self.zone)
            requeue_s = None if following is None else max(following - self.now_s, 0.0) + 0.1
        return CronStep(create, tuple(self.delete), self._shown(), tuple(self.events), requeue_s)

    def _shown(self) -> JsonObject:
        return {name: value for name, value in self.status.items() if value}

    def _note_active(self) -> None:
        by_uid = {job["metadata"]["uid"]: job for job in self.jobs}
        active = []
        for each in self.status.get("active") or ():
            job = by_uid.get(each.get("uid"))
            if job is None:
                self.events.append(("Normal", "MissingJob", f"Active job went missing: {each.get('name')}"))
            elif is_finished(job):
                condition = "Complete" if has_condition(job, "Complete") else "Failed"
                message = f"Saw completed job: {each.get('name')}, condition: {condition}"
                self.events.append(("Normal", "SawCompletedJob", message))
            else:
                active.append(each)
        known = {each.get("uid") for each in active}
        running = [job for job in self.jobs if not is_finished(job) and job["metadata"]["uid"] not in known]
        active += [_reference(job) for job in running if not job["metadata"].get("deletionTimestamp")]
        self.status["active"] = active
        times = [job["status"].get("completionTime") or "" for job in self.jobs if has_condition(job, "Complete")]
        last = max([*times, self.status.get("lastSuccessfulTime") or ""])
        self.status["lastSuccessfulTime"] = last

    def _clean_up(self) -> None:
        """Finished jobs beyond the limits, the oldest first."""
        for type_, field in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            limit = self.spec.get(field)
            done = sorted((job for job in self.jobs if has_condition(job, type_)), key=_started)
            if limit is not None:
                self.delete += done[: max(len(done) - limit, 0)]

    def _start(self) -> JsonObject | None:
        metadata = self.owner["metadata"]
        since = epoch_seconds(self.status.get("lastScheduleTime")) or epoch_seconds(metadata.get("creationTimestamp"))
        deadline = self.spec.get("startingDeadlineSeconds")
        earliest = None if deadline is None else self.now_s - deadline
        begin_s = self.now_s if since is None else since
        scheduled, missed = due(self.schedule, begin_s, self.now_s, self.zone, earliest)
        if missed > MOST_MISSED:
            advice = "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            message = f"too many missed start times. {advice}"
            self.events.append(("Warning", "TooManyMissedTimes", message))
        if scheduled is None:
            return None
        if deadline is not None and scheduled + deadline < self.now_s:
            message = f"Missed scheduled time to start a job: {rfc3339(scheduled)}"
            self.events.append(("Warning", "MissSchedule", message))
            return None
        name = f"{metadata['name']}-{int(scheduled) // 60}"
        if any(job["metadata"]["name"] == name for job in self.jobs):
            self.status["lastScheduleTime"] = rfc3339(scheduled)
            return None
        active, policy = self.status["active"], self.spec.get("concurrencyPolicy")
        if policy == "Forbid" and active:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.events.append(("Normal", "JobAlreadyActive", message))
            return None
        if policy == "Replace":
            uids = {each.get("uid") for each in active}
            self.delete += [job for job in self.jobs if job["metadata"]["uid"] in uids]
            self.status["active"] = []
        self.status["lastScheduleTime"] = rfc3339(scheduled)
        return self._job(name, scheduled)

    def _job(self, name: str, scheduled_s: float) -> JsonObject:
        template = self.spec.get("jobTemplate") or {}
        metadata = template.get("metadata") or {}
        local = datetime.fromtimestamp(scheduled_s, self.zone)
        shown = rfc3339(scheduled_s) if self.zone is UTC else local.isoformat()
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "labels": dict(metadata.get("labels") or {}),
                "annotations": {**(metadata.get("annotations") or {}), SCHEDULED: shown},
                "ownerReferences": [self.reference],
            },
            "spec": dict(template.get("spec") or {}),
        }


def _reference(job: Mapping[str, Any]) -> JsonObject:
    metadata = job["metadata"]
    return {
        "kind": "Job",
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": metadata.get("resourceVersion", ""),
    }


def with_active(status: JsonObject, job: Mapping[str, Any]) -> JsonObject:
    """The status after the job was created."""
    return {**status, "active": [*(status.get("active") or ()), _reference(job)]}


def _started(job: Mapping[str, Any]) -> tuple[str, str]:
    return (job.get("status") or {}).get("startTime") or "", job["metadata"]["name"]
