"""Events live for an hour after they were last seen (05 B8)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.kube import request
from plimsoll.kube.request import ApiError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, epoch_seconds

KEPT_S = 3600.0
LOOK_EVERY_S = 60.0
_ALL = "all"


def loop(
    shelf: ControllerContext, clock: Clock, *, kept_s: float = KEPT_S, every_s: float = LOOK_EVERY_S
) -> Controller:
    async def look(_: str) -> float | None:
        now_s = clock()
        for event in shelf.documents("/events/"):
            if now_s - _last_seen(event) > kept_s:
                metadata = event["metadata"]
                try:
                    await shelf.client.ask(request.delete(request.EVENTS, metadata["name"], metadata["namespace"]))
                except ApiError as error:
                    if not error.is_gone:
                        raise
        return None

    return Controller("old-events", shelf.store, {}, look, periodic=lambda: (_ALL,), every_s=every_s)


def _last_seen(event: JsonObject) -> float:
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return max((seconds for each in times if (seconds := epoch_seconds(each)) is not None), default=0.0)
