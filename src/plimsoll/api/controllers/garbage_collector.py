"""Delete the dependents of deleted owners: pods of a ReplicaSet, ReplicaSets of a Deployment.

Background deletion removes the owner at once, and this controller then deletes its dependents. With foreground deletion
the owner keeps a finalizer until the dependents that block it are gone; with orphan deletion the dependents first lose
their owner reference.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, resource_path
from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.owner_references import (
    FOREGROUND,
    ORPHAN,
    blocks,
    is_left_over,
    owner_uids,
    propagation,
    unblocked,
    waits_for_dependents,
)
from plimsoll.rules.model.json_object import JsonObject

REQUEUE_S = 0.5
_REPLACED = (404, 409)  # the object is gone, or another one has its name


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, object]] | None = None


class _Head(msgspec.Struct):
    metadata: _Metadata


_HEAD = msgspec.json.Decoder(_Head)
_EVENTS = "/events/"  # they own nothing and have no owner
_OWNERS, _FINALIZERS, _UID = b'"ownerReferences":', b'"finalizers":', b'"uid":"'


def _uid(body: bytes) -> str:
    """Of a stored object: metadata comes first, and nothing before the uid can contain this member."""
    start = body.index(_UID) + len(_UID)
    return body[start : body.index(b'"', start)].decode()


def controller(context: ControllerContext, catalog: Catalog = BUILT_IN) -> Controller:
    existing: dict[str, str] = {}  # uid → key, of every object that may be an owner
    dependents: dict[str, set[str]] = {}  # owner's uid → keys

    def concerns(key: str, body: bytes) -> Iterable[str]:
        if key.startswith(_EVENTS):
            return ()
        if _OWNERS not in body and _FINALIZERS not in body and context.store.get(key) is not None:
            existing[_uid(body)] = key  # nearly every change ends here
            return ()
        metadata = _HEAD.decode(body).metadata
        if context.store.get(key) is None:
            existing.pop(metadata.uid, None)
            return dependents.pop(metadata.uid, set())
        existing[metadata.uid] = key
        for owner in metadata.owner_references or ():
            dependents.setdefault(str(owner.get("uid", "")), set()).add(key)
        return [key] if metadata.owner_references or metadata.finalizers else []

    def resource_of(key: str) -> ResourcePath | None:
        """None for a custom kind of which no version is served."""
        group, plural, _, _ = key.split("/")
        found = (resource_path(kind) for kind in catalog.stored() if (kind.group, kind.plural) == (group, plural))
        return next(found, None)

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None:
            return None
        metadata = document["metadata"]
        resource, name, namespace = resource_of(key), metadata["name"], metadata.get("namespace", "")
        if resource is None:
            return None
        finalizers = metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp") and (FOREGROUND in finalizers or ORPHAN in finalizers):
            return await finalize_owner(document, resource, finalizers)
        if owner_uids(document) and is_left_over(document, existing.keys()) and not metadata.get("deletionTimestamp"):
            policy = propagation(document)
            change = request.delete(resource, name, namespace, uid=metadata["uid"], propagation=policy)
            await context.attempt(change, _REPLACED)
        return None

    def has_other_owner(dependent: JsonObject, uid: str) -> bool:
        """One that exists and does not itself wait for its dependents to be deleted."""
        owners = [
            context.document(existing[each]) for each in owner_uids(dependent) if each != uid and each in existing
        ]
        return any(owner is not None and not waits_for_dependents(owner) for owner in owners)

    def dependents_of(uid: str) -> Iterable[tuple[JsonObject, ResourcePath]]:
        for key in sorted(dependents.get(uid, ())):
            dependent, path = context.document(key), resource_of(key)
            if dependent is not None and path is not None and uid in owner_uids(dependent):
                yield dependent, path

    async def delete_dependent(dependent: JsonObject, resource: ResourcePath) -> None:
        """Of an owner that waits for it. If its own dependents wait as well, owners may be in a circle: no longer
        blocking, it lets its owner go (as Kubernetes does, whether or not there is a circle)."""
        name, namespace, uid = (dependent["metadata"].get(field, "") for field in ("name", "namespace", "uid"))
        own = [each for each, _ in dependents_of(uid)]
        if any(map(waits_for_dependents, own)):
            change = {"metadata": {"uid": uid, "ownerReferences": unblocked(dependent)}}
            unblock = request.patch(resource, name, change, namespace, content_type=request.MERGE)
            await context.attempt(unblock, _REPLACED)
        policy = "Foreground" if own else propagation(dependent)
        await context.attempt(request.delete(resource, name, namespace, uid=uid, propagation=policy), _REPLACED)

    async def finalize_owner(owner: JsonObject, resource: ResourcePath, finalizers: list[str]) -> float | None:
        metadata = owner["metadata"]
        waiting = False
        for dependent, path in dependents_of(metadata["uid"]):
            name, namespace = dependent["metadata"]["name"], dependent["metadata"].get("namespace", "")
            if ORPHAN in finalizers or has_other_owner(dependent, metadata["uid"]):
                references = dependent["metadata"]["ownerReferences"]
                left = [reference for reference in references if reference["uid"] != metadata["uid"]]
                change = {"metadata": {"ownerReferences": left or None}}
                orphan = request.patch(path, name, change, namespace, content_type=request.MERGE)
                await context.attempt(orphan, _REPLACED)
                continue
            waiting = waiting or blocks(dependent, metadata["uid"])
            if not dependent["metadata"].get("deletionTimestamp"):
                await delete_dependent(dependent, path)
        if waiting:
            return REQUEUE_S
        left = [finalizer for finalizer in finalizers if finalizer not in (FOREGROUND, ORPHAN)]
        change = {"metadata": {"finalizers": left or None}}
        name, namespace = metadata["name"], metadata.get("namespace", "")
        await context.attempt(request.patch(resource, name, change, namespace, content_type=request.MERGE), _REPLACED)
        return None

    return Controller("garbage-collector", context.store, {"": concerns}, reconcile)
