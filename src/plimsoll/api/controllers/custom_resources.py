"""CustomResourceDefinitions: accepts their names, serves their kinds, and deletes the objects of deleted ones."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key, resource_path
from plimsoll.api.machinery.catalog import Catalog, custom_resources
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.admission.custom_resources.definitions import CLEANUP_FINALIZER, conditions, names_conflict
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock, rfc3339

DEFINITIONS = ResourcePath("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition")
PREFIX = "apiextensions.k8s.io/customresourcedefinitions/"
REQUEUE_S = 0.5  # while objects of a deleted kind terminate


class ServedDefinitions:
    """Keeps the catalog equal to the stored definitions; `changed` is called after every change of it."""

    def __init__(self, context: ControllerContext, catalog: Catalog, changed: Callable[[Catalog], None]) -> None:
        self._context, self.catalog, self._changed = context, catalog, changed
        self._known: dict[str, tuple[str, tuple[ApiResource, ...]]] = {}  # name → what counts of it, its resources

    def refresh(self) -> None:
        """A definition whose spec and names are unchanged keeps its resources, with what is computed from them."""
        found: dict[str, tuple[str, tuple[ApiResource, ...]]] = {}
        for definition in self._context.documents(PREFIX):
            metadata, status = definition["metadata"], definition.get("status") or {}
            parts = [metadata["uid"], metadata.get("generation"), bool(metadata.get("deletionTimestamp"))]
            state = [(each.get("type"), each.get("status")) for each in status.get("conditions") or []]
            identity = msgspec.json.encode([*parts, status.get("acceptedNames"), state]).decode()
            known = self._known.get(metadata["name"])
            if known is None or known[0] != identity:
                known = identity, tuple(custom_resources(definition))
            found[metadata["name"]] = known
        if found == self._known:
            return
        self._known = found
        self.catalog.set_custom(each for _, resources in found.values() for each in resources)
        self._changed(self.catalog)


def serving(context: ControllerContext, served: ServedDefinitions) -> Controller:
    """On every server: another one may have changed a definition."""

    async def reconcile(key: str) -> None:
        served.refresh()

    return Controller("served-definitions", context.store, {PREFIX: own_key}, reconcile)


def controller(context: ControllerContext, served: ServedDefinitions, clock: Clock) -> Controller:
    async def reconcile(key: str) -> float | None:
        definition = context.document(key)
        served.refresh()
        if definition is None:
            return None
        if definition["metadata"].get("deletionTimestamp"):
            return await clean_up(definition)
        others = [each for each in context.documents(PREFIX) if not each["metadata"].get("deletionTimestamp")]
        now = rfc3339(clock())
        status = conditions(definition, names_conflict(definition, others), now)
        if status != definition.get("status"):
            version = definition["metadata"]["resourceVersion"]
            change = {"metadata": {"resourceVersion": version}, "status": status}
            name = definition["metadata"]["name"]
            await context.attempt(
                request.patch(DEFINITIONS, name, change, subresource="status", content_type=request.MERGE), (404, 409)
            )
            served.refresh()
        return None

    async def clean_up(definition: JsonObject) -> float | None:
        """Delete every object of the kind, then let the definition go."""
        finalizers = definition["metadata"].get("finalizers") or []
        if CLEANUP_FINALIZER not in finalizers:
            return None
        spec = definition["spec"]
        prefix = f"{spec['group']}/{spec['names']['plural']}/"
        path = next((resource_path(each) for each in served.catalog.custom if _is_of(each, definition)), None)
        records = context.store.list(prefix)[1] if path is not None else []
        for record in records:
            metadata = msgspec.json.decode(record.body)["metadata"]
            if not metadata.get("deletionTimestamp") and path is not None:
                await context.attempt(request.delete(path, metadata["name"], metadata.get("namespace", "")))
        if path is not None and context.store.count(prefix):
            return REQUEUE_S
        left = [each for each in finalizers if each != CLEANUP_FINALIZER]
        change = {"metadata": {"finalizers": left or None}}
        name = definition["metadata"]["name"]
        await context.attempt(request.patch(DEFINITIONS, name, change, content_type=request.MERGE))
        served.refresh()
        return None

    return Controller("custom-resources", context.store, {PREFIX: own_key}, reconcile)


def _is_of(resource: ApiResource, definition: JsonObject) -> bool:
    return resource.custom is not None and resource.custom.uid == definition["metadata"]["uid"]
