"""Controllers that own pods: their pods, created and deleted with the events that belong to it."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.controllers.dependents import Dependents, Orphans
from plimsoll.api.controllers.events import EventRecorder
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.controllers.replicasets import batches
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock

PODS_PREFIX = "/pods/"


class PodOwner:
    """One kind of owner: its pods, and what may be done with them."""

    def __init__(
        self,
        context: ControllerContext,
        orphans: Orphans,
        kind: str,
        api_version: str,
        resource: ResourcePath,
        component: str,
        clock: Clock,
        *,
        finalizer: str = "",
    ) -> None:
        group = api_version.rpartition("/")[0]
        self.prefix = f"{group}/{resource.plural}/"
        self.kind, self.api_version, self.resource = kind, api_version, resource
        self.events = EventRecorder(context, component, kind, api_version, clock)
        self.dependents = Dependents(context, kind, self.prefix, orphans)
        self._context, self._finalizer = context, finalizer

    def reference(self, owner: JsonObject) -> JsonObject:
        return reference(owner, self.kind, self.api_version)

    async def pods(self, owner: JsonObject) -> list[JsonObject]:
        """Its pods after adoption and release."""
        return await self.dependents.claimed(owner, self.reference(owner), request.PODS, self._finalizer)

    async def create(self, owner: JsonObject, pod: JsonObject, words: str = "") -> JsonObject:
        """Raises ApiError. `words`: how a StatefulSet's events name what was done."""
        namespace = owner["metadata"]["namespace"]
        try:
            made = await self._context.client.ask(request.create(request.PODS, pod, namespace))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                failure = f"{words} failed error: {error.message}" if words else f"Error creating: {error.message}"
                await self.events.warning(owner, "FailedCreate", failure)
            raise
        self.dependents.note(f"{PODS_PREFIX}{namespace}/{made['metadata']['name']}")
        success = f"{words} successful" if words else f"Created pod: {made['metadata']['name']}"
        await self.events.normal(owner, "SuccessfulCreate", success)
        return made

    async def create_all(self, owner: JsonObject, pods: list[JsonObject]) -> ApiError | None:
        """In growing batches; the error of the first one that cannot be created. What is left is created later."""
        first: ApiError | None = None
        waiting = iter(pods)
        for size in batches(len(pods)):
            for _ in range(size):
                try:
                    await self.create(owner, next(waiting))
                except ApiError as error:
                    first = first or error
            if first is not None:
                return first
        return None

    async def delete(self, owner: JsonObject, pods: Iterable[JsonObject], words: str = "") -> None:
        for pod in pods:
            if await self._context.delete(request.PODS, pod):
                success = f"{words} successful" if words else f"Deleted pod: {pod['metadata']['name']}"
                await self.events.normal(owner, "SuccessfulDelete", success)
