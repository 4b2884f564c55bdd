"""Evictions against a budget that the controller keeps up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.controllers.workloads import PATHS, Workloads, workload, workloads


async def _evict(made: Workloads, name: str) -> int:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    said = await made.ask("POST", f"{PATHS['pods']}/{name}/eviction", body)
    return said.code


@pytest.mark.parametrize(("policy", "code"), [({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, 201), ({}, 429)])
async def test_an_unready_pod_is_evicted_with_always_allow(tmp_path: Path, policy: Any, code: int) -> None:
    async with workloads(tmp_path) as made:
        await made.create(
            "replicationcontrollers",
            {"metadata": {"name": "rc"}, "spec": {**workload()["spec"], "selector": {"app": "web"}, "replicas": 3}},
        )
        pods = await made.pods(3)
        await made.set_ready(*pods, ready=False)
        selector = {"matchLabels": {"app": "web"}}
        budget = {"metadata": {"name": "b"}, "spec": {"selector": selector, "minAvailable": "100%", **policy}}
        await made.create("poddisruptionbudgets", budget)
        found = await made.until("poddisruptionbudgets", "b", lambda found: found["status"].get("expectedPods") == 3)
        assert (found["status"]["currentHealthy"], found["status"]["desiredHealthy"]) == (0, 3)
        assert await _evict(made, pods[0]["metadata"]["name"]) == code
        said = await made.ask(
            "POST",
            PATHS["poddisruptionbudgets"],
            {**budget, "metadata": {"name": "c"}, "spec": {"unhealthyPodEvictionPolicy": "x"}},
        )
        assert 'supported values: "AlwaysAllow", "IfHealthyBudget"' in said.message
