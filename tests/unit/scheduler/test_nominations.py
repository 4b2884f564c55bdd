"""A scheduler and an API server: pods that are nominated to one node do not wait for each other without end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.api.api_client import MERGE, PODS, ApiClient, pod
from tests.unit.documents.waiting import until
from tests.unit.scheduler.test_deferred_resizes import run, scheduled

Json = dict[str, Any]
WAITING = [f"waiting-{number}" for number in range(5)]


async def waiting(ask: ApiClient) -> list[Json]:
    return [await ask.ok("GET", f"{PODS}/{name}") for name in WAITING]


async def test_more_pods_are_nominated_than_have_room(tmp_path: Path) -> None:
    """e2e: SchedulerPreemption validates various priority Pods preempt expectedly with the async preemption.

    Of five pods of one priority, each counts the four others as placed on a node that has room for four. As by
    Kubernetes, one that has no pod to preempt loses its nomination.
    """
    async with scheduled(tmp_path, gate=False) as ask:
        await run(ask, "large", "2", "high")
        for name in WAITING:
            await ask.ok("POST", PODS, pod(name, {"cpu": "500m"}, priorityClassName="low"))

        async def refused() -> bool:
            return all(each["status"].get("conditions") for each in await waiting(ask))

        await until(refused)
        for name in WAITING:
            await ask.ok("PATCH", f"{PODS}/{name}/status", {"status": {"nominatedNodeName": "n1"}}, MERGE)
        await ask.ok("DELETE", f"{PODS}/large", {"gracePeriodSeconds": 0})

        async def bound() -> bool:
            return sum(bool(each["spec"].get("nodeName")) for each in await waiting(ask)) == 4

        await until(bound)
        (left,) = [each for each in await waiting(ask) if not each["spec"].get("nodeName")]
        assert "nominatedNodeName" not in left["status"]


async def test_pods_that_come_together_have_victims_of_their_own(tmp_path: Path) -> None:
    """Each counts the ones that were nominated just before, whose nomination the API server does not show yet."""
    async with scheduled(tmp_path, gate=False) as ask:
        victims = [f"low-{number}" for number in range(4)]
        for name in victims:
            await run(ask, name, "500m", "low")
        for number in range(4):
            await ask.ok("POST", PODS, pod(f"high-{number}", {"cpu": "500m"}, priorityClassName="high"))

        async def all_leave() -> bool:
            found = [await ask.ok("GET", f"{PODS}/{name}") for name in victims]
            return all("deletionTimestamp" in each["metadata"] for each in found)

        await until(all_leave)
