"""Tells the API what happens on this node: core/v1 Events, as a kubelet does (05 B8).

`tell` never waits and never fails: what happens is put into a short queue, and `run` sends it. While the API cannot be
reached the newest are kept and sent later; an event that it refuses is written to our log and forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.node.reporting.event_correlator import (
    KNOWN_MOST,
    CorrelatedEvent,
    Correlation,
    EventKey,
    EventType,
    ObjectReference,
)
from plimsoll.rules.timestamps import rfc3339

log = logging.getLogger(__name__)

WAITING_MOST = 1000
RETRY_S = 2.0
GATHER_S = 0.25  # doing goes first, and then a pod's status: that is what people wait for
COMPONENT = "kubelet"  # what dashboards and `kubectl describe` know; who we are stands in the Node's version


class Recorder:
    def __init__(self, client: Client, node_name: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._correlation = Correlation()
        self._waiting: deque[tuple[EventKey, CorrelatedEvent]] = deque(maxlen=WAITING_MOST)
        self._names: dict[EventKey, str] = {}  # of the event that is there
        self._wake = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def tell(
        self,
        about: ObjectReference,
        kind: EventType,
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        log.info("%s %s: %s", reason, about.name, message)
        happening = EventKey(about, kind, reason, message, tuple((annotations or {}).items()))
        told = self._correlation.told(happening, self._clock())
        if told is not None:
            self._waiting.append((happening, told))
            self._is_idle.clear()
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            self._wake.clear()
            while self._waiting:
                happening, told = self._waiting[0]
                if not await self._sent(happening, told):
                    await asyncio.sleep(RETRY_S)
                elif self._waiting and self._waiting[0][1] is told:  # the oldest go when there are too many
                    self._waiting.popleft()
            self._is_idle.set()

    async def drained(self, timeout_s: float) -> None:
        """Before we go: what happened last shall be told, if the API is there to listen."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_idle.wait()
        except TimeoutError:
            log.info("%d events were not told", len(self._waiting))

    async def _sent(self, happening: EventKey, told: CorrelatedEvent) -> bool:
        try:
            if told.count > 1 and told.key in self._names:
                await self._count_up(told)
            else:
                await self._create(told, happening)
        except (UnreachableError, TimeoutError) as error:
            log.debug("event %s: %s", happening.reason, error)
            return False
        except ApiError as error:
            log.info("event %s of %s was refused: %s", happening.reason, happening.about.name, error)
            self._forget(told.key)
        return True

    async def _count_up(self, told: CorrelatedEvent) -> None:
        change = {"count": told.count, "lastTimestamp": rfc3339(told.last_s), "message": told.message}
        try:
            namespace = told.key.about.namespace or "default"
            await self._client.ask(request.patch(request.EVENTS, self._names[told.key], change, namespace))
        except ApiError as error:
            if not error.is_gone:  # it was removed after its hour
                raise
            self._forget(told.key)
            await self._create(told, told.key)

    async def _create(self, told: CorrelatedEvent, happening: EventKey) -> None:
        about, namespace = happening.about, happening.about.namespace or "default"
        name = f"{about.name}.{secrets.token_hex(8)}"
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace, **_annotated(happening)},
            "involvedObject": _reference(about),
            "type": happening.type,
            "reason": happening.reason,
            "message": told.message,
            "source": {"component": COMPONENT, "host": self._node_name},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node_name,
            "firstTimestamp": rfc3339(told.first_s),
            "lastTimestamp": rfc3339(told.last_s),
            "count": told.count,
        }
        await self._client.ask(request.create(request.EVENTS, document, namespace))
        self._names[told.key] = name
        while len(self._names) > KNOWN_MOST:
            del self._names[next(iter(self._names))]

    def _forget(self, key: EventKey) -> None:
        self._names.pop(key, None)
        self._correlation.lost(key)


def _reference(about: ObjectReference) -> dict[str, Any]:
    found = {
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
        "apiVersion": about.api_version,
        "resourceVersion": about.resource_version,
        "fieldPath": about.field_path,
    }
    return {key: value for key, value in found.items() if value}


def _annotated(happening: EventKey) -> dict[str, Any]:
    return {"annotations": dict(happening.annotations)} if happening.annotations else {}
