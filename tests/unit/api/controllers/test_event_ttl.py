"""Events are kept for a time after they were last observed."""

from __future__ import annotations

from pathlib import Path

from plimsoll.api.controllers import event_ttl
from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.server.services import client_of
from plimsoll.rules.timestamps import rfc3339
from tests.unit.api.api_client import api

EVENTS = "/api/v1/namespaces/default/events"


async def test_an_event_goes_when_its_time_is_over(tmp_path: Path) -> None:
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    now_s = 0.0
    async with api(tmp_path) as ask:
        created_s = ask.now_s
        for name, later_s in (("once", 0), ("again", 1200)):
            event = {"metadata": {"name": name}, "involvedObject": involved, "reason": "R"}
            await ask.ok("POST", EVENTS, event | {"lastTimestamp": rfc3339(created_s + later_s)})
        context = ControllerContext(ask.app.cluster.store, client_of(ask.app, "system:masters"))
        controller = event_ttl.controller(context, lambda: now_s, ttl_s=600.0)
        for after_s, left in ((599, {"once", "again"}), (602, {"again"}), (1799, {"again"}), (1802, set())):
            now_s = created_s + after_s
            await controller._reconcile("all")
            assert {each["metadata"]["name"] for each in (await ask.ok("GET", EVENTS))["items"]} == left, after_s
