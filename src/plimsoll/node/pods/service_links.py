"""The services of a pod's namespace and default/kubernetes, read from the API when a container is created.

A service that exists when the node first sees the pod must be in its environment, so a list that was begun before is
not used. Pods that start together share one, for a second; an older one serves while the API server does not answer.
Static pods start without it, as with a kubelet. An API server that has no services, or does not show them to nodes, is
no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, Request, ResourcePath, UnreachableError, UnusableAnswerError
from plimsoll.rules.lifecycle.service_links import LinkedService, service_variables, with_server
from plimsoll.rules.model.runnable import RunPod

SERVICES = ResourcePath("/api/v1", "services", "Service")
NAMESPACE, NAME = "default", "kubernetes"
SHARED_S, KUBERNETES_S = 1.0, 60.0
ANSWER_S = 5.0
MAX_NAMESPACES = 256
_ABSENT = (403, 404)


class ServiceLinks:
    def __init__(self, client: Client, clock: Callable[[], float], server: LinkedService | None = None) -> None:
        """`server`: the API server as this node reaches it."""
        self._client, self._clock, self._server = client, clock, server
        self._known: dict[str, tuple[float, list[LinkedService]]] = {}  # by path: when it was read, and the answer

    async def variables(self, pod: RunPod, *, seen_s: float, is_static: bool) -> dict[str, str]:
        """`seen_s`: when the node first saw the pod. Raises ApiError or UnreachableError where the API server has never
        answered."""
        own: list[LinkedService] = []
        if pod.spec.enable_service_links is not False:
            listing = request.listing(SERVICES, namespace=pod.metadata.namespace)
            own = await self._services(listing, SHARED_S, seen_s, is_static=is_static)
        if all(each.metadata.name != NAME for each in own):
            get = request.get(SERVICES, NAME, NAMESPACE)
            own = [*await self._services(get, KUBERNETES_S, 0.0, is_static=is_static), *own]
        return service_variables(own if self._server is None or is_static else with_server(own, self._server))

    async def _services(self, what: Request, fresh_s: float, seen_s: float, *, is_static: bool) -> list[LinkedService]:
        known, now_s = self._known.get(what.path), self._clock()
        if known is not None and now_s - known[0] < fresh_s and known[0] >= seen_s:
            return known[1]
        if is_static:
            return known[1] if known is not None else []
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._read(what)
        except (ApiError, UnreachableError, TimeoutError) as error:
            if known is not None:
                return known[1]
            why = error if str(error) else f"no answer within {ANSWER_S:g} s"
            raise UnreachableError(f"services cannot be read: {why}") from error
        self._known[what.path] = now_s, found
        while len(self._known) > MAX_NAMESPACES:
            del self._known[next(iter(self._known))]
        return found

    async def _read(self, what: Request) -> list[LinkedService]:
        try:
            document = await self._client.ask(what)
        except ApiError as error:
            if error.code not in _ABSENT:
                raise
            return []
        found = document["items"] or [] if "items" in document else [document]
        try:
            return [msgspec.convert(each, LinkedService) for each in found]
        except msgspec.ValidationError as error:
            raise UnusableAnswerError(f"services: {error}") from None
