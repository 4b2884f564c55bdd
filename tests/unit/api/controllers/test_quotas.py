"""The quota controller on a whole API server without sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.controllers import quotas
from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.server.services import client_of
from tests.unit.api.api_client import PODS, ApiClient, api, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def status(ask: ApiClient, expected: dict[str, str]) -> None:
    """Wait until the quota has this status."""
    async with asyncio.timeout(10), ask.watching(f"{QUOTAS}?watch=true") as watched:
        used = None
        while used != expected:
            found = (await watched.event())["object"]
            used = found.get("status", {}).get("used")
    assert found["status"]["hard"] == found["spec"]["hard"]


@pytest.fixture
def quota() -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "cpu": "1"}}}


async def test_deleted_objects_are_no_longer_charged(tmp_path: Path, quota: dict[str, Any]) -> None:
    async with api(tmp_path) as ask:
        cluster = ask.app.cluster
        context = ControllerContext(cluster.store, client_of(ask.app, "test"))
        await ask.ok("POST", PODS, pod("before", {"cpu": "100m"}))
        running = asyncio.create_task(
            quotas.controller(context, cluster.profile, asyncio.get_running_loop().time).run()
        )
        try:
            await ask.ok("POST", QUOTAS, quota)
            await status(ask, {"cpu": "100m", "pods": "1"})
            await ask.ok("POST", PODS, pod("after", {"cpu": "200m"}))
            await status(ask, {"cpu": "300m", "pods": "2"})
            said = await ask("POST", PODS, pod("third", {"cpu": "100m"}))
            assert (said.code, said.message) == (
                403,
                'pods "third" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
            )
            await ask.ok("DELETE", f"{PODS}/before")
            await status(ask, {"cpu": "200m", "pods": "1"})
            smaller = {"spec": {"hard": {"pods": "3", "cpu": None}}}
            await ask.ok("PATCH", f"{QUOTAS}/q", smaller, "application/merge-patch+json")
            await status(ask, {"pods": "1"})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


COUNTED = [
    ("configmaps", "/api/v1/namespaces/default/configmaps", "configmaps", {}),
    ("count/configmaps", "/api/v1/namespaces/default/configmaps", "configmaps", {}),
    ("count/serviceaccounts", "/api/v1/namespaces/default/serviceaccounts", "serviceaccounts", {}),
    (
        "count/poddisruptionbudgets.policy",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "poddisruptionbudgets.policy",
        {"spec": {"selector": {"matchLabels": {"a": "b"}}}},
    ),
    (
        "count/replicasets.apps",
        "/apis/apps/v1/namespaces/default/replicasets",
        "replicasets.apps",
        {
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            }
        },
    ),
    ("resourcequotas", QUOTAS, "resourcequotas", {}),
    ("secrets", "/api/v1/namespaces/default/secrets", "secrets", {}),
    (
        "replicationcontrollers",
        "/api/v1/namespaces/default/replicationcontrollers",
        "replicationcontrollers",
        {
            "spec": {
                "replicas": 0,
                "selector": {"a": "b"},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            }
        },
    ),
]


@pytest.mark.parametrize(("name", "path", "shown", "members"), COUNTED, ids=[row[0] for row in COUNTED])
async def test_objects_are_counted_and_limited(
    tmp_path: Path, name: str, path: str, shown: str, members: dict[str, Any]
) -> None:
    async with api(tmp_path) as ask:
        cluster = ask.app.cluster
        context = ControllerContext(cluster.store, client_of(ask.app, "test"))
        running = asyncio.create_task(
            quotas.controller(context, cluster.profile, asyncio.get_running_loop().time).run()
        )
        try:
            here = cluster.store.count(f"{_prefix(path)}default/")
            await ask.ok("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {name: str(here + 2)}}})
            here += path == QUOTAS  # the quota is one itself
            await status(ask, {name: str(here)})
            left = 1 if path == QUOTAS else 2
            for number in range(left):
                await ask.ok("POST", path, {"metadata": {"name": f"x{number}"}, **members})
            said = await ask("POST", path, {"metadata": {"name": "last"}, **members})
            full = here + left
            assert (said.code, said.message) == (
                403,
                f'{shown} "last" is forbidden: exceeded quota: q, requested: {name}=1, used: {name}={full}, '
                f"limited: {name}={full}",
            )
            await ask.ok("DELETE", f"{path}/x0", {"propagationPolicy": "Background"})
            await status(ask, {name: str(full - 1)})
            await ask.ok("POST", path, {"metadata": {"name": "last"}, **members})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _prefix(path: str) -> str:
    parts = path.split("/")
    return f"/{parts[-1]}/" if parts[1] == "api" else f"{parts[2]}/{parts[-1]}/"


async def test_a_quota_with_scopes_applies_to_pods(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        hard = {"configmaps": "0"}
        body = {"metadata": {"name": "q"}, "spec": {"hard": hard, "scopes": ["NotBestEffort"]}}
        await ask.ok("POST", QUOTAS, body)
        await ask.ok(
            "PATCH", f"{QUOTAS}/q/status", {"status": {"hard": hard, "used": hard}}, "application/merge-patch+json"
        )
        await ask.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
        listed = await ask.ok("GET", "/api/v1/namespaces/default/configmaps")
        assert "c" in [item["metadata"]["name"] for item in listed["items"]]
        assert (await ask.ok("GET", f"{QUOTAS}/q"))["status"]["used"] == hard
