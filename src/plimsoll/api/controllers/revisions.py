"""ControllerRevisions of StatefulSets and DaemonSets (`rules.controllers.revisions`)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import Concerns, ControllerContext
from plimsoll.api.controllers.dependents import Dependents, Orphans
from plimsoll.api.controllers.pod_owners import PodOwner
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.controllers.revisions import revision_step, surplus_revisions
from plimsoll.rules.model.json_object import JsonObject

REVISIONS = ResourcePath("/apis/apps/v1", "controllerrevisions")
PREFIX = "apps/controllerrevisions/"


class History:
    """The revisions of one kind of owner."""

    def __init__(self, context: ControllerContext, orphans: Orphans, owner: PodOwner) -> None:
        self._context, self._owner = context, owner
        self.dependents = Dependents(context, owner.kind, owner.prefix, orphans)

    async def of(self, owner: JsonObject) -> list[JsonObject]:
        return await self.dependents.claimed(owner, self._owner.reference(owner), REVISIONS)

    async def current(self, owner: JsonObject, history: list[JsonObject]) -> JsonObject | None:
        """The revision of the owner's template, created if there is none; None: its name is taken, try again."""
        step = revision_step(owner, history, self._owner.reference(owner))
        namespace = owner["metadata"]["namespace"]
        if step.current is not None:
            return step.current
        if step.renumber is not None:
            await self._context.patch(REVISIONS, step.renumber, {"revision": step.number})
            return {**step.renumber, "revision": step.number}
        assert step.create is not None
        try:
            made: JsonObject = await self._context.client.ask(request.create(REVISIONS, step.create, namespace))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            status = owner.get("status") or {}
            taken = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
            await self._context.set_status(self._owner.resource, owner, taken)
            return None
        self.dependents.note(f"{PREFIX}{namespace}/{made['metadata']['name']}")
        return made

    async def truncate(self, owner: JsonObject, history: list[JsonObject], live: Iterable[str]) -> None:
        for each in surplus_revisions(owner, history, live):
            await self._context.delete(REVISIONS, each)


def owner_changed(owner: PodOwner, history: History) -> Concerns:
    """An owner concerns itself; both indexes keep its selector."""

    def concerns(key: str, body: bytes) -> Iterable[str]:
        history.dependents.owner_changed(key, body)
        return owner.dependents.owner_changed(key, body)

    return concerns
