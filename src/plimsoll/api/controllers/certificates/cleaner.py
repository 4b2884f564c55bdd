"""Removes certificate requests that nobody needs any more: an hour after the answer, a day without one."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, epoch_seconds

REQUESTS = ResourcePath("/apis/certificates.k8s.io/v1", "certificatesigningrequests")
PREFIX = "certificates.k8s.io/certificatesigningrequests/"
ANSWERED_S, PENDING_S = 3600.0, 24 * 3600.0
EVERY_S = 600.0


def due_s(request: JsonObject, now_s: float) -> float:
    """Seconds until the request is removed; 0 or less: now."""
    conditions = (request.get("status") or {}).get("conditions") or []
    times = [epoch_seconds(each.get("lastUpdateTime")) for each in conditions]
    answered_s = max((each for each in times if each is not None), default=None)
    if answered_s is not None:
        return answered_s + ANSWERED_S - now_s
    return (epoch_seconds(request["metadata"].get("creationTimestamp")) or now_s) + PENDING_S - now_s


def controller(context: ControllerContext, clock: Clock) -> Controller:
    def every() -> Iterable[str]:
        return [record.key for record in context.store.list(PREFIX)[1]]

    async def reconcile(key: str) -> float | None:
        request = context.document(key)
        if request is not None and due_s(request, clock()) <= 0:
            await context.delete(REQUESTS, request)
        return None

    return Controller(
        "certificate requests", context.store, {PREFIX: own_key}, reconcile, periodic=every, every_s=EVERY_S
    )
