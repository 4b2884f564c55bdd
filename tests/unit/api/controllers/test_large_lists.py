"""Controllers that read every pod: other requests are served while they do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plimsoll.api.controllers import pod_gc
from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.server.services import client_of
from tests.unit.api.api_client import PODS, api, pod

COUNT = 1_000  # decoding them takes several turns of 2 ms on any machine


async def test_the_event_loop_goes_on_while_pods_are_judged(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for number in range(COUNT):
            await ask.ok("POST", PODS, pod(f"p{number}", {"cpu": "100m", "memory": "64Mi"}))
        context = ControllerContext(ask.app.cluster.store, client_of(ask.app, "system:masters"))
        collecting = asyncio.create_task(pod_gc.controller(context)._reconcile("all"))
        rounds = 0
        while not collecting.done():
            rounds += 1
            await asyncio.sleep(0)
        await collecting
        assert rounds > 3, "the whole list was read in one piece"
