"""Pod affinity and spread in the running scheduler: a real API server in the same process, real requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_documents_scheduler import Cluster, scheduled

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
WEB = {"matchLabels": {"app": "web"}}


def web(name: str, **spec: Any) -> Json:
    metadata = {"name": name, "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def required(kind: str) -> Json:
    term = {"labelSelector": WEB, "topologyKey": ZONE}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


async def two_zones(cluster: Cluster) -> None:
    for zone in ("a", "b"):
        await cluster.node(f"node-{zone}", SIZE, {ZONE: zone, "kubernetes.io/hostname": f"node-{zone}"})


@pytest.mark.parametrize("profile", ["documents", "1.36"])
async def test_anti_affinity_leaves_no_place_for_the_third(tmp_path: Path, profile: str) -> None:
    async with scheduled(tmp_path, profile) as tried:
        await two_zones(tried)
        for name in ("one", "two"):
            await tried.create(web(name, **required("podAntiAffinity")))
        places = [await tried.placed(name) for name in ("one", "two")]
        assert sorted(places) == ["node-a", "node-b"]
        await tried.create(web("three", **required("podAntiAffinity")))
        message = await tried.refused("three")
        assert message.startswith("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
        await tried.ask.ok("DELETE", "/api/v1/namespaces/default/pods/one?gracePeriodSeconds=0")
        assert await tried.placed("three") == places[0]


async def test_affinity_waits_for_the_pod_it_names(tmp_path: Path) -> None:
    async with scheduled(tmp_path, "1.36") as tried:
        await two_zones(tried)
        waiting = web("friend", **required("podAffinity"))
        waiting["metadata"]["labels"] = {"app": "db"}
        await tried.create(waiting)
        assert "2 node(s) didn't match pod affinity rules" in await tried.refused("friend")
        await tried.create(web("first", nodeName="node-b"))
        assert await tried.placed("friend") == "node-b"


async def test_pods_are_spread(tmp_path: Path) -> None:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    async with scheduled(tmp_path, "1.36") as tried:
        await two_zones(tried)
        for number in range(4):
            await tried.create(web(f"web-{number}", topologySpreadConstraints=[constraint]))
        places = [await tried.placed(f"web-{number}") for number in range(4)]
        assert sorted(places) == ["node-a", "node-a", "node-b", "node-b"]


async def test_pods_of_a_replica_set_are_spread_without_asking(tmp_path: Path) -> None:
    """The large node has more room, and would get them all."""
    async with scheduled(tmp_path, "1.36") as tried:
        for name, cpu, memory in (("large", "64", "128Gi"), ("small", "4", "8Gi")):
            await tried.node(name, {**SIZE, "cpu": cpu, "memory": memory}, {"kubernetes.io/hostname": name})
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 0, "selector": WEB, "template": template}
        made = await tried.ask.ok(
            "POST", "/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": "web"}, "spec": spec}
        )
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": made["metadata"]["uid"]}
        for number in range(3):
            await tried.create(web(f"web-{number}", nodeName="large"))
        await tried.create(web("alone"))
        assert await tried.placed("alone") == "large"
        owned = web("owned")
        owned["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await tried.create(owned)
        assert await tried.placed("owned") == "small"
