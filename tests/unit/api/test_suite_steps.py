"""What Kubernetes' own suite checks of pods, leases, limit ranges and runtime classes, with the same steps."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.api.api_client import MERGE, PODS, STRATEGIC, api, pod

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LIMITS = "/api/v1/namespaces/default/limitranges"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


async def test_the_generation_of_a_pod(tmp_path: Path) -> None:
    """Pod Generation: a number of the client's own is not taken; tolerations, ephemeral containers and the resources
    count; so does a graceful deletion."""
    body = pod()
    body["metadata"]["generation"] = 100
    body["spec"] |= {"nodeName": "n1", "terminationGracePeriodSeconds": 30}
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", PODS, body)
        assert made["metadata"]["generation"] == 1
        toleration = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
        changed = await ask.ok("PATCH", f"{PODS}/demo", {"spec": {"tolerations": [toleration]}}, STRATEGIC)
        assert changed["metadata"]["generation"] == 2
        debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "busybox"}]}}
        changed = await ask.ok("PATCH", f"{PODS}/demo/ephemeralcontainers", debug, STRATEGIC)
        assert changed["metadata"]["generation"] == 3
        changed = await ask.ok("PATCH", f"{PODS}/demo", {"metadata": {"annotations": {"a": "b"}}}, MERGE)
        assert changed["metadata"]["generation"] == 3
        await ask.ok("DELETE", f"{PODS}/demo")
        deleted = await ask.ok("GET", f"{PODS}/demo")
        assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
        assert deleted["metadata"]["generation"] == 4


async def test_the_life_of_leases(tmp_path: Path) -> None:
    """Lease: lease API should be available."""
    async with api(tmp_path) as ask:
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 30, "acquireTime": "2026-11-18T00:00:00.000000Z"}
        spec |= {"renewTime": "2026-11-18T00:00:05.000000Z", "leaseTransitions": 0}
        made = await ask.ok("POST", LEASES, {"metadata": {"name": "one", "labels": {"set": "x"}}, "spec": spec})
        assert made["spec"] == spec
        other = {**spec, "holderIdentity": "b", "leaseTransitions": 1, "leaseDurationSeconds": 60}
        made = await ask.ok("PUT", f"{LEASES}/one", {**made, "spec": other})
        assert made["spec"] == other
        made = await ask.ok("PATCH", f"{LEASES}/one", {"spec": {"leaseDurationSeconds": 50}}, STRATEGIC)
        assert made["spec"]["leaseDurationSeconds"] == 50
        await ask.ok("POST", LEASES, {"metadata": {"name": "two", "labels": {"set": "x"}}, "spec": spec})
        await ask.ok("DELETE", f"{LEASES}/one")
        await ask.ok("DELETE", f"{LEASES}?labelSelector=set%3Dx")
        assert (await ask.ok("GET", LEASES))["items"] == []


async def test_limit_ranges_by_collection(tmp_path: Path) -> None:
    """LimitRange should list, patch and delete a LimitRange by collection."""
    async with api(tmp_path) as ask:
        item = {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}
        body = {"metadata": {"name": "r", "labels": {"set": "x"}}, "spec": {"limits": [item]}}
        made = await ask.ok("POST", LIMITS, body)
        assert made["spec"]["limits"][0]["default"] == {"cpu": "500m"}
        every = await ask.ok("GET", "/api/v1/limitranges?labelSelector=set%3Dx")
        assert len(every["items"]) == 1
        change = {"metadata": {"labels": {"patched": "yes"}}, "spec": {"limits": [{**item, "min": {"cpu": "49m"}}]}}
        made = await ask.ok("PATCH", f"{LIMITS}/r", change, STRATEGIC)
        assert made["spec"]["limits"][0]["min"] == {"cpu": "49m"}
        await ask.ok("DELETE", f"{LIMITS}?labelSelector=patched%3Dyes")
        assert (await ask.ok("GET", "/api/v1/limitranges"))["items"] == []


async def test_the_life_of_runtime_classes(tmp_path: Path) -> None:
    """RuntimeClass should support RuntimeClasses API operations: also a watch, and a handler that never changes."""
    async with api(tmp_path) as ask:
        for name in ("a", "b"):
            await ask.ok("POST", CLASSES, {"metadata": {"name": name, "labels": {"set": "x"}}, "handler": "runc"})
        assert (await ask("POST", CLASSES, {"metadata": {"name": "a"}, "handler": "runc"})).code == 409
        async with ask.watching(f"{CLASSES}?watch=true&labelSelector=set%3Dx&resourceVersion=0") as watched:
            seen = [(await watched.event())["type"] for _ in range(2)]
            await ask.ok("PATCH", f"{CLASSES}/a", {"metadata": {"annotations": {"p": "1"}}}, MERGE)
            made = await ask.ok("GET", f"{CLASSES}/a")
            await ask.ok("PUT", f"{CLASSES}/a", {**made, "metadata": {**made["metadata"], "annotations": {"p": "2"}}})
            seen += [(await watched.event())["type"] for _ in range(2)]
            await ask.ok("DELETE", f"{CLASSES}/a")
            seen.append((await watched.event())["type"])
        assert seen == ["ADDED", "ADDED", "MODIFIED", "MODIFIED", "DELETED"]
        assert (await ask("PATCH", f"{CLASSES}/b", {"handler": "kata"}, MERGE)).code == 422
        await ask.ok("DELETE", f"{CLASSES}?labelSelector=set%3Dx")
        assert (await ask.ok("GET", CLASSES))["items"] == []


async def test_the_status_of_a_pod(tmp_path: Path) -> None:
    """Pods should patch a pod status; should run through the lifecycle of Pods and PodStatus."""
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod())
        change = {
            "metadata": {"annotations": {"patched": "true"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "message": "Patched", "reason": "E2E"},
        }
        made = await ask.ok("PATCH", f"{PODS}/demo/status", change, STRATEGIC)
        assert (made["status"]["message"], made["status"]["reason"]) == ("Patched", "E2E")
        assert made["metadata"]["annotations"] == {"patched": "true"}
        read = await ask.ok("GET", f"{PODS}/demo/status")
        assert read["status"]["message"] == "Patched"
        read["status"]["conditions"] = [{"type": "Ready", "status": "False"}, {"type": "T", "status": "True"}]
        made = await ask.ok("PUT", f"{PODS}/demo/status", read)
        assert [(each["type"], each["status"]) for each in made["status"]["conditions"]] == [
            ("Ready", "False"),
            ("T", "True"),
        ]
        ignored = json.loads(json.dumps(made))
        ignored["spec"]["containers"][0]["image"] = "other"
        made = await ask.ok("PUT", f"{PODS}/demo/status", ignored)
        assert made["spec"]["containers"][0]["image"] != "other"
