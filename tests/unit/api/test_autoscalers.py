"""Horizontal pod autoscalers, stored as autoscaling/v2 and served as v1, too. The forms are those of kube-apiserver
v1.36.4 for the same objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.api.api_client import MERGE, TABLE, api

V1, V2 = (f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers" for version in ("v1", "v2"))
ALPHA = "autoscaling.alpha.kubernetes.io"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QUEUE = {"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "5"}}}
CONDITION = {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-11-18T10:00:00Z", "reason": "r"}


def autoscaler(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}


async def test_defaults_and_discovery(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        groups = {each["name"]: each for each in (await ask.ok("GET", "/apis"))["groups"]}
        assert [each["version"] for each in groups["autoscaling"]["versions"]] == ["v2", "v1"]
        said = await ask("POST", V2, autoscaler(behavior={"scaleUp": {"selectPolicy": "Disabled"}}))
        assert any("no effect unless a controller" in each for each in said.warnings)
        spec = said.json["spec"]
        eighty = {"type": "Utilization", "averageUtilization": 80}
        assert (spec["minReplicas"], spec["metrics"][0]["resource"]["target"]) == (1, eighty)
        all_at_once = {"type": "Percent", "value": 100, "periodSeconds": 15}
        assert spec["behavior"]["scaleDown"] == {"selectPolicy": "Max", "policies": [all_at_once]}
        assert spec["behavior"]["scaleUp"]["policies"] == [{**all_at_once, "type": "Pods", "value": 4}, all_at_once]
        assert said.json["status"] == {"desiredReplicas": 0, "currentMetrics": None}


async def test_the_other_version_loses_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", V2, autoscaler(metrics=[CPU, QUEUE], behavior={}))
        values = [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "9m"}},
            },
            {"type": "Pods", "pods": {"metric": {"name": "queue"}, "current": {"averageValue": "3"}}},
        ]
        status = {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": values, "conditions": [CONDITION]}
        before = await ask.ok("PATCH", f"{V2}/web/status", {"status": status}, MERGE)
        old = await ask.ok("GET", f"{V1}/web")
        assert old["spec"]["targetCPUUtilizationPercentage"] == 50
        assert old["status"] == {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 40}
        texts = {name: json.loads(text) for name, text in old["metadata"]["annotations"].items()}
        pods = {"metricName": "queue", "targetAverageValue": "5"}
        assert texts[f"{ALPHA}/metrics"] == [{"type": "Pods", "pods": pods}]
        cpu = {"name": "cpu", "currentAverageUtilization": 40, "currentAverageValue": "9m"}
        assert texts[f"{ALPHA}/current-metrics"][0] == {"type": "Resource", "resource": cpu}
        assert texts[f"{ALPHA}/behavior"]["ScaleDown"] == {
            "StabilizationWindowSeconds": None,
            "SelectPolicy": "Max",
            "Policies": [{"Type": "Percent", "Value": 100, "PeriodSeconds": 15}],
            "Tolerance": None,
        }
        (row,) = (await ask.ok("GET", V1, accept=TABLE))["rows"]
        assert row["cells"][:6] == ["web", "Deployment/web", "cpu: 40%/50%, 3/5", "1", 3, 2]
        old["spec"]["maxReplicas"] = 7
        await ask.ok("PUT", f"{V1}/web", old)
        after = await ask.ok("GET", f"{V2}/web")
        assert after["spec"] == {**before["spec"], "maxReplicas": 7, "metrics": [QUEUE, CPU]}
        assert (after["status"], "annotations" in after["metadata"]) == (before["status"], False)


async def test_an_old_client(tmp_path: Path) -> None:
    """Annotations that cannot be read, or do not have v1's types, count as absent."""
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", V1, autoscaler(targetCPUUtilizationPercentage=60))
        assert made["apiVersion"] == "autoscaling/v1"
        assert made["spec"]["targetCPUUtilizationPercentage"] == 60
        for text in (
            "nonsense",
            "7",
            "[7]",
            '[{"type":"Pods","pods":{"targetAverageValue":{"a":1}}}]',
            '{"ScaleUp":1}',
        ):
            names = (f"{ALPHA}/{name}" for name in ("metrics", "behavior", "current-metrics", "conditions"))
            change = {"metadata": {"annotations": dict.fromkeys(names, text)}}
            await ask.ok("PATCH", f"{V1}/web", change, MERGE)
            stored = await ask.ok("GET", f"{V2}/web")
            assert [each["resource"]["target"]["averageUtilization"] for each in stored["spec"]["metrics"]] == [60]
            assert "behavior" not in stored["spec"]


async def test_watches_in_both_versions(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        async with ask.watching(f"{V1}?watch=1") as old, ask.watching(f"{V2}?watch=1") as new:
            await ask.ok("POST", V1, autoscaler(targetCPUUtilizationPercentage=60))
            assert (await old.event())["object"]["spec"]["targetCPUUtilizationPercentage"] == 60
            assert (await new.event())["object"]["spec"]["metrics"][0]["resource"]["name"] == "cpu"
        await ask.ok("DELETE", f"{V1}/web")
        assert (await ask("GET", f"{V2}/web")).code == 404


async def test_scaling_to_zero_is_a_gate(tmp_path: Path) -> None:
    outside = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"}}}
    for profile, code in (("1.36", 422), ("1.37", 201)):
        async with api(tmp_path / profile, profile) as ask:
            assert (await ask("POST", V2, autoscaler(minReplicas=0, metrics=[outside]))).code == code
