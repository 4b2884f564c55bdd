"""binding, eviction, status and scale (05 A4, B6 Subresources)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import JSON_PATCH, MERGE, PODS, ApiClient, ApiReply, api, pod

DEMO = f"{PODS}/demo"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def bind(ask: ApiClient, node: str = "n1", path: str = f"{DEMO}/binding", **metadata: Any) -> ApiReply:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "demo", **metadata},
        "target": {"kind": "Node", "name": node},
    }
    return await ask("POST", path, body)


@pytest.mark.parametrize("path", [f"{DEMO}/binding", "/api/v1/namespaces/default/bindings"])
async def test_binding(tmp_path: Path, path: str) -> None:
    async with api(tmp_path, "1.36") as ask:
        await ask.ok("POST", PODS, pod())
        await ask.ok("PATCH", f"{DEMO}/status", {"status": {"nominatedNodeName": "n9"}}, MERGE)
        said = await bind(ask, path=path, annotations={"a": "1"}, labels={"l": "2"})
        assert (said.code, said.json) == (
            201,
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
        )
        found = await ask.ok("GET", DEMO)
        assert found["spec"]["nodeName"] == "n1"
        assert (found["metadata"]["annotations"], found["metadata"]["labels"]) == ({"a": "1"}, {"l": "2"})
        assert found["metadata"]["generation"] == 1
        assert "nominatedNodeName" not in found["status"]
        (condition,) = found["status"]["conditions"]
        assert condition == {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": "2026-11-16T00:00:00Z",
        }


async def test_binding_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", PODS, pod())
        prefix = 'Operation cannot be fulfilled on pods/binding "demo": '
        said = await bind(ask, uid="other")
        assert (said.code, said.json["reason"]) == (409, "Conflict")
        assert (await bind(ask, name="x")).message == "name in URL does not match name in Binding object"
        said = await bind(ask, node="")
        assert (said.code, said.message, "reason" in said.json) == (500, "target.name: Required value", False)
        assert (await bind(ask, uid=made["metadata"]["uid"])).code == 201
        said = await bind(ask)
        assert (said.code, said.message) == (409, f'{prefix}pod demo is already assigned to node "n1"')
        assert said.json["details"] == {"name": "demo", "kind": "pods/binding"}
        await ask.ok("DELETE", DEMO)
        assert (await bind(ask)).message == f"{prefix}pod demo is being deleted, cannot be assigned to a host"


async def test_gated_pods(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", PODS, pod(schedulingGates=[{"name": "g"}]))
        (condition,) = made["status"]["conditions"]
        assert (condition["reason"], condition["message"]) == (
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
        )
        assert (await bind(ask)).message.endswith("pod demo has non-empty .spec.schedulingGates")
        found = await ask.ok("PATCH", DEMO, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
        assert found["metadata"]["generation"] == 2
        assert (await bind(ask)).code == 201


async def evict(ask: ApiClient, version: str = "policy/v1", name: str = "demo", **options: Any) -> ApiReply:
    body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await ask("POST", f"{DEMO}/eviction", body)


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
async def test_eviction(tmp_path: Path, version: str) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod(nodeName="n1"))
        assert (await evict(ask, version, "x")).message == "name in URL does not match name in Eviction object"
        said = await evict(ask, version, gracePeriodSeconds=5)
        assert (said.code, said.json["status"]) == (201, "Success")
        evicted = await ask.ok("GET", DEMO)
        assert evicted["metadata"]["deletionGracePeriodSeconds"] == 5
        (condition,) = evicted["status"]["conditions"]
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }


async def test_an_eviction_with_another_version_changes_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", PODS, pod(nodeName="n1"))
        assert (await evict(ask, preconditions={"resourceVersion": "1"})).code == 409
        assert (await evict(ask, dryRun=["All"])).code == 201
        assert await ask.ok("GET", DEMO) == made
        version = made["metadata"]["resourceVersion"]
        assert (await evict(ask, preconditions={"resourceVersion": version})).code == 201
        assert (await ask.ok("GET", DEMO))["metadata"]["deletionTimestamp"]


async def test_eviction_of_an_unbound_pod_is_at_once(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod())
        assert (await evict(ask)).code == 201
        assert (await ask("GET", DEMO)).code == 404
        assert (await evict(ask)).code == 404


async def a_protected_pod(ask: ApiClient, min_available: int) -> None:
    """`demo`, running and ready, and its disruption budget `pdb`."""
    sent = pod(nodeName="n1")
    sent["metadata"]["labels"] = {"a": "b"}
    await ask.ok("POST", PODS, sent)
    ready = [{"type": "Ready", "status": "True"}]
    await ask.ok("PATCH", f"{DEMO}/status", {"status": {"phase": "Running", "conditions": ready}}, MERGE)
    spec = {"minAvailable": min_available, "selector": {"matchLabels": {"a": "b"}}}
    await ask.ok("POST", BUDGETS, {"metadata": {"name": "pdb"}, "spec": spec})


@pytest.mark.parametrize(("release", "named"), [("1.36", False), ("1.37", True)])
async def test_a_budget_with_too_many_evictions_forbids_the_next(tmp_path: Path, release: str, named: bool) -> None:
    async with api(tmp_path, profile=release) as ask:
        await a_protected_pod(ask, min_available=0)
        pending = {f"p{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
        counts = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
        status = {"observedGeneration": 1, "disruptedPods": pending, **counts}
        await ask.ok("PATCH", f"{BUDGETS}/pdb/status", {"status": status}, MERGE)
        said = await evict(ask)
        assert (said.code, said.json["reason"]) == (403, "Forbidden")
        assert said.message == (
            'poddisruptionbudget.policy "pdb" is forbidden: DisruptedPods map too big - too many evictions not confirmed '
            "by PDB controller"
        )
        causes = said.json["details"].get("causes", ())
        assert [each["reason"] for each in causes] == ["DisruptionBudget"] * named


async def test_budgets_protect(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await a_protected_pod(ask, min_available=1)
        said = await evict(ask)
        assert (said.code, said.json["reason"], said.headers["retry-after"]) == (429, "TooManyRequests", "10")
        assert said.json["details"]["causes"] == [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget pdb is still being processed by the server.",
            }
        ]
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        await ask.ok("PATCH", f"{BUDGETS}/pdb/status", {"status": status}, MERGE)
        said = await evict(ask)
        assert said.message == "Cannot evict pod as it would violate the pod's disruption budget."
        assert (
            said.json["details"]["causes"][0]["message"]
            == "The disruption budget pdb needs 1 healthy pods and has 1 currently"
        )
        await ask.ok("PATCH", f"{BUDGETS}/pdb/status", {"status": {"disruptionsAllowed": 1}}, MERGE)
        assert (await evict(ask)).code == 201
        budget = (await ask.ok("GET", f"{BUDGETS}/pdb"))["status"]
        assert (budget["disruptionsAllowed"], list(budget["disruptedPods"])) == (0, ["demo"])


async def status(ask: ApiClient, **parts: Any) -> ApiReply:
    return await ask("PATCH", f"{DEMO}/status", {"status": parts}, MERGE)


async def test_status_takes_status_labels_and_finalizers(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod())
        patch = {
            "metadata": {
                "labels": {"a": "b"},
                "annotations": {"c": "d"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}],
            },
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        }
        found = await ask.ok("PATCH", f"{DEMO}/status", patch, MERGE)
        assert (found["metadata"]["labels"], found["metadata"]["annotations"]) == ({"a": "b"}, {"c": "d"})
        assert "ownerReferences" not in found["metadata"]
        assert "nodeName" not in found["spec"]
        assert (found["status"]["phase"], found["status"]["qosClass"], found["metadata"]["generation"]) == (
            "Running",
            "BestEffort",
            1,
        )
        found = await ask.ok("PATCH", DEMO, {"status": {"phase": "Failed"}}, MERGE)
        assert found["status"]["phase"] == "Running"


async def test_status_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod(nodeName="n1", restartPolicy="Never"))
        said = await status(ask, qosClass="Guaranteed")
        assert said.message == 'Pod "demo" is invalid: status.qosClass: Invalid value: "Guaranteed": field is immutable'
        assert (await status(ask, nominatedNodeName="n2")).code == 422
        assert (await status(ask, podIP="nonsense")).code == 422
        found = (await status(ask, podIP="10.0.0.7")).json
        assert found["status"]["podIPs"] == [{"ip": "10.0.0.7"}]
        container = {"name": "c", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        ended = {**container, "state": {"terminated": {"exitCode": 0}}}
        assert (await status(ask, containerStatuses=[ended])).code == 200
        said = await status(ask, containerStatuses=[{**container, "state": {"running": {}}}])
        assert said.message == (
            'Pod "demo" is invalid: status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state'
        )


def deployment() -> Any:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }


async def test_scale(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", DEPLOYMENTS, deployment())
        path = f"{DEPLOYMENTS}/web/scale"
        scale = await ask.ok("GET", path)
        assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
        assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "a=b"})
        scale = await ask.ok("PATCH", path, {"spec": {"replicas": 5}}, MERGE)
        assert scale["spec"] == {"replicas": 5}
        found = await ask.ok("GET", f"{DEPLOYMENTS}/web")
        assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (5, 2)
        scale["spec"]["replicas"] = 7
        assert (await ask.ok("PUT", path, scale))["spec"] == {"replicas": 7}
        scale["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
        assert (await ask("PUT", path, scale)).code == 409
        assert (await ask("PATCH", path, {"spec": {"replicas": -1}}, MERGE)).code == 422


async def test_workloads_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        wrong = deployment()
        wrong["spec"]["template"]["metadata"]["labels"] = {"a": "c"}
        said = await ask("POST", DEPLOYMENTS, wrong)
        assert (
            'spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`'
            in said.message
        )
        await ask.ok("POST", DEPLOYMENTS, deployment())
        patch = {"spec": {"selector": {"matchLabels": {"x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}}}}
        said = await ask("PATCH", f"{DEPLOYMENTS}/web", patch, MERGE)
        assert said.code == 422
        assert "spec.selector: Invalid value" in said.message
        job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}}
        said = await ask("POST", "/apis/batch/v1/namespaces/default/jobs", job)
        assert 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"' in said.message


async def test_a_job_selects_its_pods_by_its_uid(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        job = {
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}},
        }
        found = await ask.ok("POST", "/apis/batch/v1/namespaces/default/jobs", job)
        uid = found["metadata"]["uid"]
        assert found["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        assert found["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"


async def test_two_budgets_for_one_pod(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, {**pod(nodeName="n1"), "metadata": {"name": "demo", "labels": {"app": "a"}}})
        await ask.ok("PATCH", f"{DEMO}/status", {"status": {"phase": "Running"}}, MERGE)
        for name in ("one", "two"):
            body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}
            await ask.ok("POST", BUDGETS, body)
        said = await evict(ask)
        assert (said.code, said.json["reason"], said.message) == (
            409, "Conflict", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )  # fmt: skip
        assert "deletionTimestamp" not in (await ask.ok("GET", DEMO))["metadata"]
