"""The pods of one node and their events, in memory, as far as an agent and a test ask: where an API server is too slow.

A transport for `kube.client.Client`: the requests are the real ones, the answers hold what an API server's would.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plimsoll.codec.defaults.objects import with_kind_defaults
from plimsoll.codec.patch.strategic import apply_strategic
from plimsoll.codec.schema.schema import KINDS
from plimsoll.kube.request import ApiResponse, Request

Document = dict[str, Any]
POD = next(kind for kind in KINDS if kind.name == "Pod")
NOW = "2026-01-01T00:00:00Z"


class PodsApi:
    def __init__(self) -> None:
        self.pods: dict[str, Document] = {}
        self.events: list[Document] = []
        self._version = 1
        self._watching: list[asyncio.Queue[bytes]] = []

    async def send(self, request: Request) -> ApiResponse:
        parts = urlsplit(request.path).path.split("/")
        rest = parts[5:] if len(parts) > 5 and parts[3] == "namespaces" else parts[3:]
        resource, name = rest[0], rest[1] if len(rest) > 1 else ""
        body = msgspec.json.decode(request.body) if request.body else {}
        if resource == "events":
            return self._events(request, body)
        if resource != "pods":
            return refused(404, "NotFound", request.path)
        if request.method == "POST":
            return self._created(body)
        if not name:
            metadata = {"resourceVersion": str(self._version)}
            return answer(
                {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(self.pods.values())}
            )
        pod = self.pods.get(name)
        if pod is None:
            return refused(404, "NotFound", f'pods "{name}" not found')
        if request.method == "PATCH":
            self._put(name, apply_strategic(POD, pod, body), "MODIFIED", spec="status" not in rest)
        elif request.method == "DELETE":
            self._delete(name, pod, body)
        return answer(self.pods.get(name, pod))

    async def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watching.append(queue)
        try:
            yield ApiResponse(200, b"")
            while True:
                yield await queue.get()
        finally:
            self._watching.remove(queue)

    def _events(self, request: Request, body: Document) -> ApiResponse:
        if request.method == "GET":
            wanted = request.path.rpartition("involvedObject.name%3D")[2]
            found = [each for each in self.events if each["involvedObject"]["name"] == wanted]
            return answer({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": found})
        if request.method == "POST":
            self.events.append(body)
        return answer(body)

    def _created(self, document: Document) -> ApiResponse:
        metadata = {
            **document["metadata"],
            "namespace": "default",
            "uid": str(uuid.uuid4()),
            "creationTimestamp": NOW,
            "generation": 1,
        }
        made = with_kind_defaults(POD, document)
        self._put(metadata["name"], {**made, "metadata": metadata, "status": {"phase": "Pending"}}, "ADDED")
        return answer(self.pods[metadata["name"]])

    def _delete(self, name: str, pod: Document, options: Document) -> None:
        if options.get("gracePeriodSeconds") == 0:
            self._put(name, pod, "DELETED")
            return
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
        ending = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": grace_s}
        self._put(name, {**pod, "metadata": {**pod["metadata"], **ending}}, "MODIFIED")

    def _put(self, name: str, pod: Document, kind: str, *, spec: bool = False) -> None:
        self._version += 1
        metadata = {**pod["metadata"], "resourceVersion": str(self._version)}
        if spec:
            metadata["generation"] = metadata.get("generation", 1) + 1
        pod = {**pod, "metadata": metadata}
        if kind == "DELETED":
            del self.pods[name]
        else:
            self.pods[name] = pod
        line = msgspec.json.encode({"type": kind, "object": pod})
        for queue in self._watching:
            queue.put_nowait(line)


def answer(document: Document) -> ApiResponse:
    return ApiResponse(200, msgspec.json.encode(document))


def refused(code: int, reason: str, message: str) -> ApiResponse:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return ApiResponse(code, msgspec.json.encode({**status, "code": code}))
