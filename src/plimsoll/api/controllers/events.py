"""Events of controllers, as kube-controller-manager writes them. An event that is repeated increases its count."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.kube import request
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import event_name
from plimsoll.rules.timestamps import Clock, rfc3339

MAX_KNOWN = 4096
_MAX_MESSAGE = 1024
_REJECTED = (403, 404, 409, 422)  # its namespace terminates, or its name is in use: an event may be lost


class EventRecorder:
    """Events about objects of one kind."""

    def __init__(self, context: ControllerContext, component: str, kind: str, api_version: str, clock: Clock) -> None:
        self._context, self._clock = context, clock
        self._component, self._kind, self._api_version = component, kind, api_version
        self._known: OrderedDict[tuple[str, ...], tuple[str, int]] = OrderedDict()  # → name, count
        self._named_ns = 0

    async def normal(self, about: JsonObject, reason: str, message: str) -> None:
        await self._record(about, "Normal", reason, message)

    async def warning(self, about: JsonObject, reason: str, message: str) -> None:
        await self._record(about, "Warning", reason, message)

    async def _record(self, about: JsonObject, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        metadata, now = about["metadata"], rfc3339(self._clock())
        namespace = metadata.get("namespace") or "default"
        key = (metadata["uid"], type_, reason, message)
        if known := self._known.get(key):
            name, count = known
            change = {"count": count + 1, "lastTimestamp": now}
            if await self._context.attempt(request.patch(request.EVENTS, name, change, namespace), _REJECTED):
                self._remember(key, name, count + 1)
                return
        # As client-go names them, but never one name twice.
        self._named_ns = max(int(self._clock() * 1e9), self._named_ns + 1)
        name = event_name(metadata["name"], self._named_ns)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "kind": self._kind,
                "namespace": metadata.get("namespace", ""),
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": self._api_version,
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "type": type_,
            "reason": reason,
            "message": message[:_MAX_MESSAGE],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        if await self._context.attempt(request.create(request.EVENTS, event, namespace), _REJECTED):
            self._remember(key, name, 1)

    def _remember(self, key: tuple[str, ...], name: str, count: int) -> None:
        self._known[key] = (name, count)
        self._known.move_to_end(key)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
