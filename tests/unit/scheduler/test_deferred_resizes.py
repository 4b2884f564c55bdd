"""A scheduler and an API server: pods of lower priority make room for a resize that the node has deferred."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.server.app import App
from plimsoll.api.server.services import client_of, running
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import profile_named
from plimsoll.scheduler.loop import Scheduler
from tests.unit.api.api_client import PODS, ApiClient, api, pod
from tests.unit.documents.waiting import until

Json = dict[str, Any]
GATE = "InPlacePodVerticalScalingSchedulerPreemption"
NODE = "/api/v1/nodes/n1"
MERGE = "application/merge-patch+json"
SIZE = {"cpu": "2", "memory": "1Gi", "pods": "10"}
DISABLED = {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/scaler"]}}


async def _schedule(app: App) -> None:
    preempts = app.cluster.gates.scheduler_preempts
    client = client_of(app, "system:kube-scheduler")
    await Scheduler(client, app.cluster.profile, "host", time.monotonic, preempts_for_resizes=preempts).run()


@asynccontextmanager
async def scheduled(tmp_path: Path, *, gate: bool) -> AsyncIterator[ApiClient]:
    gates = {**default_config(profile_named("1.37")).feature_gates, GATE: gate}
    async with api(tmp_path, "1.37", gates=gates, services=[running("scheduler", _schedule)]) as ask:
        for name, value in (("low", 1), ("high", 1000)):
            made = {"metadata": {"name": name}, "value": value}
            await ask.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)
        status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
        await ask.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        await ask.ok("PATCH", NODE, [{"op": "remove", "path": "/spec/taints"}], "application/json-patch+json")
        yield ask


async def run(ask: ApiClient, name: str, cpu: str, priority: str) -> None:
    """Bound by the scheduler, and running as its node reports."""
    await ask.ok("POST", PODS, pod(name, {"cpu": cpu}, priorityClassName=priority))

    async def bound() -> bool:
        return bool((await ask.ok("GET", f"{PODS}/{name}"))["spec"].get("nodeName"))

    await until(bound)
    shown = {
        "name": "c",
        "ready": True,
        "restartCount": 0,
        "image": "nginx:1.27",
        "imageID": "",
        "state": {"running": {}},
    }
    shown |= {"allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
    await ask.ok(
        "PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running", "containerStatuses": [shown]}}, MERGE
    )


async def defer(ask: ApiClient, name: str, cpu: str) -> None:
    """A resize, and the node's answer."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    change, kind = {"spec": {"containers": containers}}, "application/strategic-merge-patch+json"
    await ask.ok("PATCH", f"{PODS}/{name}/resize", change, kind)
    condition = {
        "type": "PodResizePending",
        "status": "True",
        "reason": "Deferred",
        "message": "Node didn't have enough",
    }
    await ask.ok("PATCH", f"{PODS}/{name}/status", {"status": {"conditions": [condition]}}, kind)


async def leaves(ask: ApiClient, name: str) -> Json:
    async def preempted() -> Json:
        found: Json = await ask.ok("GET", f"{PODS}/{name}")
        return found if "deletionTimestamp" in found["metadata"] else {}

    return await until(preempted)


async def events_about(ask: ApiClient, name: str) -> list[Json]:
    items: list[Json] = (await ask.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    return [each for each in items if each["regarding"]["name"] == name]


async def test_a_pod_of_lower_priority_makes_room(tmp_path: Path) -> None:
    async with scheduled(tmp_path, gate=True) as ask:
        await run(ask, "growing", "500m", "high")
        await run(ask, "first", "500m", "low")
        await run(ask, "second", "500m", "low")
        await defer(ask, "growing", "1500m")
        victim = await until(lambda: any_leaving(ask))
        found = await leaves(ask, victim)
        conditions = {each["type"]: each for each in found["status"]["conditions"]}
        assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"

        async def reported() -> list[Json]:
            return [each for each in await events_about(ask, victim) if each["reason"] == "Preempted"]

        (event,) = await until(reported)
        growing = await ask.ok("GET", f"{PODS}/growing")
        assert event["note"] == f"Preempted by pod {growing['metadata']['uid']} on node n1"
        assert "nominatedNodeName" not in growing["status"]
        assert "PodScheduled" not in {
            each["type"] for each in growing["status"]["conditions"] if each["status"] == "False"
        }
        assert "FailedScheduling" not in {each["reason"] for each in await events_about(ask, "growing")}
        (other,) = {"first", "second"} - {victim}
        assert not await is_leaving(ask, other), "one is enough"


async def is_leaving(ask: ApiClient, name: str) -> bool:
    return "deletionTimestamp" in (await ask.ok("GET", f"{PODS}/{name}"))["metadata"]


async def any_leaving(ask: ApiClient) -> str:
    found = [name for name in ("first", "second") if await is_leaving(ask, name)]
    return found[0] if found else ""


@pytest.mark.parametrize("why", ["the gate is off", "the node does not allow it"])
async def test_no_pod_is_preempted_where(tmp_path: Path, why: str) -> None:
    """A pod that is created later is decided on later: once it has its event, the resize was judged, too."""
    async with scheduled(tmp_path, gate=why != "the gate is off") as ask:
        await run(ask, "growing", "500m", "high")
        await run(ask, "first", "1500m", "low")
        if why != "the gate is off":
            await ask.ok("PATCH", NODE, {"spec": DISABLED}, MERGE)
        await defer(ask, "growing", "1500m")
        await ask.ok("POST", PODS, pod("later", {"cpu": "1900m"}, priorityClassName="low"))
        await until(lambda: events_about(ask, "later"))
        assert not await is_leaving(ask, "first")
        if why != "the gate is off":
            await ask.ok("PATCH", NODE, {"spec": {"podPreemptionPolicy": None}}, MERGE)
            await leaves(ask, "first")


async def test_the_policy_of_a_node_is_checked_and_needs_its_gate(tmp_path: Path) -> None:
    async with scheduled(tmp_path, gate=True) as ask:
        bad = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["no key!", "a", "a"]}}}
        answer = await ask("PATCH", NODE, bad, MERGE)
        path = "spec.podPreemptionPolicy.disableResizePreemption"
        causes = [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]
        assert answer.code == 422
        assert causes[0][0] == f"{path}[0]" and causes[0][1].startswith('Invalid value: "no key!"')
        assert causes[1] == (f"{path}[2]", 'Duplicate value: "a"')
        many = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": [f"o{number}" for number in range(21)]}}}
        answer = await ask("PATCH", NODE, many, MERGE)
        assert (answer.code, answer.json["details"]["causes"][0]["message"]) == (
            422, "Too many: 21: must have at most 20 items",
        )  # fmt: skip
        assert (await ask.ok("PATCH", NODE, {"spec": DISABLED}, MERGE))["spec"] == DISABLED
    async with scheduled(tmp_path / "off", gate=False) as ask:
        assert "podPreemptionPolicy" not in (await ask.ok("PATCH", NODE, {"spec": DISABLED}, MERGE))["spec"]
