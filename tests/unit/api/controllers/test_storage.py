"""Claims and volumes on a whole API server with its controllers: binding, protection, quota, StatefulSets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.server.services import controllers
from tests.unit.api.api_client import MERGE, TABLE, ApiClient, api

VOLUMES, CLAIMS = "/api/v1/persistentvolumes", "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PODS = "/api/v1/namespaces/default/pods"


def volume(name: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    made = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, **spec}
    return {"metadata": {"name": name}, "spec": made}


def claim(name: str = "c", size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    made = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": {"name": name}, "spec": made}


async def until(ask: ApiClient, path: str, holds: Callable[[Any], bool]) -> Any:
    """Reads an object again and again until it holds; the test's own time limit ends it."""
    async with asyncio.timeout(60):
        while True:
            said = await ask("GET", path)
            if said.code == 200 and holds(said.json):
                return said.json
            await asyncio.sleep(0.02)


async def gone(ask: ApiClient, path: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if (await ask("GET", path)).code == 404:
                return
            await asyncio.sleep(0.02)


def _phase(phase: str) -> Callable[[Any], bool]:
    return lambda found: (found.get("status") or {}).get("phase") == phase


async def test_the_smallest_volume_that_fits_is_bound(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        for name, size in (("large", "5Gi"), ("small", "512Mi"), ("right", "2Gi")):
            await ask.ok("POST", VOLUMES, volume(name, size))
        await until(ask, f"{VOLUMES}/right", _phase("Available"))
        made = await ask.ok("POST", CLAIMS, claim())
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        assert (made["spec"]["volumeMode"], made["status"]["phase"]) == ("Filesystem", "Pending")
        bound = await until(ask, f"{CLAIMS}/c", _phase("Bound"))
        assert bound["spec"]["volumeName"] == "right"
        assert bound["status"]["capacity"] == {"storage": "2Gi"}
        assert bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
        found = await until(ask, f"{VOLUMES}/right", _phase("Bound"))
        assert found["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
        said = await ask("GET", CLAIMS, accept=TABLE)
        assert said.json["rows"][0]["cells"][:5] == ["c", "Bound", "right", "2Gi", "RWO"]
        await ask("DELETE", f"{CLAIMS}/c")
        await gone(ask, f"{CLAIMS}/c")
        await until(ask, f"{VOLUMES}/right", _phase("Released"))
        await ask("DELETE", f"{VOLUMES}/right")
        await gone(ask, f"{VOLUMES}/right")


async def test_what_is_in_use_is_protected(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        await ask.ok("POST", VOLUMES, volume("v"))
        await ask.ok("POST", CLAIMS, claim())
        await until(ask, f"{CLAIMS}/c", _phase("Bound"))
        node = {"metadata": {"name": "n"}}
        await ask.ok("POST", "/api/v1/nodes", node)
        mounted = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
        spec = {"nodeName": "n", "volumes": mounted, "containers": [{"name": "a", "image": "i"}]}
        await ask.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
        await ask("DELETE", f"{CLAIMS}/c")
        await ask("DELETE", f"{VOLUMES}/v")
        kept = await until(ask, f"{CLAIMS}/c", lambda found: bool(found["metadata"].get("deletionTimestamp")))
        assert kept["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        assert (await ask.ok("GET", f"{VOLUMES}/v"))["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
        await ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        await gone(ask, f"{CLAIMS}/c")
        await gone(ask, f"{VOLUMES}/v")


async def _said(ask: ApiClient, name: str, reason: str) -> str:
    async with asyncio.timeout(60):
        while True:
            events = (await ask.ok("GET", "/api/v1/namespaces/default/events"))["items"]
            for event in events:
                if (event["involvedObject"]["name"], event["reason"]) == (name, reason):
                    return str(event["message"])
            await asyncio.sleep(0.02)


async def test_what_is_said_about_claims_that_wait(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        await ask.ok("POST", CLASSES, {"metadata": {"name": "csi"}, "provisioner": "disk.example.com"})
        late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        await ask.ok("POST", CLASSES, {"metadata": {"name": "late"}, **late})
        for name, reason, text in (
            ("", "FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
            ("csi", "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner"),
            ("late", "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
            ("absent", "ProvisioningFailed", 'storageclass.storage.k8s.io "absent" not found'),
        ):
            await ask.ok("POST", CLAIMS, claim(f"c{name}", storageClassName=name))
            assert text in await _said(ask, f"c{name}", reason)


async def test_a_claim_that_waits_is_bound_where_its_pod_runs(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        await ask.ok("POST", CLASSES, {"metadata": {"name": "late", "annotations": annotations}, **late})
        for name in ("a", "b"):
            await ask.ok("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"at": name}}})
            term = {"matchExpressions": [{"key": "at", "operator": "In", "values": [name]}]}
            affinity = {"required": {"nodeSelectorTerms": [term]}}
            local = volume(f"on-{name}", storageClassName="late", local={"path": "/d"}, nodeAffinity=affinity)
            del local["spec"]["hostPath"]
            await ask.ok("POST", VOLUMES, local)
        made = await ask.ok("POST", CLAIMS, claim())
        assert made["spec"]["storageClassName"] == "late"  # the default class
        await _said(ask, "c", "WaitForFirstConsumer")
        mounted = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
        spec = {"nodeName": "b", "volumes": mounted, "containers": [{"name": "a", "image": "i"}]}
        await ask.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
        assert (await until(ask, f"{CLAIMS}/c", _phase("Bound")))["spec"]["volumeName"] == "on-b"


async def test_quotas_of_claims(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        gold = "gold.storageclass.storage.k8s.io"
        hard = {
            "persistentvolumeclaims": "2",
            "requests.storage": "3Gi",
            f"{gold}/requests.storage": "1Gi",
            f"{gold}/persistentvolumeclaims": "1",
        }
        quotas = "/api/v1/namespaces/default/resourcequotas"
        await ask.ok("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        await until(ask, f"{quotas}/q", lambda found: len((found.get("status") or {}).get("used") or {}) == 4)
        await ask.ok("POST", CLAIMS, claim("one", storageClassName="gold"))
        used = (await ask.ok("GET", f"{quotas}/q"))["status"]["used"]
        assert used == {
            "persistentvolumeclaims": "1",
            "requests.storage": "1Gi",
            f"{gold}/requests.storage": "1Gi",
            f"{gold}/persistentvolumeclaims": "1",
        }
        said = await ask("POST", CLAIMS, claim("two", storageClassName="gold"))
        assert said.code == 403 and f"exceeded quota: q, requested: {gold}/persistentvolumeclaims=1" in said.message
        said = await ask("POST", CLAIMS, claim("three", "5Gi"))
        assert said.code == 403 and "requested: requests.storage=5Gi, used: requests.storage=1Gi" in said.message
        await ask("DELETE", f"{CLAIMS}/one")
        await until(ask, f"{quotas}/q", lambda found: found["status"]["used"]["requests.storage"] == "0")


async def test_quotas_by_volume_attributes_class(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        term = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]}
        spec = {"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [term]}}
        quotas = "/api/v1/namespaces/default/resourcequotas"
        await ask.ok("POST", quotas, {"metadata": {"name": "q"}, "spec": spec})
        await until(ask, f"{quotas}/q", lambda found: bool((found.get("status") or {}).get("used")))
        await ask.ok("POST", CLAIMS, claim("slow", volumeAttributesClassName="slow"))
        await ask.ok("POST", CLAIMS, claim("one", volumeAttributesClassName="fast"))
        said = await ask("POST", CLAIMS, claim("two", volumeAttributesClassName="fast"))
        assert said.code == 403 and "exceeded quota: q" in said.message


async def test_a_claim_counts_for_the_class_in_use_and_the_wanted_one(tmp_path: Path) -> None:
    """e2e: ResourceQuota's volume attributes class scope against a pvc with different volume attributes class."""
    quotas = "/api/v1/namespaces/default/resourcequotas"

    def quota(name: str) -> dict[str, Any]:
        term = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": [name]}
        spec = {"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [term]}}
        return {"metadata": {"name": name}, "spec": spec}

    def used(count: int) -> Callable[[Any], bool]:
        return lambda found: (found.get("status") or {}).get("used") == {"persistentvolumeclaims": str(count)}

    async with api(tmp_path, services=(controllers,)) as ask:
        for name in ("gold", "silver"):
            await ask.ok("POST", quotas, quota(name))
            await until(ask, f"{quotas}/{name}", used(0))
        csi = {"driver": "d.example.com", "volumeHandle": "h"}
        backed = volume("v", volumeAttributesClassName="gold", csi=csi)
        backed["spec"].pop("hostPath", None)
        await ask.ok("POST", VOLUMES, backed)
        await ask.ok("POST", CLAIMS, claim("c", volumeAttributesClassName="gold"))
        await until(ask, f"{CLAIMS}/c", lambda found: found["status"].get("phase") == "Bound")
        await ask.ok("PATCH", f"{CLAIMS}/c", {"spec": {"volumeAttributesClassName": "silver"}}, MERGE)
        await until(ask, f"{quotas}/silver", used(1))
        await ask.ok("PATCH", f"{VOLUMES}/v", {"metadata": {"labels": {"seen": "again"}}}, MERGE)
        await until(ask, f"{quotas}/gold", used(1))
        kept = await ask.ok("GET", f"{CLAIMS}/c")
        assert kept["status"]["currentVolumeAttributesClassName"] == "gold"
        done = {"status": {"currentVolumeAttributesClassName": "silver"}}
        await ask.ok("PATCH", f"{CLAIMS}/c/status", done, MERGE)
        await until(ask, f"{quotas}/gold", used(0))


def stateful_set(**spec: Any) -> dict[str, Any]:
    labels = {"app": "s"}
    return {
        "metadata": {"name": "s"},
        "spec": {
            "selector": {"matchLabels": labels},
            "serviceName": "s",
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "i"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim()["spec"]}],
            **spec,
        },
    }


SETS = "/apis/apps/v1/namespaces/default/statefulsets"


async def test_pods_of_a_stateful_set_have_claims(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
        await ask.ok("POST", SETS, stateful_set(persistentVolumeClaimRetentionPolicy=policy))
        for ordinal in (0, 1):
            found = await until(ask, f"{CLAIMS}/data-s-{ordinal}", lambda found: True)
            assert found["metadata"]["labels"] == {"app": "s"}
            pod = await until(ask, f"{PODS}/s-{ordinal}", lambda found: True)
            expected = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-s-{ordinal}"}}
            assert pod["spec"]["volumes"][0] == expected
        await ask.ok("PATCH", f"{SETS}/s", {"spec": {"replicas": 1}}, MERGE)
        await gone(ask, f"{CLAIMS}/data-s-1")
        await ask("DELETE", f"{SETS}/s")
        await gone(ask, f"{PODS}/s-0")
        await ask.ok("GET", f"{CLAIMS}/data-s-0")


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (CLAIMS, claim(accessModes=[]), "spec.accessModes: Required value: at least 1 access mode is required"),
    (CLAIMS, claim(resources={}), "spec.resources[storage]: Required value"),
    (CLAIMS, claim(size="-1"), "spec.resources[storage]: Invalid value"),
    (VOLUMES, volume("v", hostPath=None), "spec: Required value: must specify a volume type"),
    (VOLUMES, volume("v", local={"path": "/d"}), "spec.local: Forbidden: may not specify more than 1 volume type"),
    (VOLUMES, volume("v", hostPath={"path": "/a/../b"}), "must not contain '..'"),
    (VOLUMES, volume("v", hostPath=None, local={"path": "/d"}), "Local volume requires node affinity"),
    (CLASSES, {"metadata": {"name": "c"}, "provisioner": "p", "volumeBindingMode": "Odd"}, 'Unsupported value: "Odd"'),
]


@pytest.mark.parametrize(("path", "body", "message"), REFUSED, ids=[each[2][:40] for each in REFUSED])
async def test_what_is_refused(tmp_path: Path, path: str, body: dict[str, Any], message: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", path, body)
        assert said.code == 422
        assert message in said.message


async def test_drivers_of_a_node(tmp_path: Path) -> None:
    """They are only stored. A driver keeps its name and node ID; how many volumes it can have may change."""
    async with api(tmp_path) as ask:
        driver = {"name": "a.example.com", "nodeID": "i", "topologyKeys": ["a.example.com/zone"]}
        path = "/apis/storage.k8s.io/v1/csinodes"
        said = await ask("POST", path, {"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}})
        assert (said.code, len(said.warnings)) == (201, 1)
        more = {"spec": {"drivers": [{**driver, "allocatable": {"count": 9}}]}}
        assert (await ask.ok("PATCH", f"{path}/n1", more, MERGE))["spec"] == more["spec"]
        other = await ask("PATCH", f"{path}/n1", {"spec": {"drivers": [{**driver, "nodeID": "j"}]}}, MERGE)
        assert (other.code, "spec.drivers: Invalid value" in other.message) == (422, True)
        (row,) = (await ask.ok("GET", path, accept=TABLE))["rows"]
        assert row["cells"][:2] == ["n1", 1]
