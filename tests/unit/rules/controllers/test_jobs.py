"""Jobs: steps, indexes, failure and success policies, back-off."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.controllers.job_failures import (
    backoff_left_s,
    delay_s,
    failure_verdict,
    index_backoff_left_s,
    next_counters,
)
from plimsoll.rules.controllers.job_indexes import indexes_problem, indexes_text, parsed_indexes
from plimsoll.rules.controllers.jobs import TRACKING, JobStep, expires_in_s, job_step
from tests.unit.rules.controllers.documents import NOW_S, REFERENCE, Json, ago, pod

INDEX = "batch.kubernetes.io/job-completion-index"


def _job(**spec: Any) -> Json:
    return {"metadata": {"name": "j", "uid": "j"}, "spec": {"template": {}, **spec}, "status": {"startTime": ago(100)}}


def _pod(name: str, phase: str, *, index: int | None = None, code: int = 0, ended_s: float = 50, **more: Any) -> Json:
    annotations = more.pop("annotations", {}) | ({} if index is None else {INDEX: str(index)})
    made = pod(name, phase, ready=phase == "Running", finalizers=[TRACKING], annotations=annotations, **more)
    if phase in ("Succeeded", "Failed"):
        state = {"terminated": {"exitCode": code, "finishedAt": ago(ended_s)}}
        made["status"]["containerStatuses"] = [{"name": "c", "state": state}]
    return made


def _step(job: Json, pods: list[Json]) -> JobStep:
    return job_step(job, pods, NOW_S, REFERENCE)


def _target(step: JobStep) -> str:
    return next((each["reason"] for each in step.status.get("conditions", ()) if each["status"] == "True"), "")


@pytest.mark.parametrize(
    ("spec", "phases", "create", "deleted", "target"),
    [
        ({"completions": 3, "parallelism": 2}, [], 2, 0, ""),
        ({"completions": 3, "parallelism": 2}, ["Succeeded", "Succeeded"], 1, 0, ""),
        ({"completions": 1}, ["Succeeded", "Running"], 0, 1, ""),
        ({"completions": 1}, ["Succeeded"], 0, 0, "CompletionsReached"),
        ({"completions": 1}, ["Failed"], 1, 0, ""),
        ({"completions": 1, "backoffLimit": 0}, ["Failed", "Running"], 0, 1, "BackoffLimitExceeded"),
        ({"parallelism": 3}, ["Succeeded", "Running"], 0, 0, ""),
        ({"parallelism": 3}, ["Succeeded"], 0, 0, "CompletionsReached"),
        ({"completions": 5, "parallelism": 1}, ["Running", "Running"], 0, 1, ""),
        ({"completions": 5, "parallelism": 2, "suspend": True}, ["Running"], 0, 1, "JobSuspended"),
        ({"completions": 5, "activeDeadlineSeconds": 100}, ["Running"], 0, 1, "DeadlineExceeded"),
        ({"completions": 0}, [], 0, 0, "CompletionsReached"),
    ],
)
def test_steps(spec: Json, phases: list[str], create: int, deleted: int, target: str) -> None:
    step = _step(_job(**spec), [_pod(f"p{i}", phase) for i, phase in enumerate(phases)])
    assert (len(step.create), len(step.delete), _target(step)) == (create, deleted, target)


def test_a_pod_is_counted_when_its_finalizer_is_gone() -> None:
    job, ended = _job(completions=2), _pod("p", "Succeeded")
    step = _step(job, [ended])
    assert step.status["uncountedTerminatedPods"] == {"succeeded": ["p"]} and "succeeded" not in step.status
    assert [each["metadata"]["name"] for each in step.uncounted] == ["p"]
    job["status"] = step.status
    assert _step(job, [ended]).status["uncountedTerminatedPods"] == {"succeeded": ["p"]}, "not noted twice"
    for pods in ([], [{**ended, "metadata": {**ended["metadata"], "finalizers": []}}]):
        counted = _step(job, pods).status
        assert (counted["succeeded"], counted["uncountedTerminatedPods"]) == (1, {})


def test_a_job_ends_when_the_last_pod_has_stopped() -> None:
    job, running = _job(completions=1, backoffLimit=0), _pod("a", "Running")
    job["status"]["failed"] = 1
    step = _step(job, [running])
    assert [each["type"] for each in step.status["conditions"]] == ["FailureTarget"]
    assert step.delete == (running,) and not step.delete_untracked
    job["status"] = step.status
    stopping = _pod("a", "Running", deletionTimestamp="x")
    stopping["metadata"]["finalizers"] = []
    assert [each["type"] for each in _step(job, [stopping]).status["conditions"]] == ["FailureTarget"]
    done = _step(job, [])
    assert [each["type"] for each in done.status["conditions"]] == ["FailureTarget", "Failed"]
    assert done.events == (("Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),)


def test_restarts_count_with_on_failure() -> None:
    job = _job(completions=1, backoffLimit=2)
    job["spec"]["template"] = {"spec": {"restartPolicy": "OnFailure"}}
    assert _target(_step(job, [_pod("a", "Running", restarts=1)])) == ""
    assert _target(_step(job, [_pod("a", "Running", restarts=2)])) == "BackoffLimitExceeded"


# --- back-off ---


@pytest.mark.parametrize(
    ("failures", "expected"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 320), (7, 360), (99, 360)]
)
def test_delays(failures: int, expected: float) -> None:
    assert delay_s(failures) == expected


def test_failures_since_the_last_success_delay_the_next_pod() -> None:
    failed = [_pod("a", "Failed", ended_s=30), _pod("b", "Failed", ended_s=5)]
    assert backoff_left_s(failed, [], NOW_S) == 15
    assert backoff_left_s(failed, [_pod("c", "Succeeded", ended_s=20)], NOW_S) == 5
    assert backoff_left_s(failed, [_pod("c", "Succeeded", ended_s=1)], NOW_S) == 0
    step = _step(_job(completions=1), failed)
    assert step.create == () and step.requeue_s == 15


def test_an_index_waits_for_itself() -> None:
    last = _pod("a", "Failed", index=0, ended_s=5, annotations={"batch.kubernetes.io/job-index-failure-count": "1"})
    assert index_backoff_left_s(last, NOW_S) == 15
    job = _job(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=3)
    step = _step(job, [last])
    assert [each["metadata"]["annotations"][INDEX] for each in step.create] == ["1"]
    assert step.uncounted == (), "the last failed pod of an index has its number of failures"
    assert next_counters(job, last) == {"batch.kubernetes.io/job-index-failure-count": "2"}


# --- policies ---


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        ({"onExitCodes": {"operator": "In", "values": [3, 4]}}, "X"),
        ({"onExitCodes": {"operator": "In", "values": [4]}}, ""),
        ({"onExitCodes": {"operator": "NotIn", "values": [4]}}, "X"),
        ({"onExitCodes": {"operator": "In", "values": [3], "containerName": "c"}}, "X"),
        ({"onExitCodes": {"operator": "In", "values": [3], "containerName": "other"}}, ""),
        ({"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, "X"),
        ({"onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}, ""),
        ({"onPodConditions": [{"type": "Other", "status": "True"}]}, ""),
    ],
)
def test_failure_rules(rule: Json, action: str) -> None:
    failed = _pod("p", "Failed", code=3)
    failed["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    job = _job(podFailurePolicy={"rules": [{"action": "X", **rule}, {"action": "Y", "onExitCodes": {}}]})
    assert failure_verdict(job, failed).action == action


@pytest.mark.parametrize(
    ("rules", "done", "met"),
    [
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, False),
        ([{"succeededIndexes": "0,2-3"}], {0, 2, 3}, True),
        ([{"succeededIndexes": "0-3", "succeededCount": 2}], {1, 3}, True),
        ([{"succeededCount": 2}], {1}, False),
        ([{"succeededIndexes": "4"}, {"succeededCount": 1}], {1}, True),
    ],
)
def test_success_policies(rules: list[Json], done: set[int], met: bool) -> None:
    job = _job(completions=5, parallelism=5, completionMode="Indexed", successPolicy={"rules": rules})
    job["status"]["completedIndexes"] = indexes_text(done)
    assert (_target(_step(job, [])) == "SuccessPolicy") == met


@given(st.sets(st.integers(0, 60)))
def test_indexes_as_text(indexes: set[int]) -> None:
    text = indexes_text(indexes)
    assert parsed_indexes(text, 61) == indexes
    assert indexes_problem(text, 61) == ""


def test_examples_of_indexes() -> None:
    assert indexes_text({0, 2, 3, 4, 6, 7}) == "0,2-4,6,7"
    assert parsed_indexes("0-3,9", 3) == {0, 1, 2}
    assert [bool(indexes_problem(text, 5)) for text in ("3,1", "x", "5", "1-", "0-4")] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_ttl() -> None:
    job = _job(ttlSecondsAfterFinished=60)
    assert expires_in_s(job, NOW_S) is None
    job["status"]["conditions"] = [{"type": "Failed", "status": "True", "lastTransitionTime": ago(20)}]
    assert expires_in_s(job, NOW_S) == 40
