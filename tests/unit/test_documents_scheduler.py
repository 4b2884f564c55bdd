"""Statements of the five documents about the scheduler, with their own manifests and values.

A real scheduler runs against a whole API server in the same process; nodes are what their objects say.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.server.app import App
from plimsoll.api.server.services import client_of, running
from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.scheduling.cycle import decide
from plimsoll.rules.scheduling.fit import NodeLoad, node_load
from plimsoll.scheduler.loop import Scheduler
from tests.unit.api.api_client import PODS, ApiClient, api
from tests.unit.documents.examples import lean, manifest
from tests.unit.documents.waiting import until

Json = dict[str, Any]
NODES = "/api/v1/nodes"
ALLOCATABLE_004 = {"cpu": "46", "memory": "258486256Ki", "pods": "256"}


async def _schedule(app: App) -> None:
    await Scheduler(client_of(app, "system:kube-scheduler"), app.cluster.profile, "host", time.monotonic).run()


class Cluster:
    def __init__(self, ask: ApiClient) -> None:
        self.ask = ask

    async def node(self, name: str, allocatable: Json, labels: Json | None = None) -> None:
        """One that is Ready: the server puts a taint on every new node, which is removed when its agent reports."""
        status = {"capacity": allocatable, "allocatable": allocatable}
        sent = {"metadata": {"name": name, "labels": labels or {}}, "status": status}
        await self.ask.ok("POST", NODES, sent)
        remove = [{"op": "remove", "path": "/spec/taints"}]
        await self.ask.ok("PATCH", f"{NODES}/{name}", remove, "application/json-patch+json")

    async def create(self, sent: Json, name: str | None = None, **spec: Any) -> str:
        document = {**sent, "metadata": {**sent["metadata"], **({"name": name} if name else {})}}
        document["spec"] = {**sent["spec"], **spec}
        made: str = (await self.ask.ok("POST", PODS, document))["metadata"]["name"]
        return made

    async def pod(self, name: str) -> Json:
        found: Json = await self.ask.ok("GET", f"{PODS}/{name}")
        return found

    async def placed(self, name: str) -> str:
        """The node, once there is one."""

        async def bound() -> str:
            node: str = (await self.pod(name))["spec"].get("nodeName", "")
            return node

        return await until(bound)

    async def refused(self, name: str) -> str:
        """Why the pod is Pending, when the scheduler has reported it."""

        async def said() -> str:
            found = await self.pod(name)
            assert "nodeName" not in found["spec"], "it was placed"
            conditions = {each["type"]: each for each in found["status"].get("conditions", ())}
            if "PodScheduled" not in conditions:
                return ""
            assert found["status"]["phase"] == "Pending"
            assert (conditions["PodScheduled"]["status"], conditions["PodScheduled"]["reason"]) == (
                "False",
                "Unschedulable",
            )
            return str(conditions["PodScheduled"]["message"])

        return await until(said)


@asynccontextmanager
async def scheduled(tmp_path: Path, profile: str = "documents") -> AsyncIterator[Cluster]:
    async with api(tmp_path, profile, services=[running("scheduler", _schedule)]) as ask:
        yield Cluster(ask)


# --- 000-03, 000-04, 004-54: requests against what is left ---


@pytest.mark.parametrize("profile", ["documents", "1.36"])
async def test_used_and_request_may_equal_allocatable(tmp_path: Path, profile: str) -> None:
    """Two of document 000's pod (250m, 64Mi) on a node that has just that; the third waits, a zero request does not."""
    async with scheduled(tmp_path, profile) as cluster:
        await cluster.node("n1", {"cpu": "500m", "memory": "128Mi", "pods": "10"})
        sent = manifest("000-example.yaml")
        for name in ("first", "second"):
            assert await cluster.placed(await cluster.create(sent, name)) == "n1"
        message = await cluster.refused(await cluster.create(sent, "third"))
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.")
        assert await cluster.placed(await cluster.create(manifest("002-besteffort.yaml"))) == "n1"
        assert (await cluster.ask("DELETE", f"{PODS}/first?gracePeriodSeconds=0")).code == 200
        assert await cluster.placed("third") == "n1", "once there is room"


# --- 002-05: more than any node has ---


