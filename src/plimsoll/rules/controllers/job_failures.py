"""Failures of a job's pods: which count, which fail an index or the job, and how long to wait before the next pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.rules.controllers.pods import condition_of, phase_of
from plimsoll.rules.scheduling.selectors import go_integer
from plimsoll.rules.timestamps import epoch_seconds

BACKOFF_FIRST_S, BACKOFF_MOST_S = 10.0, 360.0
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


class Verdict(msgspec.Struct, frozen=True):
    """About a failed pod: the action of the first rule that matches, and why."""

    action: str = ""  # FailJob, FailIndex, Ignore, Count; empty: no rule matches
    message: str = ""

    @property
    def counts(self) -> bool:
        return self.action != "Ignore"


COUNTED = Verdict()


def failure_verdict(job: Mapping[str, Any], pod: Mapping[str, Any]) -> Verdict:
    """`spec.podFailurePolicy`; without one every failure counts."""
    policy = job["spec"].get("podFailurePolicy") or {}
    metadata = pod["metadata"]
    where = f"{metadata.get('namespace', '')}/{metadata['name']}"
    for index, rule in enumerate(policy.get("rules") or ()):
        action = rule.get("action") or ""
        suffix = f"matching {action} rule at index {index}"
        if codes := rule.get("onExitCodes"):
            matched = _matching_exit(codes, pod)
            if matched is not None:
                name, code = matched
                return Verdict(action, f"Container {name} for pod {where} failed with exit code {code} {suffix}")
        elif patterns := rule.get("onPodConditions"):
            for pattern in patterns:
                condition = condition_of(pod, pattern.get("type") or "")
                if condition is not None and condition.get("status") == (pattern.get("status") or "True"):
                    return Verdict(action, f"Pod {where} has condition {pattern.get('type')} {suffix}")
    return COUNTED


def _matching_exit(codes: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[str, int] | None:
    """The container whose exit code matches. A container that succeeded has no failure to match."""
    status, values = pod.get("status") or {}, codes.get("values") or ()
    only = codes.get("containerName")
    for each in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        ended = (each.get("state") or {}).get("terminated")
        code = (ended or {}).get("exitCode") or 0
        if not code or (only is not None and each.get("name") != only):
            continue
        if (code in values) == (codes.get("operator") == "In"):
            return str(each.get("name")), int(code)
    return None


def replaces_only_failed(job: Mapping[str, Any]) -> bool:
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def has_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """A pod that is being deleted counts as failed, unless only terminated pods are to be replaced."""
    phase = phase_of(pod)
    if phase == "Failed" or replaces_only_failed(job):
        return phase == "Failed"
    return bool(pod["metadata"].get("deletionTimestamp")) and phase != "Succeeded"


# --- failures of an index ---


def _counter(pod: Mapping[str, Any], name: str) -> int:
    return go_integer((pod["metadata"].get("annotations") or {}).get(name, "")) or 0


def fails_index(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether this failure is the last one that its index may have."""
    verdict = failure_verdict(job, pod)
    if verdict.action == "FailIndex":
        return True
    return verdict.counts and _counter(pod, FAILURES) >= int(job["spec"]["backoffLimitPerIndex"])


def next_counters(job: Mapping[str, Any], last_failed: Mapping[str, Any] | None) -> dict[str, str]:
    """The annotations of the next pod of an index."""
    if last_failed is None:
        return {FAILURES: "0"}
    failures, ignored = _counter(last_failed, FAILURES), _counter(last_failed, IGNORED)
    if failure_verdict(job, last_failed).counts:
        failures += 1
    else:
        ignored += 1
    return {FAILURES: str(failures), **({IGNORED: str(ignored)} if ignored else {})}


# --- back-off ---


def finished_s(pod: Mapping[str, Any], now_s: float) -> float:
    """When the last container ended; if that is unknown, when the pod stopped being ready or was deleted."""
    status = pod.get("status") or {}
    times: list[float] = []
    for each in status.get("containerStatuses") or ():
        ended = epoch_seconds(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        if ended is None:
            times = []
            break
        times.append(ended)
    if times:
        return max(times)
    ready = epoch_seconds((condition_of(pod, "Ready") or {}).get("lastTransitionTime"))
    deleted = epoch_seconds(pod["metadata"].get("deletionTimestamp"))
    if deleted is not None:
        deleted -= pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return next((each for each in (ready, deleted) if each is not None), now_s)


def delay_s(failures: int) -> float:
    """10 s after the first failure, doubled for each further one, at most 6 minutes."""
    return 0.0 if failures <= 0 else min(BACKOFF_FIRST_S * 2 ** min(failures - 1, 16), BACKOFF_MOST_S)


def backoff_left_s(failed: Sequence[Mapping[str, Any]], succeeded: Iterable[Mapping[str, Any]], now_s: float) -> float:
    """How long to wait before the next pod: failures since the last success count."""
    last_success = max((finished_s(pod, now_s) for pod in succeeded), default=float("-inf"))
    times = [time for pod in failed if (time := finished_s(pod, now_s)) > last_success]
    return max(max(times) + delay_s(len(times)) - now_s, 0.0) if times else 0.0


def index_backoff_left_s(last_failed: Mapping[str, Any] | None, now_s: float) -> float:
    if last_failed is None:
        return 0.0
    failures = _counter(last_failed, FAILURES) + _counter(last_failed, IGNORED) + 1
    return max(finished_s(last_failed, now_s) + delay_s(failures) - now_s, 0.0)
