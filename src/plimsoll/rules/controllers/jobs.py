"""Jobs: create pods until enough have succeeded, or too many have failed.

A pod of a job has a finalizer until it is counted, so that no result is lost when a pod is deleted. A step first counts
the pods whose finalizer is gone, then notes those that have terminated as uncounted; their finalizers are removed once
that is stored. A job first gets a target (SuccessCriteriaMet or FailureTarget), its pods are deleted, and when the last
one has stopped it becomes Complete or Failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from plimsoll.rules.controllers.job_failures import (
    backoff_left_s,
    fails_index,
    failure_verdict,
    finished_s,
    has_failed,
    index_backoff_left_s,
    next_counters,
    replaces_only_failed,
)
from plimsoll.rules.controllers.job_indexes import (
    INDEX,
    first_pending,
    indexes_text,
    is_indexed,
    parsed_indexes,
    valid_index,
)
from plimsoll.rules.controllers.pods import (
    TERMINAL,
    condition_of,
    has_condition,
    is_active,
    is_ready,
    is_terminating,
    phase_of,
    pod_from_template,
)
from plimsoll.rules.controllers.replicasets import MOST_AT_ONCE, by_deletion_order
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

DEFAULT_BACKOFF_LIMIT = 6
CONTROLLER = "kubernetes.io/job-controller"
TRACKING = "batch.kubernetes.io/job-tracking"
SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


class Target(NamedTuple):
    """Where the job goes."""

    type: str  # SUCCESS or FAILURE
    reason: str
    message: str


class JobStep(msgspec.Struct, frozen=True):
    create: tuple[JsonObject, ...] = ()
    delete: tuple[JsonObject, ...] = ()
    delete_untracked: bool = False  # those pods lose their finalizer first, so they do not count as failed
    uncounted: tuple[JsonObject, ...] = ()  # pods whose finalizer is removed after the status is stored
    status: JsonObject = {}
    events: tuple[tuple[str, str, str], ...] = ()  # type, reason, message
    requeue_s: float | None = None


def is_managed_here(job: Mapping[str, Any]) -> bool:
    return job["spec"].get("managedBy") in (None, CONTROLLER)


def is_finished(job: Mapping[str, Any]) -> bool:
    return has_condition(job, "Complete", "Failed")


def has_finalizer(pod: Mapping[str, Any]) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def without_finalizer(pod: Mapping[str, Any]) -> list[str]:
    return [each for each in pod["metadata"].get("finalizers") or () if each != TRACKING]


def expires_in_s(job: Mapping[str, Any], now_s: float) -> float | None:
    """After how many seconds a finished job is deleted; None: never."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or not is_finished(job) or job["metadata"].get("deletionTimestamp"):
        return None
    ended = condition_of(job, "Complete") if has_condition(job, "Complete") else condition_of(job, "Failed")
    since = epoch_seconds((ended or {}).get("lastTransitionTime"))
    return None if since is None else max(since + ttl - now_s, 0.0)


def job_step(job: JsonObject, pods: Iterable[JsonObject], now_s: float, reference: JsonObject) -> JobStep:
    """For a job that is not finished. `reference`: of the pods that are created, to the job."""
    return _Job(job, list(pods), now_s, reference).step()


