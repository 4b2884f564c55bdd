"""StatefulSets, DaemonSets, their revisions, and CronJobs, carried out by the controllers of a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plimsoll.rules.timestamps import rfc3339
from tests.unit.api.controllers.workloads import PATHS, Workloads, template, workload, workloads

Json = dict[str, Any]
HASH = "controller-revision-hash"


def _names(documents: list[Json]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in documents)


async def _ready_pod(made: Workloads, name: str) -> Json:
    found: Json = {}

    def is_there(pods: list[Json]) -> bool:
        found.update(next((pod for pod in pods if pod["metadata"]["name"] == name), {}))
        return bool(found) and not found["metadata"].get("deletionTimestamp")

    await made.until_listed("pods", is_there)
    await made.set_ready(found)
    return found


async def test_a_stateful_set_is_created_updated_and_scaled_in_order(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("statefulsets", workload(replicas=3, serviceName="svc"))
        first = (await made.pods(1))[0]
        assert first["metadata"]["name"] == "web-0"
        labels, spec = first["metadata"]["labels"], first["spec"]
        assert labels["statefulset.kubernetes.io/pod-name"] == "web-0"
        assert labels["apps.kubernetes.io/pod-index"] == "0"
        assert (spec["hostname"], spec["subdomain"]) == ("web-0", "svc")
        await made.until("statefulsets", "web", lambda found: found["status"].get("replicas") == 1)
        assert len(await made.list("pods")) == 1, "web-1 waits for web-0"
        for name in ("web-0", "web-1", "web-2"):
            await _ready_pod(made, name)
        found = await made.until("statefulsets", "web", lambda found: found["status"].get("readyReplicas") == 3)
        old = found["status"]["currentRevision"]
        assert found["status"]["updateRevision"] == old == labels[HASH]

        # A canary: only the last pod, then the rest.
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        await made.patch("statefulsets", "web", {"spec": {"template": template("nginx:2"), "updateStrategy": rolling}})
        new = (await made.until("statefulsets", "web", lambda found: found["status"]["updateRevision"] != old))[
            "status"
        ]
        await made.until("pods", "web-2", lambda pod: pod["metadata"]["labels"][HASH] == new["updateRevision"])
        await _ready_pod(made, "web-2")
        counts = {"readyReplicas": 3, "updatedReplicas": 1, "currentReplicas": 2}
        await made.until("statefulsets", "web", lambda found: counts.items() <= found["status"].items())
        await made.delete("pods", "web-0")
        again = await _ready_pod(made, "web-0")
        assert again["metadata"]["labels"][HASH] == old, "below the partition"
        rolling["rollingUpdate"] = {"partition": 0}
        await made.patch("statefulsets", "web", {"spec": {"updateStrategy": rolling}})
        for name in ("web-1", "web-0"):
            wanted = new["updateRevision"]
            await made.until("pods", name, lambda pod, wanted=wanted: pod["metadata"]["labels"][HASH] == wanted)  # type: ignore[misc]
            await _ready_pod(made, name)
        await made.until(
            "statefulsets", "web", lambda found: found["status"].get("currentRevision") == new["updateRevision"]
        )

        # A pod that is not ready stops scaling down.
        await made.set_ready(await made.get("pods", "web-0"), ready=False)
        await made.patch("statefulsets", "web", {"spec": {"replicas": 1}}, "scale")
        await made.until("statefulsets", "web", lambda found: found["status"]["observedGeneration"] == 4)
        assert _names(await made.list("pods")) == ["web-0", "web-1", "web-2"]
        await made.set_ready(await made.get("pods", "web-0"))
        await made.until_listed("pods", lambda pods: _names(pods) == ["web-0"])
        revisions = await made.list("controllerrevisions")
        assert sorted(each["revision"] for each in revisions) == [1, 2]
        await made.until_event(
            "StatefulSet", "web", "SuccessfulCreate", "create Pod web-0 in StatefulSet web successful"
        )


async def test_a_parallel_set_with_ordinals_replaces_evicted_pods(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        spec = {"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}
        await made.create("statefulsets", workload(replicas=3, **spec))
        pods = await made.pods(3)
        assert _names(pods) == ["web-5", "web-6", "web-7"]
        await made.finish(pods[1], "Failed", 1)
        uid = pods[1]["metadata"]["uid"]
        name = pods[1]["metadata"]["name"]
        await made.until_listed(
            "pods",
            lambda found: [
                each for each in found if each["metadata"]["name"] == name and each["metadata"]["uid"] != uid
            ],
        )
        await made.patch("statefulsets", "web", {"spec": {"replicas": 0}})
        await made.until_listed("pods", lambda found: not found)
        claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
        said = await made.ask("POST", PATHS["statefulsets"], workload("w2", volumeClaimTemplates=[claim]))
        assert (
            said.code == 422 and "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value" in said.message
        )
        said = await made.ask(
            "PATCH", f"{PATHS['statefulsets']}/web", {"spec": {"serviceName": "x"}}, "application/merge-patch+json"
        )
        assert "updates to statefulset spec for fields other than 'replicas', 'ordinals'" in said.message


async def _node(made: Workloads, name: str, **labels: str) -> None:
    """A node that is ready; the clock stands still, so it stays so."""
    now = rfc3339(made.ask.now_s)
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    await made.create("nodes", {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [ready]}})
    await made.patch("nodes", name, {"spec": {"taints": None}})


async def test_a_daemon_set_follows_the_nodes(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        for name in ("a", "b"):
            await _node(made, name, disk="ssd")
        await _node(made, "c")
        chosen = template("nginx:1", nodeSelector={"disk": "ssd"})
        await made.create("daemonsets", workload(template=chosen))
        pods = await made.pods(2)
        terms = [
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] for pod in pods
        ]
        fields = [term["nodeSelectorTerms"][0]["matchFields"][0]["values"] for term in terms]
        assert sorted(fields) == [["a"], ["b"]]
        keys = {each["key"] for each in pods[0]["spec"]["tolerations"]}
        assert {"node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"} <= keys
        await made.set_ready(*pods)
        found = await made.until("daemonsets", "web", lambda found: found["status"].get("numberAvailable") == 2)
        assert found["status"]["desiredNumberScheduled"] == 2
        await made.patch("nodes", "c", {"metadata": {"labels": {"disk": "ssd"}}})
        await made.set_ready(*await made.pods(3))
        await made.patch("nodes", "c", {"metadata": {"labels": {"disk": None}}})
        await made.pods(2)
        failed = (await made.pods(2))[0]
        await made.finish(failed, "Failed", 1)
        await made.until_listed("pods", lambda pods: len(pods) == 2 and failed["metadata"]["name"] not in _names(pods))


async def test_a_daemon_set_is_updated_node_by_node_and_rolled_back(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        for name in ("a", "b", "c"):
            await _node(made, name)
        await made.create("daemonsets", workload())
        pods = await made.pods(3)
        await made.set_ready(*pods)
        await made.until("daemonsets", "web", lambda found: found["status"].get("numberAvailable") == 3)
        await made.patch("daemonsets", "web", {"spec": {"template": template("bad:1")}})

        def images(pods: list[Json]) -> list[str]:
            return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)

        await made.until_listed("pods", lambda pods: images(pods) == ["bad:1", "nginx:1", "nginx:1"])
        await made.until("daemonsets", "web", lambda found: found["status"].get("updatedNumberScheduled") == 1)
        kept = {pod["metadata"]["uid"] for pod in await made.list("pods") if images([pod]) == ["nginx:1"]}
        await made.patch("daemonsets", "web", {"spec": {"template": template("nginx:1")}})
        after = await made.until_listed("pods", lambda pods: images(pods) == ["nginx:1"] * 3)
        assert kept <= {pod["metadata"]["uid"] for pod in after}, "pods of the old template were not restarted"
        revisions = await made.list("controllerrevisions")
        assert sorted(each["revision"] for each in revisions) == [2, 3]
        assert revisions[0]["data"]["spec"]["template"]["$patch"] == "replace"


def _is_open(pod: Json, job: str) -> bool:
    return pod["status"]["phase"] == "Pending" and pod["metadata"]["name"].startswith(f"{job}-")


async def test_cron_jobs(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        job = {"spec": {"template": template(restartPolicy="Never")}}
        cron = {"metadata": {"name": "c"}, "spec": {"schedule": "*/1 * * * *", "jobTemplate": job}}
        cron["spec"] |= {"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1}
        await made.create("cronjobs", cron)

        async def pass_minutes(count: int) -> int:
            made.ask.now_s += 60 * count
            await made.patch("cronjobs", "c", {"metadata": {"annotations": {"now": str(made.ask.now_s)}}})
            return int(made.ask.now_s) // 60

        first = await pass_minutes(1)
        (started,) = await made.until_listed("jobs", lambda jobs: jobs)
        assert started["metadata"]["name"] == f"c-{first}"
        assert started["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        found = await made.until("cronjobs", "c", lambda found: found["status"].get("active"))
        assert found["status"]["lastScheduleTime"].endswith("Z")
        await pass_minutes(1)
        message = "Not starting job because prior execution is running and concurrency policy is Forbid"
        await made.until_event("CronJob", "c", "JobAlreadyActive", message)
        assert len(await made.list("jobs")) == 1

        async def finish(name: str) -> None:
            pods = await made.until_listed("pods", lambda pods: any(_is_open(pod, name) for pod in pods))
            await made.finish(next(pod for pod in pods if _is_open(pod, name)), "Succeeded")

        await finish(f"c-{first}")
        await finish(f"c-{first + 1}")  # the time that was missed
        found = await made.until("cronjobs", "c", lambda found: not found["status"].get("active"))
        assert found["status"]["lastSuccessfulTime"]
        await made.until_listed("jobs", lambda jobs: _names(jobs) == [f"c-{first + 1}"])  # one is kept
        await made.patch("cronjobs", "c", {"spec": {"suspend": True}})
        await pass_minutes(3)
        await made.until("cronjobs", "c", lambda found: found["metadata"]["generation"] == 2)
        assert len(await made.list("jobs")) == 1
        for schedule, text in (
            ("error", "expected exactly 5 fields, found 1: [error]"),
            ("TZ=UTC 0 * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ):
            cron["spec"] |= {"schedule": schedule}
            said = await made.ask("POST", PATHS["cronjobs"], {**cron, "metadata": {"name": "d"}})
            assert said.code == 422 and text in said.message


async def test_cron_jobs_that_overlap(tmp_path: Path) -> None:
    """e2e: CronJob should schedule multiple jobs concurrently; should replace jobs when ReplaceConcurrent."""
    async with workloads(tmp_path) as made:
        job = {"spec": {"template": template(restartPolicy="Never")}}
        for name, policy in (("all", "Allow"), ("newest", "Replace")):
            spec = {"schedule": "*/1 * * * *", "concurrencyPolicy": policy, "jobTemplate": job}
            await made.create("cronjobs", {"metadata": {"name": name}, "spec": spec})
        for _ in range(2):
            made.ask.now_s += 60
            minute = int(made.ask.now_s) // 60
            for name in ("all", "newest"):
                await made.patch("cronjobs", name, {"metadata": {"annotations": {"now": str(minute)}}})
                wanted = f"{name}-{minute}"
                await made.until_listed("jobs", lambda jobs, wanted=wanted: wanted in _names(jobs))  # type: ignore[misc]
        expected = [f"all-{minute - 1}", f"all-{minute}", f"newest-{minute}"]
        await made.until_listed("jobs", lambda jobs: _names(jobs) == expected)
        for name, active in (("newest", expected[2:]), ("all", expected[:2])):  # the status follows the jobs
            await made.until(
                "cronjobs",
                name,
                lambda each, active=active: sorted(a["name"] for a in each["status"].get("active") or []) == active,  # type: ignore[misc]
            )


async def test_conditions_of_others_are_kept(tmp_path: Path) -> None:
    """A status may have conditions of other controllers; ours are added to them."""
    foreign = {"type": "Mine", "status": "True", "reason": "R", "message": "m"}
    async with workloads(tmp_path) as made:
        await _node(made, "a")
        for plural in ("deployments", "replicasets", "statefulsets", "daemonsets"):
            await made.create(plural, workload(plural[:2]))
            await made.until(plural, plural[:2], lambda found: found["status"].get("observedGeneration"))
            await made.patch(plural, plural[:2], {"status": {"conditions": [foreign]}}, "status")
            await made.patch(plural, plural[:2], {"spec": {"minReadySeconds": 1}})
            found = await made.until(plural, plural[:2], lambda found: found["status"]["observedGeneration"] == 2)
            types = [each["type"] for each in found["status"]["conditions"]]
            assert "Mine" in types, plural
            assert ("Available" in types) == (plural == "deployments")
            await made.ask.ok("DELETE", PATHS[plural])
            await made.until_listed(plural, lambda found: not found)
            await made.until_listed("pods", lambda pods: not pods)
