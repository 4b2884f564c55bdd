"""Namespaces that are being deleted: everything in them goes, then the last finalizer, then they do."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext, itself, read
from plimsoll.api.machinery.kinds import RESOURCES
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, Request, ResourcePath

NAMESPACES = ResourcePath("/api/v1", "namespaces")
AGAIN_S = 1.0  # while something in it takes its time to go


def loop(shelf: ControllerContext) -> Controller:
    contents = [
        (f"{each.group}/{each.plural}/", ResourcePath(_base(each.group, each.version), each.plural), each.graceful)
        for each in RESOURCES
        if each.namespaced and each.storage == each.plural and "delete" in each.verbs
    ]

    async def look(key: str) -> float | None:
        found = shelf.document(key)
        if found is None or not found["metadata"].get("deletionTimestamp"):
            return None
        name = found["metadata"]["name"]
        left = 0
        for prefix, resource, _ in contents:
            for record in shelf.store.list(f"{prefix}{name}/")[1]:
                left += 1
                metadata = read(record)["metadata"]
                if not metadata.get("deletionTimestamp"):
                    await _ask_away(shelf, request.delete(resource, metadata["name"], name))
        if left and any(shelf.store.count(f"{prefix}{name}/") for prefix, _, _ in contents):
            return AGAIN_S
        found["spec"] = {**found.get("spec", {}), "finalizers": []}
        path = NAMESPACES.path(name=name, subresource="finalize")
        body = request.create(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", **found}).body
        await _ask_away(shelf, Request("PUT", path, body, request.JSON))
        return None

    return Controller("namespaces", shelf.store, {"/namespaces/": itself}, look)


async def _ask_away(shelf: ControllerContext, asked: Request) -> None:
    try:
        await shelf.client.ask(asked)
    except ApiError as error:
        if not error.is_gone:
            raise


def _base(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"
