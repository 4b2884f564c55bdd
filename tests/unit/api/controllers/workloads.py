"""A control plane with all controllers and no node: the test says what becomes of pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plimsoll.api.server.services import controllers
from plimsoll.rules.timestamps import rfc3339
from tests.unit.api.api_client import MERGE, PODS, ApiClient, api

Json = dict[str, Any]
NAMESPACE = "/namespaces/default"
PATHS = {
    "configmaps": f"/api/v1{NAMESPACE}/configmaps",
    "controllerrevisions": f"/apis/apps/v1{NAMESPACE}/controllerrevisions",
    "cronjobs": f"/apis/batch/v1{NAMESPACE}/cronjobs",
    "daemonsets": f"/apis/apps/v1{NAMESPACE}/daemonsets",
    "deployments": f"/apis/apps/v1{NAMESPACE}/deployments",
    "events": f"/api/v1{NAMESPACE}/events",
    "jobs": f"/apis/batch/v1{NAMESPACE}/jobs",
    "nodes": "/api/v1/nodes",
    "poddisruptionbudgets": f"/apis/policy/v1{NAMESPACE}/poddisruptionbudgets",
    "pods": PODS,
    "replicasets": f"/apis/apps/v1{NAMESPACE}/replicasets",
    "replicationcontrollers": f"/api/v1{NAMESPACE}/replicationcontrollers",
    "resourcequotas": f"/api/v1{NAMESPACE}/resourcequotas",
    "statefulsets": f"/apis/apps/v1{NAMESPACE}/statefulsets",
}
TIMEOUT_S = 20


class Workloads:
    def __init__(self, ask: ApiClient) -> None:
        self.ask = ask

    async def create(self, plural: str, document: Json) -> Json:
        made: Json = await self.ask.ok("POST", PATHS[plural], document)
        return made

    async def get(self, plural: str, name: str) -> Json:
        found: Json = await self.ask.ok("GET", f"{PATHS[plural]}/{name}")
        return found

    async def list(self, plural: str) -> list[Json]:
        items: list[Json] = (await self.ask.ok("GET", PATHS[plural]))["items"]
        return items

    async def patch(self, plural: str, name: str, change: Json, subresource: str = "") -> Json:
        path = f"{PATHS[plural]}/{name}" + (f"/{subresource}" if subresource else "")
        changed: Json = await self.ask.ok("PATCH", path, change, MERGE)
        return changed

    async def delete(self, plural: str, name: str, **options: Any) -> None:
        await self.ask.ok("DELETE", f"{PATHS[plural]}/{name}", options or None)

    async def until(self, plural: str, name: str, holds: Callable[[Json], Any]) -> Json:
        """The object as soon as it is so."""
        found: Json = {}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    said = await self.ask("GET", f"{PATHS[plural]}/{name}")  # 404: it is being replaced
                    found = {"status": {}, **said.json} if said.code == 200 else {}
                    if found and holds(found):
                        return found
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{plural}/{name} is still {found}") from None

    async def until_listed(self, plural: str, holds: Callable[[list[Json]], Any]) -> list[Json]:
        """All objects of a kind as soon as they are so."""
        found: list[Json] = []
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    found = await self.list(plural)
                    if holds(found):
                        return found
                    await asyncio.sleep(0.01)
        except TimeoutError:
            shown = [(each["metadata"]["name"], each.get("status")) for each in found]
            raise AssertionError(f"{plural} are still {shown}") from None

    async def pods(self, count: int) -> list[Json]:
        """As many pods that are not being deleted, oldest first."""
        active = lambda pods: [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]  # noqa: E731
        found = active(await self.until_listed("pods", lambda pods: len(active(pods)) == count))
        return sorted(found, key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    async def set_ready(self, *pods: Json, ready: bool = True) -> None:
        now = rfc3339(self.ask.now_s)
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
        for pod in pods:
            change = {"status": {"phase": "Running", "conditions": [condition]}}
            said = await self.ask("PATCH", f"{PODS}/{pod['metadata']['name']}/status", change, MERGE)
            assert said.code in (200, 404), said.body  # 404: a controller has deleted it meanwhile

    async def finish(self, pod: Json, phase: str, code: int = 0, conditions: Any = ()) -> None:
        ended = {"exitCode": code, "finishedAt": rfc3339(self.ask.now_s), "startedAt": rfc3339(self.ask.now_s)}
        name = pod["spec"]["containers"][0]["name"]
        container = {"name": name, "state": {"terminated": ended}, "restartCount": 0, "ready": False}
        container |= {"image": "i", "imageID": "i"}
        status = {"phase": phase, "containerStatuses": [container], "conditions": list(conditions)}
        await self.patch("pods", pod["metadata"]["name"], {"status": status}, "status")

    async def events(self, kind: str, name: str) -> list[tuple[str, str]]:
        """Reason and message of the events about an object."""
        return _about(await self.list("events"), kind, name)

    async def until_event(self, kind: str, name: str, reason: str, message: str) -> None:
        """An event follows the change that it is about."""
        await self.until_listed("events", lambda events: (reason, message) in _about(events, kind, name))


def _about(events: list[Json], kind: str, name: str) -> list[tuple[str, str]]:
    """Reason and message of the events about an object."""
    own = [each for each in events if each["involvedObject"]["kind"] == kind]
    return [(each["reason"], each["message"]) for each in own if each["involvedObject"]["name"] == name]


@asynccontextmanager
async def workloads(tmp_path: Path, profile: str = "1.36") -> AsyncIterator[Workloads]:
    async with api(tmp_path, profile, services=[controllers]) as ask:
        yield Workloads(ask)


def template(image: str = "nginx:1", **spec: Any) -> Json:
    containers = [{"name": "c", "image": image}]
    pod_spec = {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}
    return {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec}


def workload(name: str = "web", image: str = "nginx:1", **spec: Any) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, "template": template(image), **spec}}


def condition(document: Json, type_: str) -> Json:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type_), {})
