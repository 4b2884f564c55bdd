"""What is left over when an owner goes: pods of a deleted ReplicaSet, ReplicaSets of a deleted Deployment.

Background deletion removes the owner at once, and here its dependents follow. With foreground deletion the owner waits,
marked, until those that block it are gone; with orphan deletion they lose their reference first.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.machinery.kinds import RESOURCES
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.controllers.owner_references import FOREGROUND, ORPHAN, blocks, is_left_over, owner_uids
from plimsoll.rules.model.json_object import JsonObject

AGAIN_S = 0.5


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, object]] | None = None


class _Head(msgspec.Struct):
    metadata: _Metadata


_HEAD = msgspec.json.Decoder(_Head)
_OWNERS, _FINALIZERS, _UID = b'"ownerReferences":', b'"finalizers":', b'"uid":"'


def _uid(body: bytes) -> str:
    """Of an object as it is stored: metadata comes first, and nothing before the uid can hold such a member."""
    start = body.index(_UID) + len(_UID)
    return body[start : body.index(b'"', start)].decode()


def loop(shelf: ControllerContext) -> Controller:
    shelves = {
        f"{each.group}/{each.plural}/": ResourcePath(
            f"/apis/{each.group}/{each.version}" if each.group else f"/api/{each.version}", each.plural
        )
        for each in RESOURCES
        if each.storage == each.plural and "delete" in each.verbs and each.plural != "events"
    }
    living: dict[str, str] = {}  # uid → key, of everything that may own something
    dependents: dict[str, set[str]] = {}  # owner's uid → keys

    def concerns(key: str, body: bytes) -> Iterable[str]:
        if _OWNERS not in body and _FINALIZERS not in body and shelf.store.get(key) is not None:
            living[_uid(body)] = key  # nearly all that happens ends here
            return ()
        metadata = _HEAD.decode(body).metadata
        if shelf.store.get(key) is None:
            living.pop(metadata.uid, None)
            return dependents.pop(metadata.uid, set())
        living[metadata.uid] = key
        found = [key] if metadata.owner_references or metadata.finalizers else []
        for each in metadata.owner_references or ():
            dependents.setdefault(str(each.get("uid", "")), set()).add(key)
        return found

    def resource_of(key: str) -> ResourcePath:
        group, plural, _, _ = key.split("/")
        return shelves[f"{group}/{plural}/"]

    async def look(key: str) -> float | None:
        found = shelf.document(key)
        if found is None:
            return None
        metadata = found["metadata"]
        resource, name, namespace = resource_of(key), metadata["name"], metadata.get("namespace", "")
        finalizers = metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp") and (FOREGROUND in finalizers or ORPHAN in finalizers):
            return await owner_leaves(found, resource, finalizers)
        if owner_uids(found) and is_left_over(found, living.keys()) and not metadata.get("deletionTimestamp"):
            await quietly(request.delete(resource, name, namespace, uid=metadata["uid"]))
        return None

    async def owner_leaves(owner: JsonObject, resource: ResourcePath, finalizers: list[str]) -> float | None:
        metadata = owner["metadata"]
        waiting = False
        for key in sorted(dependents.get(metadata["uid"], ())):
            each = shelf.document(key)
            if each is None or metadata["uid"] not in owner_uids(each):
                continue
            name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
            if ORPHAN in finalizers:
                left = [kept for kept in each["metadata"]["ownerReferences"] if kept["uid"] != metadata["uid"]]
                change = {"metadata": {"ownerReferences": left or None}}
                await quietly(request.patch(resource_of(key), name, change, namespace, content_type=request.MERGE))
                continue
            waiting = waiting or blocks(each, metadata["uid"])
            if not each["metadata"].get("deletionTimestamp"):
                await quietly(request.delete(resource_of(key), name, namespace, uid=each["metadata"]["uid"]))
        if waiting:
            return AGAIN_S
        change = {"metadata": {"finalizers": [each for each in finalizers if each not in (FOREGROUND, ORPHAN)] or None}}
        name, namespace = metadata["name"], metadata.get("namespace", "")
        await quietly(request.patch(resource, name, change, namespace, content_type=request.MERGE))
        return None

    async def quietly(asked: request.Request) -> None:
        """What is gone by itself, or is another object by now, is no trouble."""
        try:
            await shelf.client.ask(asked)
        except ApiError as error:
            if not error.is_gone and error.code != 409:
                raise

    return Controller("owners", shelf.store, dict.fromkeys(shelves, concerns), look)
