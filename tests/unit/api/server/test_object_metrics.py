"""/metrics/objects: the series of kube-state-metrics, read back by Prometheus' own parser."""

from __future__ import annotations

import json
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.api.server.metrics import metrics_service
from tests.unit.api.api_client import PODS, api


async def test_pods_nodes_and_owners(tmp_path: Path) -> None:
    async with api(tmp_path) as ask, metrics_service(ask.app):
        pod = {
            "metadata": {"name": "web", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}]},
            "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {
                "requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}}]},
        }  # fmt: skip
        assert (await ask("POST", PODS, pod)).code == 201
        node = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}
        assert (await ask("POST", "/api/v1/nodes", node)).code == 201
        page = await ask("GET", "/metrics/objects")
        found = {
            (
                sample.name,
                *(value for _, value in sorted(sample.labels.items()) if value and len(value) != 36),
            ): sample.value
            for family in text_string_to_metric_families(page.body.decode())
            for sample in family.samples
        }
        assert found["kube_pod_container_resource_requests", "c", "default", "web", "cpu", "core"] == 0.25
        assert found["kube_pod_container_resource_requests", "c", "default", "web", "memory", "byte"] == 64 << 20
        assert found["kube_pod_container_resource_limits", "c", "default", "web", "memory", "byte"] == 128 << 20
        assert found["kube_pod_owner", "default", "true", "ReplicaSet", "web-1", "web"] == 1
        assert found["kube_pod_status_phase", "default", "Pending", "web"] == 1
        assert found["kube_pod_status_phase", "default", "Running", "web"] == 0
        assert found["kube_node_status_capacity", "n1", "cpu", "core"] == 4
        assert found["kube_node_status_capacity", "n1", "pods", "integer"] == 110
        assert found["kube_node_spec_unschedulable", "n1"] == 0
        targets = json.loads((await ask("GET", "/metrics/targets")).body)
        assert [target["labels"] for target in targets] == [{"node": "n1"}]
    assert not {"/metrics", "/metrics/objects", "/metrics/targets"} & set(ask.app.pages.added)
