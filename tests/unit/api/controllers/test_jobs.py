"""Jobs, carried out by the controller of a real API server; the test says what becomes of pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import MERGE
from tests.unit.api.controllers.workloads import PATHS, Workloads, condition, template, workloads

Json = dict[str, Any]
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"


def job(name: str = "j", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"template": template(restartPolicy="Never"), **spec}}


def indexed(completions: int, **spec: Any) -> Json:
    return job(completionMode="Indexed", completions=completions, parallelism=completions, **spec)


async def _active(made: Workloads, count: int) -> list[Json]:
    """As many pods that have not ended, by index."""

    def active(pods: list[Json]) -> list[Json]:
        return [
            pod
            for pod in pods
            if pod["status"]["phase"] in ("Pending", "Running") and not pod["metadata"].get("deletionTimestamp")
        ]

    pods = active(await made.until_listed("pods", lambda pods: len(active(pods)) == count))
    return sorted(pods, key=lambda pod: int((pod["metadata"].get("annotations") or {}).get(INDEX, 0)))


async def _ended(made: Workloads, type_: str, reason: str) -> Json:
    found = await made.until("jobs", "j", lambda job: condition(job, type_))
    assert condition(found, type_)["reason"] == reason
    return found


async def test_completions_are_counted_once(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job(completions=3, parallelism=2))
        pods = await _active(made, 2)
        assert all(pod["metadata"]["finalizers"] == [TRACKING] for pod in pods)
        for pod in pods:
            await made.finish(pod, "Succeeded")
        (last,) = await _active(made, 1)
        found = await made.until("jobs", "j", lambda job: job["status"].get("succeeded") == 2)
        assert found["status"]["active"] == 1 and found["status"]["ready"] == 0
        await made.finish(last, "Succeeded")
        found = await _ended(made, "Complete", "CompletionsReached")
        assert found["status"]["succeeded"] == 3 and found["status"]["completionTime"]
        assert "active" not in found["status"] and found["status"]["uncountedTerminatedPods"] == {}
        assert condition(found, "SuccessCriteriaMet")["reason"] == "CompletionsReached"
        assert not any(pod["metadata"].get("finalizers") for pod in await made.list("pods"))
        await made.until_event("Job", "j", "Completed", "Job completed")


async def test_failures_are_counted_with_a_growing_delay(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job(backoffLimit=2))
        for failures, delay_s in ((1, 10), (2, 20)):
            (pod,) = await _active(made, 1)
            await made.finish(pod, "Failed", 1)
            await made.until("jobs", "j", lambda job, n=failures: job["status"].get("failed") == n)  # type: ignore[misc]
            made.ask.now_s += delay_s - 1
            await _touch(made)
            assert await _active(made, 0) == [], "the next pod waits"
            made.ask.now_s += 1
            await _touch(made)
        (pod,) = await _active(made, 1)
        await made.finish(pod, "Failed", 1)
        found = await _ended(made, "Failed", "BackoffLimitExceeded")
        assert condition(found, "Failed")["message"] == "Job has reached the specified backoff limit"
        assert condition(found, "FailureTarget")["reason"] == "BackoffLimitExceeded"
        assert found["status"]["failed"] == 3 and len(await made.list("pods")) == 3


async def _touch(made: Workloads) -> None:
    """The clock of the test does not wake the controller; a change does. Afterwards the change is processed."""
    await made.patch("jobs", "j", {"metadata": {"annotations": {"now": str(made.ask.now_s)}}})
    for _ in range(3):
        await made.ask.ok("GET", "/apis/batch/v1/namespaces/default/jobs/j")


async def test_the_deadline_ends_a_job(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job(parallelism=2, completions=4, activeDeadlineSeconds=5))
        await _active(made, 2)
        made.ask.now_s += 5
        await _touch(made)
        found = await _ended(made, "Failed", "DeadlineExceeded")
        assert found["status"]["failed"] == 2 and found["status"]["terminating"] == 0
        await made.until_listed("pods", lambda pods: not pods)


async def test_an_indexed_job_has_one_pod_for_each_index(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", indexed(4))
        pods = await _active(made, 4)
        for index, pod in enumerate(pods):
            metadata, spec = pod["metadata"], pod["spec"]
            assert metadata["annotations"][INDEX] == metadata["labels"][INDEX] == str(index)
            assert metadata["name"].startswith(f"j-{index}-") and spec["hostname"] == f"j-{index}"
            (variable,) = spec["containers"][0]["env"]
            assert variable["name"] == "JOB_COMPLETION_INDEX"
            assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INDEX}']"
        for index in (0, 2, 3):
            await made.finish(pods[index], "Succeeded")
        found = await made.until("jobs", "j", lambda job: job["status"].get("succeeded") == 3)
        assert found["status"]["completedIndexes"] == "0,2,3"
        await made.finish(pods[1], "Failed", 1)
        made.ask.now_s += 10
        await made.until("jobs", "j", lambda job: job["status"].get("failed") == 1)
        await _touch(made)
        (again,) = await _active(made, 1)
        await made.finish(again, "Succeeded")
        found = await _ended(made, "Complete", "CompletionsReached")
        assert found["status"]["completedIndexes"] == "0-3"


async def test_indexes_fail_by_themselves(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", indexed(3, backoffLimitPerIndex=1))
        pods = await _active(made, 3)
        await made.finish(pods[0], "Failed", 1)
        await made.finish(pods[1], "Succeeded")
        await made.finish(pods[2], "Succeeded")
        await made.until("jobs", "j", lambda job: job["status"].get("completedIndexes") == "1,2")
        made.ask.now_s += 10
        await _touch(made)
        (again,) = await _active(made, 1)
        assert again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
        await made.finish(again, "Failed", 1)
        found = await _ended(made, "Failed", "FailedIndexes")
        assert (found["status"]["failedIndexes"], found["status"]["completedIndexes"]) == ("0", "1,2")
        assert found["status"]["failed"] == 2


async def test_too_many_failed_indexes(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", indexed(4, backoffLimitPerIndex=0, maxFailedIndexes=1))
        pods = await _active(made, 4)
        await made.finish(pods[0], "Failed", 1)
        await made.until("jobs", "j", lambda job: job["status"].get("failedIndexes") == "0")
        await made.finish(pods[2], "Failed", 1)
        found = await _ended(made, "Failed", "MaxFailedIndexesExceeded")
        assert found["status"]["failedIndexes"] == "0,2"


CODES = {"operator": "In", "values": [42]}


@pytest.mark.parametrize(
    ("action", "type_", "reason"),
    [("FailJob", "Failed", "PodFailurePolicy"), ("FailIndex", "Failed", "FailedIndexes")],
)
async def test_a_failure_policy_ends_a_job_or_an_index(tmp_path: Path, action: str, type_: str, reason: str) -> None:
    async with workloads(tmp_path) as made:
        policy = {"rules": [{"action": action, "onExitCodes": CODES}]}
        await made.create("jobs", indexed(1, backoffLimitPerIndex=5, podFailurePolicy=policy))
        (pod,) = await _active(made, 1)
        await made.finish(pod, "Failed", 42)
        found = await _ended(made, type_, reason)
        if action == "FailJob":
            name = pod["metadata"]["name"]
            message = f"Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
            assert condition(found, type_)["message"] == message


async def test_a_disrupted_pod_is_replaced_without_a_failure(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        await made.create("jobs", job(backoffLimit=0, podFailurePolicy={"rules": [rule]}))
        (pod,) = await _active(made, 1)
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        await made.finish(pod, "Failed", 137, [disrupted])
        (again,) = await _active(made, 1)
        await made.finish(again, "Succeeded")
        found = await _ended(made, "Complete", "CompletionsReached")
        assert "failed" not in found["status"]


@pytest.mark.parametrize(
    ("rule", "done"), [({"succeededIndexes": "0"}, [0]), ({"succeededCount": 2}, [1, 2])], ids=["indexes", "count"]
)
async def test_a_success_policy_ends_a_job_early(tmp_path: Path, rule: Json, done: list[int]) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", indexed(4, successPolicy={"rules": [rule]}))
        pods = await _active(made, 4)
        for index in done:
            await made.finish(pods[index], "Succeeded")
        found = await _ended(made, "Complete", "SuccessPolicy")
        assert condition(found, "SuccessCriteriaMet")["message"] == "Matched rules at index 0"
        assert found["status"]["succeeded"] == len(done) and "failed" not in found["status"]


async def test_suspend_and_resume(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job(parallelism=2, completions=2))
        await _active(made, 2)
        started = await made.until("jobs", "j", lambda job: (job.get("status") or {}).get("startTime"))
        await made.patch("jobs", "j", {"spec": {"suspend": True}})
        found = await made.until("jobs", "j", lambda job: condition(job, "Suspended").get("status") == "True")
        assert condition(found, "Suspended")["reason"] == "JobSuspended"
        await made.until_listed("pods", lambda pods: not pods)
        made.ask.now_s += 100
        await made.patch("jobs", "j", {"spec": {"suspend": False}})
        await _active(made, 2)
        found = await made.until("jobs", "j", lambda job: condition(job, "Suspended").get("status") == "False")
        assert condition(found, "Suspended")["reason"] == "JobResumed"
        assert found["status"]["startTime"] > started["status"]["startTime"] and "failed" not in found["status"]
        await made.until_event("Job", "j", "Suspended", "Job suspended")
        await made.until_event("Job", "j", "Resumed", "Job resumed")


RESOURCES: Json = {"requests": {"cpu": "200m", "memory": "32Mi"}}
PLACE: Json = {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "a", "operator": "Exists"}]}


def _with_template(metadata: Json, spec: Json, **container: Any) -> Json:
    made = template(restartPolicy="Never")
    containers = [{**each, **container} for each in made["spec"]["containers"]]
    return {
        "metadata": {**made["metadata"], **metadata},
        "spec": {**made["spec"], **spec, "containers": containers},
    }


@pytest.mark.parametrize(
    ("profile", "started", "metadata", "spec", "container", "refused"),
    [
        pytest.param("1.36", True, {}, {}, {"resources": RESOURCES}, "", id="resources"),
        pytest.param("1.36", True, {"annotations": {"a": "b"}}, PLACE, {}, "", id="place"),
        pytest.param("1.36", False, {}, {}, {"image": "x"}, "spec.template.spec: Invalid value: ", id="image"),
        pytest.param(
            "1.34", True, {}, {}, {"resources": RESOURCES}, "spec.template: Invalid value: ", id="resources-1.34"
        ),
        pytest.param("1.34", False, {}, {}, {"resources": RESOURCES}, "spec.template: Invalid value: ", id="new-1.34"),
        pytest.param("1.34", True, {}, PLACE, {}, "spec.template: Invalid value: ", id="place-1.34"),
        pytest.param("1.34", False, {"annotations": {"a": "b"}}, PLACE, {}, "", id="new-place-1.34"),
    ],
)
async def test_the_template_of_a_suspended_job(
    tmp_path: Path, profile: str, started: bool, metadata: Json, spec: Json, container: Json, refused: str
) -> None:
    """e2e: … to allow updating of container resources of a suspended job; without the gates (1.34), where its pods run,
    before its first start."""
    async with workloads(tmp_path, profile) as made:
        await made.create("jobs", job(suspend=not started, parallelism=2, completions=2))
        if started:
            await _active(made, 2)
            await made.until("jobs", "j", lambda job: (job.get("status") or {}).get("active") == 2)
            await made.patch("jobs", "j", {"spec": {"suspend": True}})
        stopped = await made.until("jobs", "j", lambda job: condition(job, "Suspended").get("status") == "True")
        stopped = await made.until("jobs", "j", lambda job: not job["status"].get("active"))
        sent = _with_template({**stopped["spec"]["template"]["metadata"], **metadata}, spec, **container)
        said = await made.ask("PATCH", f"{PATHS['jobs']}/j", {"spec": {"template": sent}}, MERGE)
        if refused:
            assert said.code == 422 and refused in said.message and said.message.endswith("field is immutable")
            return
        await made.patch("jobs", "j", {"spec": {"suspend": False}})
        pod, _ = await _active(made, 2)
        assert pod["spec"]["containers"][0]["resources"] == container.get("resources", {})
        assert pod["spec"].get("nodeSelector") == spec.get("nodeSelector")


async def test_pods_are_replaced_when_they_have_failed(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job(podReplacementPolicy="Failed", backoffLimit=3))
        (pod,) = await _active(made, 1)
        name = pod["metadata"]["name"]
        await made.patch("pods", name, {"metadata": {"finalizers": [TRACKING, "test/blocked"]}})
        await made.delete("pods", name)
        found = await made.until("jobs", "j", lambda job: job["status"].get("terminating") == 1)
        assert "active" not in found["status"] and len(await made.list("pods")) == 1
        await made.finish(pod, "Failed", 1)
        await made.until("jobs", "j", lambda job: job["status"].get("failed") == 1)
        made.ask.now_s += 10
        await _touch(made)
        await _active(made, 1)


async def test_another_controller_manages_a_job(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job("theirs", managedBy="example.com/mine"))
        await made.create("jobs", job())
        pods = await made.until_listed("pods", lambda pods: any(_of(pod, "j") for pod in pods))
        await made.finish(next(pod for pod in pods if _of(pod, "j")), "Succeeded")
        await _ended(made, "Complete", "CompletionsReached")  # so the older one was processed, too
        assert not (await made.get("jobs", "theirs")).get("status")
        assert len(await made.list("pods")) == 1


def _of(pod: Json, name: str) -> bool:
    return bool(pod["metadata"]["labels"]["job-name"] == name)


async def test_adoption_release_and_ttl(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        created = await made.create("jobs", job(ttlSecondsAfterFinished=50, parallelism=1))
        (pod,) = await _active(made, 1)
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        await made.patch("pods", name, {"metadata": {"ownerReferences": None}})
        adopted = await made.until("pods", name, lambda pod: pod["metadata"].get("ownerReferences"))
        assert adopted["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        assert adopted["metadata"]["finalizers"] == [TRACKING], "it still counts"
        await made.patch("pods", name, {"metadata": {"labels": dict.fromkeys(labels)}})
        released = await made.until("pods", name, lambda pod: not pod["metadata"].get("ownerReferences"))
        await made.until("pods", name, lambda pod: not pod["metadata"].get("finalizers"))
        assert released["metadata"]["uid"] == pod["metadata"]["uid"]
        (second,) = [each for each in await _active(made, 2) if each["metadata"]["name"] != name]
        await made.finish(second, "Succeeded")
        await _ended(made, "Complete", "CompletionsReached")
        made.ask.now_s += 50
        await _touch(made)
        await made.until_listed("jobs", lambda jobs: not jobs)


async def test_pods_of_a_deleted_job_are_not_kept_by_the_finalizer(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("jobs", job(parallelism=2, completions=2))
        await _active(made, 2)
        await made.delete("jobs", "j", propagationPolicy="Background")
        await made.until_listed("pods", lambda pods: not pods)
        await made.create("jobs", job(parallelism=2, completions=2))
        await _active(made, 2)
        await made.delete("jobs", "j", propagationPolicy="Orphan")
        await made.until_listed("pods", lambda pods: not any(pod["metadata"].get("finalizers") for pod in pods))
        assert len(await made.list("pods")) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"completionMode": "Indexed", "parallelism": 1},
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        ({"backoffLimitPerIndex": 1}, "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"),
        (
            {"podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": CODES}]}},
            'rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "Count"}]}},
            "specifying one of OnExitCodes and OnPodConditions is required",
        ),
        ({"managedBy": "me"}, "spec.managedBy: Invalid value"),
        ({"template": template()}, 'restartPolicy: Required value: valid values: "OnFailure", "Never"'),
    ],
)
async def test_refusals(tmp_path: Path, spec: Json, message: str) -> None:
    async with workloads(tmp_path) as made:
        said = await made.ask("POST", "/apis/batch/v1/namespaces/default/jobs", job(**spec))
        assert said.code == 422 and message in said.message
