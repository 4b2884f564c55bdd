"""Pods that no node will terminate: what their status says before they are deleted, by release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.controllers import pod_gc
from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.server.services import client_of
from plimsoll.rules.profile import profile_named
from tests.unit.api.api_client import PODS, START_S, api, pod

# release, what the status and the condition say about the generation
RELEASES = [("documents", {}), ("1.33", {}), ("1.34", {"observedGeneration": 1})]


def kept(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that stays after its deletion."""
    document = pod(name, **spec)
    document["metadata"]["finalizers"] = ["example.com/keep"]
    return document


@pytest.mark.parametrize(("release", "observed"), RELEASES, ids=[each[0] for each in RELEASES])
async def test_the_pod_of_a_node_that_is_gone(tmp_path: Path, release: str, observed: dict[str, int]) -> None:
    async with api(tmp_path, release) as ask:
        await ask.ok("POST", PODS, kept("lost", nodeName="gone"))
        context = ControllerContext(ask.app.cluster.store, client_of(ask.app, "system:masters"))
        await pod_gc.controller(context, profile_named(release), lambda: START_S)._reconcile("all")
        found = await ask.ok("GET", f"{PODS}/lost")
    status = found["status"]
    assert found["metadata"]["deletionGracePeriodSeconds"] == 0
    assert status["phase"] == "Failed"
    assert {name: status[name] for name in ("observedGeneration",) if name in status} == observed
    (condition,) = [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": "2026-11-16T00:00:00Z",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        **observed,
    }
