"""The loop that keeps what each quota has in use, on a whole API server without sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.loops import quotas
from plimsoll.api.loops.loop import Shelf
from plimsoll.api.services import client_of
from tests.unit.api.asking import PODS, Asker, api, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def status(ask: Asker, expected: dict[str, str]) -> None:
    """Wait until the quota says so."""
    async with asyncio.timeout(10), ask.watching(f"{QUOTAS}?watch=true") as watched:
        used = None
        while used != expected:
            found = (await watched.event())["object"]
            used = found.get("status", {}).get("used")
    assert found["status"]["hard"] == found["spec"]["hard"]


@pytest.fixture
def quota() -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "cpu": "1"}}}


async def test_what_goes_is_charged_no_longer(tmp_path: Path, quota: dict[str, Any]) -> None:
    async with api(tmp_path) as ask:
        cluster = ask.app.cluster
        shelf = Shelf(cluster.store, client_of(ask.app, "test"))
        await ask.ok("POST", PODS, pod("before", {"cpu": "100m"}))
        running = asyncio.create_task(quotas.loop(shelf, cluster.profile, asyncio.get_running_loop().time).run())
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
