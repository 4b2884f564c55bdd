"""Record core/v1 Events about the node and its pods, as the kubelet does (05 B8).

`record` never blocks and never fails: it puts the event into a short queue that `run` sends. While the API server
cannot be reached the newest events are kept and sent later; a rejected event is logged and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.node.reporting.event_correlator import (
    MAX_KNOWN,
    CorrelatedEvent,
    Correlation,
    EventKey,
    EventType,
    ObjectReference,
)
from plimsoll.rules.model.names import event_name
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.timestamps import rfc3339

log = logging.getLogger(__name__)

MAX_QUEUED = 1000
RETRY_S = 2.0
GATHER_S = 0.25  # work on pods and their statuses comes first
COMPONENT = "kubelet"  # as dashboards and `kubectl describe` expect; the Node's version names Plimsoll


# Gets every event: the object, its type, the reason and the message.
Listener = Callable[[ObjectReference, EventType, str, str], None]


class Recorder:
    def __init__(self, client: Client, node_name: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._correlation = Correlation()
        self._queue: deque[tuple[EventKey, CorrelatedEvent]] = deque(maxlen=MAX_QUEUED)
        self.listeners: list[Listener] = []
        self._names: dict[EventKey, str] = {}  # of the event in the API
        self._named_ns = 0
        self._wake = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def record(
        self,
        reference: ObjectReference,
        kind: EventType,
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        log.info("%s %s: %s", reason, reference.name, message)
        for listener in self.listeners:
            listener(reference, kind, reason, message)
        key = EventKey(reference, kind, reason, message, tuple((annotations or {}).items()))
        event = self._correlation.correlate(key, self._clock())
        if event is not None:
            self._queue.append((key, event))
            self._is_idle.clear()
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            self._wake.clear()
            while self._queue:
                key, event = self._queue[0]
                if not await self._send(key, event):
                    await asyncio.sleep(RETRY_S)
                elif self._queue and self._queue[0][1] is event:  # a full queue drops the oldest
                    self._queue.popleft()
            self._is_idle.set()

    async def drained(self, timeout_s: float) -> None:
        """Wait until all events are sent, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_idle.wait()
        except TimeoutError:
            log.info("%d events were not sent", len(self._queue))

    async def _send(self, key: EventKey, event: CorrelatedEvent) -> bool:
        try:
            if event.count > 1 and event.key in self._names:
                await self._increase_count(event)
            else:
                await self._create(event, key)
        except (UnreachableError, TimeoutError) as error:
            log.debug("event %s: %s", key.reason, error)
            return False
        except ApiError as error:
            log.info("event %s of %s was rejected: %s", key.reason, key.reference.name, error)
            self._forget(event.key)
        return True

    async def _increase_count(self, event: CorrelatedEvent) -> None:
        change = {"count": event.count, "lastTimestamp": rfc3339(event.last_s), "message": event.message}
        try:
            namespace = event.key.reference.namespace or "default"
            await self._client.ask(request.patch(request.EVENTS, self._names[event.key], change, namespace))
        except ApiError as error:
            if not error.is_gone:  # gone: its TTL is over
                raise
            self._forget(event.key)
            await self._create(event, event.key)

    async def _create(self, event: CorrelatedEvent, key: EventKey) -> None:
        reference, namespace = key.reference, key.reference.namespace or "default"
        annotations = {"annotations": dict(key.annotations)} if key.annotations else {}
        # As client-go names them, but never one name twice.
        self._named_ns = max(int(event.first_s * 1_000_000_000), self._named_ns + 1)
        name = event_name(reference.name, self._named_ns)
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace, **annotations},
            "involvedObject": _involved_object(reference),
            "type": key.type,
            "reason": key.reason,
            "message": event.message,
            "source": {"component": COMPONENT, "host": self._node_name},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node_name,
            "firstTimestamp": rfc3339(event.first_s),
            "lastTimestamp": rfc3339(event.last_s),
            "count": event.count,
        }
        await self._client.ask(request.create(request.EVENTS, document, namespace))
        self._names[event.key] = name
        while len(self._names) > MAX_KNOWN:
            del self._names[next(iter(self._names))]

    def _forget(self, key: EventKey) -> None:
        self._names.pop(key, None)
        self._correlation.forget(key)


def _involved_object(reference: ObjectReference) -> dict[str, Any]:
    fields = {
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
        "apiVersion": reference.api_version,
        "resourceVersion": reference.resource_version,
        "fieldPath": reference.field_path,
    }
    return {key: value for key, value in fields.items() if value}


class PodEvents:
    """Events about the pods of this node."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def emit(
        self,
        pod: RunPod,
        kind: EventType,
        reason: str,
        message: str,
        field_path: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self._recorder.record(pod_reference(pod, field_path), kind, reason, message, annotations)

    def emit_lifecycle(self, pod: RunPod, event: LifecycleEvent) -> None:
        self.emit(pod, event.type, event.reason, event.message, event.field_path)


def pod_reference(pod: RunPod, field_path: str = "") -> ObjectReference:
    meta = pod.metadata
    return ObjectReference("Pod", meta.name, meta.namespace, meta.uid, meta.resource_version, "v1", field_path)
