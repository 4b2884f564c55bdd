"""The API of one pod, in memory: what an agent needs to run it without any API server.

It answers the requests that the agent makes (list and watch of its pods, status patches, events, ConfigMaps, Secrets,
RuntimeClasses) the way an API server would, for one pod and for the objects that came with it. The caller gets every
new status and every event, and ends the pod with `delete`, as a user would.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Iterable
from urllib.parse import urlsplit

import msgspec

from plimsoll.codec.patch.strategic import apply_strategic
from plimsoll.codec.schema.schema import KINDS
from plimsoll.kube.request import ApiResponse, Request
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import rfc3339

_RESOURCES = {"ConfigMap": "configmaps", "Secret": "secrets", "RuntimeClass": "runtimeclasses"}
KINDS_SERVED = frozenset(_RESOURCES)  # beside pods
_POD = next(kind for kind in KINDS if kind.name == "Pod")


class OnePodApi:
    """A transport for `kube.client.Client`."""

    def __init__(
        self,
        pod: JsonObject,
        objects: Iterable[JsonObject] = (),
        *,
        on_status: Callable[[JsonObject], None],
        on_event: Callable[[JsonObject], None],
    ) -> None:
        self.pod: JsonObject | None = pod
        self.gone = asyncio.Event()
        self._objects: dict[tuple[str, str], JsonObject] = {}
        for each in objects:
            self.add(each)
        self._on_status, self._on_event = on_status, on_event
        self._version = 1
        self._watching: list[asyncio.Queue[bytes]] = []
        self._changed("ADDED")

    def add(self, document: JsonObject) -> None:
        if document["kind"] == "Secret":
            texts = document.get("stringData") or {}
            encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
            document = {**document, "data": {**(document.get("data") or {}), **encoded}}
        self._objects[_RESOURCES[document["kind"]], document["metadata"]["name"]] = document

    def delete(self, grace_s: int, now_s: float) -> None:
        """As a user deletes it; a second call can only shorten the grace period."""
        if self.pod is None:
            return
        metadata = dict(self.pod["metadata"])
        before = metadata.get("deletionGracePeriodSeconds", grace_s)
        metadata["deletionGracePeriodSeconds"] = min(before, grace_s)
        metadata["deletionTimestamp"] = rfc3339(now_s + min(before, grace_s))
        self.pod = {**self.pod, "metadata": metadata}
        self._changed("MODIFIED")

    async def send(self, request: Request) -> ApiResponse:
        parts = urlsplit(request.path).path.split("/")
        resource, name = _addressed(parts)
        if resource == "pods" and request.method == "GET":
            items = [self.pod] if self.pod is not None else []
            head = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(self._version)}}
            return _answer({**head, "items": items})
        if resource == "pods" and self.pod is not None and name == self.pod["metadata"]["name"]:
            return self._pod_request(request)
        if resource == "events" and request.method in ("POST", "PATCH"):
            event = msgspec.json.decode(request.body)
            if request.method == "POST":
                self._on_event(event)
            return _answer(event)
        if request.method == "GET" and (resource, name) in self._objects:
            return _answer(self._objects[resource, name])
        return _refused(404, "NotFound", f'{resource} "{name}" not found')

    async def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watching.append(queue)
        try:
            yield ApiResponse(200, b"")
            while True:
                yield await queue.get()
        finally:
            self._watching.remove(queue)

    def _pod_request(self, request: Request) -> ApiResponse:
        assert self.pod is not None
        pod = self.pod
        if request.method == "PATCH":
            self.pod = apply_strategic(_POD, pod, msgspec.json.decode(request.body))
            self._changed("MODIFIED")
            self._on_status(self.pod)
            return _answer(self.pod)
        if request.method == "DELETE":
            self._changed("DELETED")
            self.pod = None
            self.gone.set()
            return _answer(pod)
        return _refused(405, "MethodNotAllowed", request.method)

    def _changed(self, kind: str) -> None:
        assert self.pod is not None
        self._version += 1
        self.pod["metadata"] = {**self.pod["metadata"], "resourceVersion": str(self._version)}
        line = msgspec.json.encode({"type": kind, "object": self.pod})
        for queue in self._watching:
            queue.put_nowait(line)


def _addressed(parts: list[str]) -> tuple[str, str]:
    """Resource and name of a path: /api/v1/… or /apis/GROUP/v1/…, in a namespace or not."""
    rest = parts[3:] if parts[1] == "api" else parts[4:]
    rest = [*(rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest), "", ""]
    return rest[0], rest[1]


def _answer(document: JsonObject) -> ApiResponse:
    return ApiResponse(200, msgspec.json.encode(document))


def _refused(code: int, reason: str, message: str) -> ApiResponse:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return ApiResponse(code, msgspec.json.encode({**status, "code": code}))
