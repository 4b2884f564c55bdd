"""Delete events an hour after they were last observed (05 B8)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.kube import request
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, epoch_seconds

TTL_S = 3600.0
INTERVAL_S = 60.0
_ALL = "all"


def controller(
    context: ControllerContext, clock: Clock, *, ttl_s: float = TTL_S, every_s: float = INTERVAL_S
) -> Controller:
    async def reconcile(_: str) -> float | None:
        now_s = clock()
        for event in context.documents("/events/"):
            if now_s - _last_observed(event) > ttl_s:
                metadata = event["metadata"]
                await context.attempt(request.delete(request.EVENTS, metadata["name"], metadata["namespace"]))
        return None

    return Controller("event-ttl", context.store, {}, reconcile, periodic=lambda: (_ALL,), every_s=every_s)


def _last_observed(event: JsonObject) -> float:
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return max((seconds for time in times if (seconds := epoch_seconds(time)) is not None), default=0.0)
