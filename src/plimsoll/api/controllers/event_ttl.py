"""Delete events some time after they were last observed: an hour, unless configured otherwise (05 B8)."""

from __future__ import annotations

from plimsoll.aio import in_slices
from plimsoll.api.controllers.controller import Controller, ControllerContext, read
from plimsoll.kube import request
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, epoch_seconds

INTERVAL_S = 60.0
_ALL = "all"


def controller(context: ControllerContext, clock: Clock, *, ttl_s: float, every_s: float = INTERVAL_S) -> Controller:
    async def reconcile(_: str) -> float | None:
        now_s = clock()
        async for record in in_slices(context.store.list("/events/")[1]):
            event = read(record)
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
