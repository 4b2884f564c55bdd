"""Deployments and ReplicaSets, carried out by the controllers of a real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.unit.api.controllers.workloads import TIMEOUT_S, Workloads, condition, template, workload, workloads

REVISION = "deployment.kubernetes.io/revision"
Json = dict[str, Any]


async def _rolled_out(made: Workloads, name: str = "web") -> Json:
    """Every pod becomes ready until the rollout is complete."""

    def is_done(deployment: Json) -> bool:
        return condition(deployment, "Progressing").get("reason") == "NewReplicaSetAvailable" and (
            deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
        )

    async with asyncio.timeout(TIMEOUT_S):
        while not is_done(deployment := await made.get("deployments", name)):
            waiting = [pod for pod in await made.list("pods") if pod["status"]["phase"] == "Pending"]
            await made.set_ready(*waiting)
            await asyncio.sleep(0.01)
    return deployment


def _sizes(sets: list[Json]) -> list[int]:
    return sorted(each["spec"]["replicas"] for each in sets)


async def test_a_bad_image_takes_down_only_max_unavailable(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("deployments", workload(replicas=8))
        deployment = await _rolled_out(made)
        assert deployment["metadata"]["annotations"][REVISION] == "1"
        await made.patch("deployments", "web", {"spec": {"template": template("missing:1")}})
        # 25 % of 8: two more, two fewer. The pods of the new image never become ready.
        sets = await made.until_listed("replicasets", lambda sets: _sizes(sets) == [4, 6])
        counts = {"replicas": 10, "updatedReplicas": 4, "availableReplicas": 6, "unavailableReplicas": 4}
        found = await made.until("deployments", "web", lambda found: counts.items() <= found["status"].items())
        assert condition(found, "Available")["status"] == "True"
        assert [each["metadata"]["annotations"][REVISION] for each in sorted(sets, key=_age)] == ["1", "2"]
        assert _sizes(await made.list("replicasets")) == [4, 6]

        # Undo: the first ReplicaSet is used again, as revision 3.
        await made.patch("deployments", "web", {"spec": {"template": template("nginx:1")}})
        await _rolled_out(made)
        sets = sorted(await made.list("replicasets"), key=_age)
        assert [(each["spec"]["replicas"], each["metadata"]["annotations"][REVISION]) for each in sets] == [
            (8, "3"),
            (0, "2"),
        ]
        assert sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
        messages = {message for reason, message in await made.events("Deployment", "web")}
        first, second = (each["metadata"]["name"] for each in sets)
        assert {
            f"Scaled up replica set {first} from 0 to 8",
            f"Scaled up replica set {second} from 0 to 2",
            f"Scaled down replica set {first} from 8 to 6",
            f"Scaled up replica set {second} from 2 to 4",
        } <= messages


def _age(document: Json) -> bool:
    """The ReplicaSet of the first image, then the others."""
    return bool(document["spec"]["template"]["spec"]["containers"][0]["image"] != "nginx:1")


async def test_proportional_scaling_pause_and_clean_up(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
        spec = {"strategy": rolling, "revisionHistoryLimit": 1}
        await made.create("deployments", workload(replicas=10, **spec))
        await _rolled_out(made)
        # As in Kubernetes' own test: 8 and 5 of 10 + 3 become 20 and 13 of 30 + 3.
        await made.patch("deployments", "web", {"spec": {"template": template("missing:404")}})
        await made.until_listed("replicasets", lambda sets: _sizes(sets) == [5, 8])
        await made.until("deployments", "web", lambda found: found["status"].get("availableReplicas") == 8)
        await made.patch("deployments", "web", {"spec": {"replicas": 30}}, "scale")
        sets = await made.until_listed("replicasets", lambda sets: _sizes(sets) == [13, 20])
        assert {each["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"] for each in sets} == {"33"}

        await made.patch("deployments", "web", {"spec": {"paused": True, "replicas": 1}})
        paused = await made.until(
            "deployments", "web", lambda found: condition(found, "Progressing").get("reason") == "DeploymentPaused"
        )
        assert condition(paused, "Progressing")["status"] == "Unknown"
        await made.patch("deployments", "web", {"spec": {"template": template("nginx:3")}})
        await made.until("deployments", "web", lambda found: found["status"]["observedGeneration"] == 5)
        assert len(await made.list("replicasets")) == 2
        await made.patch("deployments", "web", {"spec": {"paused": False}})
        await _rolled_out(made)
        images = [
            each["spec"]["template"]["spec"]["containers"][0]["image"]
            for each in await made.until_listed("replicasets", lambda sets: len(sets) == 2)
        ]
        assert sorted(images) == ["missing:404", "nginx:3"], "revision 1 is beyond the limit of 1"


async def test_recreate_stops_old_pods_first(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("deployments", workload(replicas=2, strategy={"type": "Recreate"}))
        await _rolled_out(made)
        old = await made.pods(2)
        blocked = {"metadata": {"finalizers": ["test/blocked"]}}
        for pod in old:
            await made.patch("pods", pod["metadata"]["name"], blocked)
        await made.patch("deployments", "web", {"spec": {"template": template("nginx:2")}})
        await made.until_listed("pods", lambda pods: all(pod["metadata"].get("deletionTimestamp") for pod in pods))
        assert _sizes(await made.list("replicasets")) == [0], "no new ReplicaSet while old pods run"
        for pod in old:
            await made.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
        await made.until_listed("replicasets", lambda sets: _sizes(sets) == [0, 2])
        await made.set_ready(*await made.pods(2))
        await _rolled_out(made)


async def test_progress_deadline(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("deployments", workload(replicas=1, progressDeadlineSeconds=5))
        progressing = condition(
            await made.until("deployments", "web", lambda found: condition(found, "Progressing")), "Progressing"
        )
        assert progressing["reason"] in ("NewReplicaSetCreated", "ReplicaSetUpdated")
        await made.pods(1)
        await made.until("deployments", "web", lambda found: found["status"].get("updatedReplicas") == 1)
        made.ask.now_s += 6
        await made.patch("deployments", "web", {"metadata": {"annotations": {"touched": "1"}}})
        late = await made.until(
            "deployments", "web", lambda found: condition(found, "Progressing")["reason"] == "ProgressDeadlineExceeded"
        )
        (replica_set,) = await made.list("replicasets")
        message = f'ReplicaSet "{replica_set["metadata"]["name"]}" has timed out progressing.'
        assert condition(late, "Progressing")["message"] == message
        await _rolled_out(made)


async def test_orphaned_replica_sets_are_adopted(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("deployments", workload())
        await _rolled_out(made)
        await made.delete("deployments", "web", propagationPolicy="Orphan")
        sets = await made.until_listed("replicasets", lambda sets: not sets[0]["metadata"].get("ownerReferences"))
        created = await made.create("deployments", workload())
        adopted = await made.until_listed("replicasets", lambda sets: sets[0]["metadata"].get("ownerReferences"))
        assert [each["metadata"]["uid"] for each in adopted] == [sets[0]["metadata"]["uid"]]
        (reference,) = adopted[0]["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["controller"]) == (created["metadata"]["uid"], True)
        await made.delete("deployments", "web", propagationPolicy="Foreground")
        await made.until_listed("deployments", lambda found: not found)
        assert await made.list("replicasets") == []


async def test_a_taken_name_counts_as_a_collision(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("deployments", workload())
        await _rolled_out(made)
        (first,) = await made.list("replicasets")
        await made.delete("deployments", "web", propagationPolicy="Orphan")
        await made.until_listed("replicasets", lambda sets: not sets[0]["metadata"].get("ownerReferences"))
        # The orphan keeps the name, but no longer matches the selector.
        await made.patch("replicasets", first["metadata"]["name"], {"metadata": {"labels": {"app": "other"}}})
        await made.create("deployments", workload())
        found = await made.until("deployments", "web", lambda found: found.get("status", {}).get("collisionCount"))
        assert found["status"]["collisionCount"] == 1
        sets = await made.until_listed("replicasets", lambda sets: len(sets) == 2)
        assert len({each["metadata"]["name"] for each in sets}) == 2


async def test_replica_sets_adopt_release_and_report_failures(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        orphan = {"metadata": {"name": "alone", "labels": {"app": "web"}}, "spec": template()["spec"]}
        await made.create("pods", orphan)
        await made.create("replicasets", workload("rs", replicas=1))
        adopted = await made.until("pods", "alone", lambda pod: pod["metadata"].get("ownerReferences"))
        assert adopted["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        assert len(await made.list("pods")) == 1
        await made.patch("pods", "alone", {"metadata": {"labels": {"app": "other"}}})
        await made.until("pods", "alone", lambda pod: not pod["metadata"].get("ownerReferences"))
        await made.pods(2)
        await made.patch("replicasets", "rs", {"spec": {"minReadySeconds": 30}})
        pods = [pod for pod in await made.pods(2) if pod["metadata"]["name"] != "alone"]
        await made.set_ready(*pods)
        found = await made.until("replicasets", "rs", lambda found: found["status"].get("readyReplicas"))
        assert "availableReplicas" not in found["status"]
        made.ask.now_s += 30
        await made.patch("replicasets", "rs", {"metadata": {"annotations": {"touched": "1"}}})
        await made.until("replicasets", "rs", lambda found: found["status"].get("availableReplicas") == 1)


async def test_replica_set_and_replication_controller_report_an_exceeded_quota(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
        await made.until("resourcequotas", "q", lambda found: (found.get("status") or {}).get("used"))
        controller = {"metadata": {"name": "rc"}, "spec": {"replicas": 3, "template": template()}}
        made_rc = await made.create("replicationcontrollers", controller)
        assert made_rc["spec"]["selector"] == {"app": "web"}
        found = await made.until("replicationcontrollers", "rc", lambda found: condition(found, "ReplicaFailure"))
        failure = condition(found, "ReplicaFailure")
        assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
        assert "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in failure["message"]
        reasons = {reason for reason, _ in await made.events("ReplicationController", "rc")}
        assert reasons == {"SuccessfulCreate", "FailedCreate"}
        await made.patch("replicationcontrollers", "rc", {"spec": {"replicas": 2}}, "scale")
        await made.until("replicationcontrollers", "rc", lambda found: not condition(found, "ReplicaFailure"))
        scale = await made.ask.ok("GET", "/api/v1/namespaces/default/replicationcontrollers/rc/scale")
        assert scale["status"] == {"replicas": 2, "selector": "app=web"}