async def test_above_allocatable_is_accepted_and_waits(tmp_path: Path) -> None:
    async with scheduled(tmp_path) as cluster:
        await cluster.node("node-48", ALLOCATABLE_004)
        sent = manifest("002-qos-demo.yaml")
        sent["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "47"}}
        assert (await cluster.refused(await cluster.create(sent))).startswith(
            "0/1 nodes are available: 1 Insufficient cpu."
        )
        sent["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "46"}}
        assert await cluster.placed(await cluster.create(sent, "just-so")) == "node-48"


# --- 002-03: steering a pod to a node ---

IN_B = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
STEERED = [
    pytest.param({"nodeSelector": {"zone": "b"}}, id="nodeSelector"),
    pytest.param(
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [IN_B]}}}},
        id="node affinity",
    ),
    pytest.param({"nodeName": "b"}, id="node name"),
]  # fmt: skip


@pytest.mark.parametrize("spec", STEERED)
async def test_a_node_selector_decides_the_node(tmp_path: Path, spec: Json) -> None:
    """Node a is the emptier and would be chosen otherwise."""
    async with scheduled(tmp_path) as cluster:
        await cluster.node("a", ALLOCATABLE_004, {"zone": "a"})
        await cluster.node("b", {"cpu": "2", "memory": "4Gi", "pods": "10"}, {"zone": "b"})
        sent = manifest("002-qos-demo.yaml")
        assert await cluster.placed(await cluster.create(sent, "free")) == "a"
        assert await cluster.placed(await cluster.create(sent, "steered", **spec)) == "b"


# --- 002-17, 002-32, 004-05: requests only, neither limits nor the class ---

LIMITS: list[tuple[str, Json | None, str]] = [
    ("as the document has it", {"cpu": "1000m", "memory": "200Mi"}, "Guaranteed"),
    ("larger than the node", {"cpu": "1000", "memory": "2Ti"}, "Burstable"),
    ("none", None, "Burstable"),
]


def loads(profile: str) -> list[NodeLoad]:
    """Three nodes with document 004's busybox on them, three, two and one of it: the last has most room."""
    made = []
    for name, count in (("n1", 3), ("n2", 2), ("n3", 1)):
        residents = []
        for number in range(count):
            busybox = manifest("004-busybox.yaml")
            busybox["metadata"]["name"] = f"busybox-{number}"
            residents.append(lean(busybox))
        node = from_document(
            {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "9"}}}, Node
        )
        made.append(node_load(node, residents, profile_named(profile)))
    return made