class _Job:
    """One job at one moment."""

    def __init__(self, job: JsonObject, pods: list[JsonObject], now_s: float, reference: JsonObject) -> None:
        self.job, self.pods, self.now_s, self.reference = job, pods, now_s, reference
        self.spec = job["spec"]
        self.completions: int | None = self.spec.get("completions")
        self.parallelism = _number(self.spec, "parallelism", 1)
        self.indexed = is_indexed(job)
        self.per_index = self.indexed and self.spec.get("backoffLimitPerIndex") is not None
        self.is_suspended = bool(self.spec.get("suspend"))
        self.is_leaving = bool(job["metadata"].get("deletionTimestamp"))
        self.status: JsonObject = {**(job.get("status") or {})}
        self.events: list[tuple[str, str, str]] = []
        self.active = [pod for pod in pods if is_active(pod)]
        self.terminating = [pod for pod in pods if is_terminating(pod)]
        waiting = self.status.pop("uncountedTerminatedPods", None) or {}
        self.uncounted = {name: list(waiting.get(name) or ()) for name in ("succeeded", "failed")}
        self._settle()
        size = self.completions or 0
        self.succeeded_indexes = parsed_indexes(self.status.get("completedIndexes") or "", size)
        self.failed_indexes = parsed_indexes(self.status.get("failedIndexes") or "", size)

    def _settle(self) -> None:
        """Count what was noted before and has lost its finalizer since."""
        open_ = {pod["metadata"]["uid"] for pod in self.pods if has_finalizer(pod)}
        for name, uids in self.uncounted.items():
            left = [uid for uid in uids if uid in open_]
            if name == "failed" or not self.indexed:
                self.status[name] = (self.status.get(name) or 0) + len(uids) - len(left)
            self.uncounted[name] = left

    # --- the step ---

    def step(self) -> JobStep:
        if not self.is_suspended and not self.status.get("startTime"):
            self.status["startTime"] = rfc3339(self.now_s)
        new = [pod for pod in self.pods if has_finalizer(pod) and pod["metadata"]["uid"] not in self._noted()]
        succeeded = [pod for pod in new if phase_of(pod) == "Succeeded" and self._has_index(pod)]
        failed = [pod for pod in new if has_failed(self.job, pod) and self._has_index(pod)]
        self._note_indexes(succeeded, failed)
        target = self._target(failed)
        create: tuple[JsonObject, ...] = ()
        delete: Sequence[JsonObject] = ()
        requeue_s: float | None = None
        if target is not None:
            delete = self.active
        elif not self.is_leaving:
            create, delete, requeue_s = self._managed(succeeded)
            if self._is_complete(len(succeeded)) and not create and not delete:
                target = Target(SUCCESS, "CompletionsReached", "Reached expected number of succeeded pods")
            else:
                self._note_suspension()
        is_surplus = target is None
        gone = {id(pod) for pod in delete}
        uncounted = self._note_ended(new, target)
        self._write_counts([pod for pod in self.active if id(pod) not in gone], len(delete), len(create))
        self._write_target(target, is_last=not delete and not self._noted() and not uncounted)
        if target is None:  # otherwise only the end of pods is awaited
            requeue_s = _soonest(requeue_s, self._deadline_in_s())
        return JobStep(
            create, tuple(delete), is_surplus, tuple(uncounted), self._shown(), tuple(self.events), requeue_s
        )

    def _noted(self) -> set[str]:
        return {*self.uncounted["succeeded"], *self.uncounted["failed"]}

    def _has_index(self, pod: JsonObject) -> bool:
        return not self.indexed or valid_index(pod, self.completions or 0) is not None

    def _index(self, pod: JsonObject) -> int:
        index = valid_index(pod, self.completions or 0)
        return -1 if index is None else index

    def _note_indexes(self, succeeded: Sequence[JsonObject], failed: Sequence[JsonObject]) -> None:
        if not self.indexed:
            return
        self.succeeded_indexes |= {self._index(pod) for pod in succeeded}
        if self.per_index:
            lost = {self._index(pod) for pod in failed if fails_index(self.job, pod)}
            self.failed_indexes |= lost - self.succeeded_indexes

    # --- the end of a job ---

    def _succeeded(self, new: int) -> int:
        if self.indexed:
            return len(self.succeeded_indexes)
        return (self.status.get("succeeded") or 0) + len(self.uncounted["succeeded"]) + new

    def _is_complete(self, new: int) -> bool:
        done = self._succeeded(new)
        return not self.active and (done > 0 if self.completions is None else done >= self.completions)

    def _target(self, failed: Sequence[JsonObject]) -> Target | None:
        for type_ in (FAILURE, SUCCESS):
            known = condition_of({"status": self.status}, type_)
            if known is not None and known.get("status") == "True":
                return Target(type_, known.get("reason") or "", known.get("message") or "")
        if self.is_leaving:
            return None
        return self._failure(failed) or self._index_failure() or self._early_success()

    def _failure(self, failed: Sequence[JsonObject]) -> Target | None:
        verdicts = [failure_verdict(self.job, pod) for pod in self.pods if has_failed(self.job, pod)]
        for verdict in verdicts:
            if verdict.action == "FailJob":
                return Target(FAILURE, "PodFailurePolicy", verdict.message)
        counted = sum(failure_verdict(self.job, pod).counts for pod in failed)
        total = (self.status.get("failed") or 0) + len(self.uncounted["failed"]) + counted
        limit = _number(self.spec, "backoffLimit", DEFAULT_BACKOFF_LIMIT)
        if total > limit or self._restarted_too_often(limit):
            return Target(FAILURE, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if self._deadline_in_s() == 0:
            return Target(FAILURE, "DeadlineExceeded", "Job was active longer than specified deadline")
        return None

    def _restarted_too_often(self, limit: int) -> bool:
        template = self.spec.get("template") or {}
        if (template.get("spec") or {}).get("restartPolicy") != "OnFailure":
            return False
        total = sum(map(_all_restarts, (pod for pod in self.pods if phase_of(pod) in ("Running", "Pending"))))
        return total > 0 if limit == 0 else total >= limit

    def _index_failure(self) -> Target | None:
        if not self.per_index:
            return None
        most, lost = self.spec.get("maxFailedIndexes"), len(self.failed_indexes)
        if most is not None and lost > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Target(FAILURE, "MaxFailedIndexesExceeded", message)
        if lost and lost + len(self.succeeded_indexes) >= (self.completions or 0):
            return Target(FAILURE, "FailedIndexes", "Job has failed indexes")
        return None

    def _early_success(self) -> Target | None:
        rules = (self.spec.get("successPolicy") or {}).get("rules") or ()
        for position, rule in enumerate(rules if self.indexed else ()):
            text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
            wanted = None if text is None else parsed_indexes(text, self.completions or 0)
            done = self.succeeded_indexes if wanted is None else self.succeeded_indexes & wanted
            if len(done) >= (count if count is not None else len(wanted or ())):
                return Target(SUCCESS, "SuccessPolicy", f"Matched rules at index {position}")
        return None

    def _deadline_in_s(self) -> float | None:
        deadline, start = self.spec.get("activeDeadlineSeconds"), epoch_seconds(self.status.get("startTime"))
        if deadline is None or start is None or self.is_suspended:
            return None
        return max(start + int(deadline) - self.now_s, 0.0)

    # --- pods ---

    def _managed(
        self, succeeded: Sequence[JsonObject]
    ) -> tuple[tuple[JsonObject, ...], Sequence[JsonObject], float | None]:
        """What to create, what to delete, and when to try again."""
        if self.is_suspended:
            return (), self.active, None
        active, done = len(self.active), self._succeeded(len(succeeded))
        if self.completions is None:  # a work queue: the first success means that there is no more work
            wanted = active if done else self.parallelism
        else:
            lost = len(self.failed_indexes) if self.per_index else 0
            wanted = max(min(self.completions - done - lost, self.parallelism), 0)
        surplus = self._surplus(active - wanted)
        if surplus:
            return (), surplus[:MOST_AT_ONCE], None
        stopping = len(self.terminating) if replaces_only_failed(self.job) else 0
        missing = min(wanted - active - stopping, MOST_AT_ONCE)
        if missing <= 0:
            return (), (), None
        if self.per_index:
            return self._created_by_index(missing)
        ended_badly = (pod for pod in self.pods if has_failed(self.job, pod))
        failures = (pod for pod in ended_badly if phase_of(pod) == "Failed" or has_finalizer(pod))
        counted = [pod for pod in failures if failure_verdict(self.job, pod).counts]
        ended = [pod for pod in self.pods if phase_of(pod) == "Succeeded"]
        wait_s = backoff_left_s(counted, ended, self.now_s)
        if wait_s:
            return (), (), wait_s
        if self.indexed:
            return tuple(self._pod(index) for index in self._pending(missing)), (), None
        return tuple(self._pod(None) for _ in range(missing)), (), None

    def _surplus(self, count: int) -> list[JsonObject]:
        """Pods that nothing waits for, at least `count` of them: for an index only one pod is kept."""
        ordered = by_deletion_order(self.active, self.now_s)
        if not self.indexed:
            return ordered[: max(count, 0)]
        kept: dict[int, JsonObject] = {}
        for pod in ordered:  # the last one of an index is the most valuable
            index = self._index(pod)
            if index >= 0 and index not in self.succeeded_indexes:
                kept[index] = pod
        surplus = [pod for pod in ordered if not any(pod is each for each in kept.values())]
        left = [pod for pod in ordered if any(pod is each for each in kept.values())]
        return surplus + left[: max(count - len(surplus), 0)]

    def _pending(self, count: int) -> list[int]:
        taken = {self._index(pod) for pod in self.active} | self.succeeded_indexes | self.failed_indexes
        if replaces_only_failed(self.job):
            taken |= {self._index(pod) for pod in self.terminating}
        return first_pending(count, self.completions or 0, taken)

    def _created_by_index(self, count: int) -> tuple[tuple[JsonObject, ...], Sequence[JsonObject], float | None]:
        """Every index waits for itself."""
        created: list[JsonObject] = []
        waits: list[float] = []
        for index in self._pending(self.completions or 0):
            last = self._last_failed(index)
            wait_s = index_backoff_left_s(last, self.now_s)
            if wait_s:
                waits.append(wait_s)
            elif len(created) < count:
                created.append(self._pod(index, next_counters(self.job, last)))
        return tuple(created), (), min(waits, default=None) if not created else None

    def _last_failed(self, index: int) -> JsonObject | None:
        failed = [pod for pod in self.pods if self._index(pod) == index and has_failed(self.job, pod)]
        return max(failed, key=lambda pod: finished_s(pod, self.now_s), default=None)

    def _pod(self, index: int | None, annotations: Mapping[str, str] | None = None) -> JsonObject:
        name, template = self.job["metadata"]["name"], self.spec.get("template") or {}
        prefix = f"{name}-" if index is None else f"{name}-{index}-"
        pod = pod_from_template(template, self.reference, prefix=prefix[-(253 - 5) :])
        metadata, spec = pod["metadata"], pod["spec"]
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), TRACKING]
        if index is not None:
            metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
            metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(index), **(annotations or {})}
            spec.setdefault("hostname", f"{name}-{index}")
            for kind in ("initContainers", "containers"):
                if spec.get(kind):
                    spec[kind] = [_with_index_variable(container) for container in spec[kind]]
        return pod

    # --- the status ---

    def _note_ended(self, new: Sequence[JsonObject], target: Target | None) -> list[JsonObject]:
        """Note pods that have ended; those whose finalizer may be removed."""
        kept = self._kept_for_index() if target is None and not self.is_leaving else set()
        released = [pod for pod in self.pods if has_finalizer(pod) and pod["metadata"]["uid"] in self._noted()]
        for pod in new:
            if id(pod) in kept:
                continue
            is_failed = has_failed(self.job, pod)
            is_over = target is not None or self.is_leaving
            if phase_of(pod) not in TERMINAL and not is_failed and not is_over:
                continue
            released.append(pod)
            uid = pod["metadata"]["uid"]
            if phase_of(pod) == "Succeeded":
                if not self.indexed:
                    self.uncounted["succeeded"].append(uid)
            elif self._counts_as_failed(pod, target):
                self.uncounted["failed"].append(uid)
        return released

    def _counts_as_failed(self, pod: JsonObject, target: Target | None) -> bool:
        """A job that fails takes its running pods with it."""
        is_over = target is not None and target.type == FAILURE
        is_failed = has_failed(self.job, pod) or is_over
        return is_failed and self._has_index(pod) and failure_verdict(self.job, pod).counts

    def _kept_for_index(self) -> set[int]:
        """The last failed pod of an index that will get another one: it has the number of failures."""
        if not self.per_index:
            return set()
        pending = self._pending(self.completions or 0)
        return {id(pod) for index in pending if (pod := self._last_failed(index)) is not None}

    def _note_suspension(self) -> None:
        before = condition_of({"status": self.status}, "Suspended")
        if self.is_suspended:
            if before is None or before.get("status") != "True":
                self._condition("Suspended", "True", "JobSuspended", "Job suspended")
                self.events.append(("Normal", "Suspended", "Job suspended"))
        elif before is not None and before.get("status") == "True":
            self._condition("Suspended", "False", "JobResumed", "Job resumed")
            self.status["startTime"] = rfc3339(self.now_s)
            self.events.append(("Normal", "Resumed", "Job resumed"))

    def _condition(self, type_: str, status: str, reason: str, message: str) -> None:
        now = rfc3339(self.now_s)
        others = [each for each in self.status.get("conditions") or () if each.get("type") != type_]
        times = {"lastProbeTime": now, "lastTransitionTime": now}
        condition = {"type": type_, "status": status, **times, "reason": reason, "message": message}
        self.status["conditions"] = [*others, condition]

    def _write_counts(self, active: Sequence[JsonObject], deleted: int, created: int) -> None:
        self.status["active"] = len(active) + created
        self.status["ready"] = sum(map(is_ready, active))
        self.status["terminating"] = len(self.terminating) + deleted
        if self.indexed:
            self.status["succeeded"] = len(self.succeeded_indexes)
            self.status["completedIndexes"] = indexes_text(self.succeeded_indexes)
            if self.per_index:
                self.status["failedIndexes"] = indexes_text(self.failed_indexes)

    def _write_target(self, target: Target | None, *, is_last: bool) -> None:
        """`is_last`: all pods are counted."""
        if target is None:
            return
        if condition_of({"status": self.status}, target.type) is None:
            self._condition(target.type, "True", target.reason, target.message)
        if not is_last or self.active or self.terminating:
            return
        if target.type == SUCCESS:
            self._condition("Complete", "True", target.reason, target.message)
            self.status["completionTime"] = rfc3339(self.now_s)
            self.events.append(("Normal", "Completed", "Job completed"))
        else:
            self._condition("Failed", "True", target.reason, target.message)
            self.events.append(("Warning", target.reason, target.message))

    def _shown(self) -> JsonObject:
        waiting = {name: uids for name, uids in self.uncounted.items() if uids}
        status = {**self.status, "uncountedTerminatedPods": waiting}
        pointers = ("ready", "terminating", "uncountedTerminatedPods", "failedIndexes")
        return {name: value for name, value in status.items() if value not in (0, "") or name in pointers}


def _with_index_variable(container: JsonObject) -> JsonObject:
    known = container.get("env") or []
    if any(each.get("name") == _INDEX_VARIABLE for each in known):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*known, {"name": _INDEX_VARIABLE, "valueFrom": source}]}


def _all_restarts(pod: Mapping[str, Any]) -> int:
    status = pod.get("status") or {}
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return sum(int(each.get("restartCount") or 0) for each in statuses)


def _soonest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _number(spec: Mapping[str, Any], field: str, absent: int) -> int:
    value = spec.get(field)
    return absent if value is None else int(value)
