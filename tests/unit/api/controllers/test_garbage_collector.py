"""Which dependents go with their owner: as the suite's tests of the garbage collector ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.api.controllers.workloads import PATHS, Json, workloads

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


def controller(name: str, replicas: int = 2, app: str = "web") -> Json:
    template = {**TEMPLATE, "metadata": {"labels": {"app": app}}}
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"app": app}, "template": template}}


def job() -> Json:
    spec = {**TEMPLATE["spec"], "restartPolicy": "Never"}
    return {"metadata": {"name": "once"}, "spec": {"parallelism": 2, "completions": 2, "template": {"spec": spec}}}


@pytest.mark.parametrize("plural", ["replicationcontrollers", "jobs"])
@pytest.mark.parametrize("options", [{}, {"orphanDependents": True}], ids=["default", "orphan"])
async def test_pods_stay_by_default(tmp_path: Path, plural: str, options: Json) -> None:
    """e2e: Garbage collector should orphan pods created by rc if deleteOptions.OrphanDependents is nil."""
    async with workloads(tmp_path) as made:
        owner = await made.create(plural, controller("web") if plural != "jobs" else job())
        await made.until_listed("pods", lambda pods: len(pods) == 2)
        await made.delete(plural, owner["metadata"]["name"], **options)
        await made.until_listed(plural, lambda owners: not owners)
        pods = await made.list("pods")
        assert [pod["metadata"].get("ownerReferences") for pod in pods] == [None, None]
        assert not any(pod["metadata"].get("deletionTimestamp") for pod in pods)


@pytest.mark.parametrize("options", [{"propagationPolicy": "Background"}, {"orphanDependents": False}])
async def test_pods_go_where_it_is_asked_for(tmp_path: Path, options: Json) -> None:
    async with workloads(tmp_path) as made:
        await made.create("replicationcontrollers", controller("web"))
        await made.until_listed("pods", lambda pods: len(pods) == 2)
        await made.delete("replicationcontrollers", "web", **options)
        await made.until_listed("pods", lambda pods: not pods)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_pods_of_a_cron_job_s_jobs_go_with_it(tmp_path: Path, policy: str) -> None:
    async with workloads(tmp_path) as made:
        template = {"spec": job()["spec"]}
        spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template}
        cron = await made.create("cronjobs", {"metadata": {"name": "often"}, "spec": spec})
        reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "often", "uid": cron["metadata"]["uid"]}
        owned = {"ownerReferences": [{**reference, "blockOwnerDeletion": True}]}
        await made.create("jobs", {**job(), "metadata": {"name": "once", **owned}})
        await made.until_listed("pods", lambda pods: len(pods) == 2)
        await made.delete("cronjobs", "often", propagationPolicy=policy)
        for plural in ("pods", "jobs", "cronjobs"):
            await made.until_listed(plural, lambda found: not found)


async def test_a_dependent_with_another_owner_stays(tmp_path: Path) -> None:
    """e2e: … should not delete dependents that have both valid owner and owner that's waiting for dependents."""
    async with workloads(tmp_path) as made:
        gone = await made.create("replicationcontrollers", controller("gone"))
        stays = await made.create("replicationcontrollers", controller("stays", 0, "other"))
        pods = await made.until_listed("pods", lambda pods: len(pods) == 2)
        uid = stays["metadata"]["uid"]
        second = {"apiVersion": "v1", "kind": "ReplicationController", "name": "stays", "uid": uid}
        shared = pods[0]["metadata"]
        references = [*shared["ownerReferences"], second]
        await made.patch("pods", shared["name"], {"metadata": {"ownerReferences": references}})
        await made.delete("replicationcontrollers", "gone", propagationPolicy="Foreground")
        await made.until_listed("replicationcontrollers", lambda owners: len(owners) == 1)
        (left,) = await made.list("pods")
        assert (left["metadata"]["name"], left["metadata"].get("deletionTimestamp")) == (shared["name"], None)
        assert [each["uid"] for each in left["metadata"]["ownerReferences"]] == [uid]
        assert gone["metadata"]["uid"] != uid


async def test_owners_in_a_circle(tmp_path: Path) -> None:
    """e2e: Garbage collector should not be blocked by dependency circle."""
    async with workloads(tmp_path) as made:
        names = ("one", "two", "three")
        uids = {
            name: (await made.create("configmaps", {"metadata": {"name": name}}))["metadata"]["uid"] for name in names
        }
        for owner, name in zip(("three", "one", "two"), names, strict=True):
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uids[owner]}
            owned = {"ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}]}
            await made.patch("configmaps", name, {"metadata": owned})
        await made.delete("configmaps", "one", propagationPolicy="Foreground")
        await made.until_listed(
            "configmaps", lambda found: not {each["metadata"]["name"] for each in found} & set(names)
        )


async def test_a_policy_takes_the_place_of_another(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        kept = {"finalizers": ["orphan", "example.com/kept"]}
        await made.create("replicationcontrollers", {**controller("web", 0), "metadata": {"name": "web", **kept}})
        path = f"{PATHS['replicationcontrollers']}/web"
        marked = await made.ask.ok("DELETE", path, {"propagationPolicy": "Background"})
        assert marked["metadata"]["finalizers"] == ["example.com/kept"]


async def test_both_options_are_refused(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        await made.create("replicationcontrollers", controller("web", 0))
        path = f"{PATHS['replicationcontrollers']}/web"
        said = await made.ask("DELETE", path, {"propagationPolicy": "Orphan", "orphanDependents": True})
        assert said.code == 422
        assert "orphanDependents and deletionPropagation cannot be both set" in said.message