@pytest.mark.parametrize("profile", ["documents", "1.36"])
@pytest.mark.parametrize(("limits", "qos"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_limits_and_class_do_not_change_the_node(limits: Json | None, qos: str, profile: str) -> None:
    sent = manifest("003-demo.yaml")
    resources = sent["spec"]["containers"][0]["resources"]
    resources.pop("limits")
    if limits is not None:
        resources["limits"] = limits
    waiting = defaulted(lean(sent))
    assert qos_class(waiting) == qos
    assert decide(waiting, loads(profile), profile_named(profile)).nodes == ("n3",)


# --- 004-16: allocatable, and what is missing there ---


async def test_resources_missing_in_allocatable_are_not_available(tmp_path: Path) -> None:
    async with scheduled(tmp_path) as cluster:
        await cluster.node("n1", {"cpu": "46", "pods": "256"})
        assert (await cluster.refused(await cluster.create(manifest("000-example.yaml")))).startswith(
            "0/1 nodes are available: 1 Insufficient memory."
        )
        assert await cluster.placed(await cluster.create(manifest("003-timeline.yaml"))) == "n1"


# --- 001-30, 001-31: preemption ---

PRIORITIES = {"low": 10, "middle": 20, "high": 30}


async def importance(cluster: Cluster) -> None:
    for name, value in PRIORITIES.items():
        await cluster.ask.ok(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
        )


async def alive(cluster: Cluster) -> set[str]:
    items = (await cluster.ask.ok("GET", PODS))["items"]
    return {each["metadata"]["name"] for each in items if "deletionTimestamp" not in each["metadata"]}


@pytest.mark.parametrize(
    ("guaranteed", "burstable", "victim"),
    [("low", "middle", "guaranteed"), ("middle", "low", "burstable")],
    ids=["the Guaranteed one is the lower", "the Burstable one is the lower"],
)
async def test_preemption_depends_on_priority_not_on_class(
    tmp_path: Path, guaranteed: str, burstable: str, victim: str
) -> None:
    async with scheduled(tmp_path) as cluster:
        await importance(cluster)
        await cluster.node("n1", {"cpu": "2", "memory": "1Gi", "pods": "10"})
        names = {
            await cluster.create(manifest("003-demo.yaml"), "guaranteed", priorityClassName=guaranteed): "Guaranteed",
            await cluster.create(manifest("003-timeline.yaml"), "burstable", priorityClassName=burstable): "Burstable",
        }
        for name, qos in names.items():
            assert await cluster.placed(name) == "n1"
            assert (await cluster.pod(name))["status"]["qosClass"] == qos
        await cluster.create(manifest("003-timeline.yaml"), "urgent", priorityClassName="high")

        async def a_pod_was_removed() -> bool:
            return victim not in await alive(cluster)

        await until(a_pod_was_removed)
        assert await alive(cluster) == {"guaranteed", "burstable", "urgent"} - {victim}
        leaving = await cluster.pod(victim)
        (condition,) = [each for each in leaving["status"]["conditions"] if each["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
        assert (await cluster.ask("DELETE", f"{PODS}/{victim}?gracePeriodSeconds=0")).code == 200
        assert await cluster.placed("urgent") == "n1"


async def test_no_preemption_while_there_is_room(tmp_path: Path) -> None:
    async with scheduled(tmp_path) as cluster:
        await importance(cluster)
        await cluster.node("n1", {"cpu": "2", "memory": "1Gi", "pods": "10"})
        assert await cluster.placed(await cluster.create(manifest("002-besteffort.yaml"), "least")) == "n1"
        low = await cluster.create(manifest("003-timeline.yaml"), "low", priorityClassName="low")
        high = await cluster.create(manifest("003-timeline.yaml"), "high", priorityClassName="high")
        assert [await cluster.placed(low), await cluster.placed(high)] == ["n1", "n1"]
        again = await cluster.create(manifest("003-timeline.yaml"), "again", priorityClassName="low")
        assert await cluster.refused(again) == (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."
        ), "removing the BestEffort pod would not make enough room"
        assert await alive(cluster) == {"least", low, high, again}


# --- 003-39, 003-43, 003-50, 003-51: what a resize under way counts ---


@pytest.mark.parametrize(
    ("spec", "state", "left_milli"),
    [("1.5", "Proposed", 500), ("2", "Deferred", 0), ("100", "Infeasible", 400)],
    ids=["T=3", "T=7", "T=12"],
)
async def test_the_timeline_as_the_scheduler_counts_it(tmp_path: Path, spec: str, state: str, left_milli: int) -> None:
    """Two CPUs, one pod of the timeline: as much fits beside it as is left, and not a thousandth more."""
    allocated = {"Proposed": "1", "Deferred": "1.5", "Infeasible": "1.6"}[state]
    async with scheduled(tmp_path) as cluster:
        await cluster.node("n1", {"cpu": "2", "memory": "1Gi", "pods": "10"})
        name = await cluster.create(manifest("003-timeline.yaml"))
        assert await cluster.placed(name) == "n1"
        containers = (await cluster.pod(name))["spec"]["containers"]
        change = {"spec": {"containers": [{"name": containers[0]["name"], "resources": {"requests": {"cpu": spec}}}]}}
        await cluster.ask.ok("PATCH", f"{PODS}/{name}", change, "application/strategic-merge-patch+json")
        reported = {"name": containers[0]["name"], "image": "x", "imageID": "", "ready": True, "restartCount": 0}
        reported |= {"allocatedResources": {"cpu": allocated}, "state": {"running": {}}}
        status = {"status": {"resize": state, "containerStatuses": [reported]}}
        await cluster.ask.ok("PATCH", f"{PODS}/{name}/status", status, "application/merge-patch+json")
        beside = manifest("003-timeline.yaml")
        resources = beside["spec"]["containers"][0]["resources"]
        resources["requests"] = {"cpu": f"{left_milli + 1}m"}
        assert "Insufficient cpu" in await cluster.refused(await cluster.create(beside, "too-large"))
        resources["requests"] = {"cpu": f"{left_milli}m"}
        assert await cluster.placed(await cluster.create(beside, "just-so")) == "n1"
