"""Controllers that read every pod: other requests are served while they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from plimsoll.api.controllers import disruption_budgets, endpoints, pod_gc
from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.server.services import client_of
from plimsoll.rules.profile import DEFAULT_PROFILE
from tests.unit.api.api_client import PODS, api, pod

COUNT = 1_000  # decoding them takes several rounds of 2 ms on any machine
BUDGET = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "none"}}}}
SERVICE = {"metadata": {"name": "s"}, "spec": {"selector": {"app": "none"}, "ports": [{"port": 80}]}}


@pytest.mark.parametrize(
    ("controller", "key"),
    [
        (partial(pod_gc.controller, profile=DEFAULT_PROFILE, clock=time.time), "all"),
        (disruption_budgets.controller, "default"),
        (endpoints.controller, "/services/default/s"),
    ],
)
async def test_the_event_loop_goes_on_while_pods_are_judged(
    tmp_path: Path, controller: Callable[[ControllerContext], Controller], key: str
) -> None:
    async with api(tmp_path) as ask:
        for number in range(COUNT):
            await ask.ok("POST", PODS, pod(f"p{number}", {"cpu": "100m", "memory": "64Mi"}))
        await ask.ok("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET)
        await ask.ok("POST", "/api/v1/namespaces/default/services", SERVICE)
        context = ControllerContext(ask.app.cluster.store, client_of(ask.app, "system:masters"))
        await controller(context)._reconcile(key)  # which writes; the next one, that knows no pod yet, only reads
        reading = asyncio.create_task(controller(context)._reconcile(key))
        rounds = 0
        while not reading.done():
            rounds += 1
            await asyncio.sleep(0)
        await reading
        assert rounds > 3, "the whole list was read in one piece"
