"""DELETE, in one step or in two (05 B6 Deletion).

A pod on a node first gets a deletionTimestamp and a grace period, and its node deletes it with grace period 0 when it
has stopped. Grace period 0 also writes the timestamp, so that watchers get MODIFIED before DELETED. Finalizers keep any
object until the last one is removed; a namespace is kept by `spec.finalizers` as well.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from plimsoll.api.admission.chain import PROTECTED_NAMESPACES
from plimsoll.api.admission.hooks import Change, check_hooks, has_hooks
from plimsoll.api.admission.node_restriction import check_delete
from plimsoll.api.handlers.create import give_back
from plimsoll.api.handlers.list import ListPage, listed, selected_records
from plimsoll.api.machinery.bodies import read_delete_options
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.metadata import body_of, check_preconditions, unstamped_body
from plimsoll.api.machinery.negotiate import PLAIN
from plimsoll.api.machinery.request_info import DeleteOptions, delete_options
from plimsoll.api.machinery.status import StatusError, forbidden, not_found, object_details, success
from plimsoll.rules.admission.custom_resources.definitions import CLEANUP_FINALIZER
from plimsoll.rules.controllers.owner_references import FOREGROUND, ORPHAN
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.resources.defaulting import BUILT_IN
from plimsoll.rules.timestamps import epoch_seconds, rfc3339
from plimsoll.store.records import Decision, Delete, Record

_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
# Older than garbage collection: without a policy in the request their pods stay. kubectl always sends one.
_ORPHANS_BY_DEFAULT = ("jobs", "replicationcontrollers")


class Deletion(msgspec.Struct, frozen=True):
    """What a delete does to an object: nothing, write `document`, or write it and then remove it."""

    act: Literal["leave", "mark", "mark-and-remove", "remove"]
    document: JsonObject


async def delete(cluster: Cluster, call: ApiCall) -> Response:
    info, resource = call.info, call.info.resource
    options = delete_options(await read_delete_options(cluster, call), info)
    _check_protected(resource, info.name)
    return await delete_object(cluster, call, info.name, options)


def _check_protected(resource: ApiResource, name: str) -> None:
    if resource.storage == "namespaces" and name in PROTECTED_NAMESPACES:
        raise forbidden(resource, name, "this namespace may not be deleted")
    if resource.storage == "priorityclasses" and name in BUILT_IN:
        raise forbidden(resource, name, "this is a system priority class and cannot be deleted")


async def delete_object(cluster: Cluster, call: ApiCall, name: str, options: DeleteOptions) -> Response:
    resource, namespace = call.info.resource, call.info.namespace
    where = key(resource, namespace, name)
    seen: list[Deletion] = []
    if has_hooks(cluster, resource):
        await _check_hooks(cluster, call, name, options)

    def mark(record: Record | None, version: int) -> Decision:
        if record is None:
            raise not_found(resource, name)
        old = decoded(record)
        check_delete(call, old)
        check_preconditions(resource, name, old["metadata"], options.uid, options.resource_version)
        deletion = decide_deletion(resource, old, options, cluster.clock())
        seen[:] = [deletion]
        if options.dry_run or deletion.act == "leave":
            return None
        body = body_of(deletion.document, version)
        return Delete(body) if deletion.act == "remove" else body

    def remove(record: Record | None, version: int) -> Decision:
        """The second step of a grace-0 delete, if the object has not changed in between."""
        if record is None or not seen or seen[0].act != "mark-and-remove" or options.dry_run:
            return None
        old = decoded(record)
        if old["metadata"].get("finalizers") or not old["metadata"].get("deletionTimestamp"):
            return None
        return Delete(body_of(old, version))

    if resource.graceful:
        # Both in one transaction: the second decides on what the first writes.
        marked, removed = await asyncio.gather(
            cluster.store.change(where, mark), cluster.store.change(where, remove), return_exceptions=True
        )
        for outcome in (marked, removed):
            if isinstance(outcome, BaseException):
                raise outcome
        final = removed if seen[0].act == "mark-and-remove" else marked
        assert not isinstance(final, BaseException)
    else:
        final = await cluster.store.change(where, mark)
    deletion = seen[0]
    if not options.dry_run and deletion.act == "remove":
        await give_back(cluster, resource, deletion.document, None)
    if options.dry_run:
        return _answer(resource, deletion, unstamped_body(deletion.document))
    body = final.body if final is not None else unstamped_body(deletion.document)
    return _answer(resource, deletion, body)


async def _check_hooks(cluster: Cluster, call: ApiCall, name: str, options: DeleteOptions) -> None:
    resource = call.info.resource
    record = cluster.store.get(key(resource, call.info.namespace, name))
    if record is None:
        return
    old = {"kind": resource.kind, "apiVersion": resource.group_version, **decoded(record)}
    sent = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    named = msgspec.structs.replace(call, info=msgspec.structs.replace(call.info, name=name))
    await check_hooks(cluster, named, Change("DELETE", None, old, options.dry_run, sent))


def _answer(resource: ApiResource, deletion: Deletion, body: bytes) -> Response:
    if deletion.act != "remove" or resource.graceful:
        return Response(200, body)
    metadata = deletion.document["metadata"]
    details = object_details(metadata["name"], resource.group, resource.plural)
    return Response(200, success(details={**details, "uid": metadata["uid"]}), is_ready=True)


# --- the effect on one object ---


def decide_deletion(resource: ApiResource, old: JsonObject, options: DeleteOptions, now_s: float) -> Deletion:
    """The table of 05 B6, row by row."""
    document = {**old, "metadata": _with_propagation(resource, old["metadata"], options.propagation)}
    if resource.graceful:
        return _graceful(document, old, options, now_s)
    metadata = document["metadata"]
    if resource.storage == "namespaces":
        return _namespace(document, now_s)
    if resource.storage == "customresourcedefinitions" and not metadata.get("deletionTimestamp"):
        _keep_until_clean(document, now_s)
    if metadata.get("finalizers"):
        if metadata.get("deletionTimestamp") and metadata == old["metadata"]:
            return Deletion("leave", old)
        metadata.setdefault("deletionTimestamp", rfc3339(now_s))
        metadata["deletionGracePeriodSeconds"] = 0
        return Deletion("mark", document)
    return Deletion("remove", document)


def _keep_until_clean(definition: JsonObject, now_s: float) -> None:
    """A definition stays until the objects of its kind are deleted."""
    metadata, status = definition["metadata"], definition.get("status") or {}
    if CLEANUP_FINALIZER not in (metadata.get("finalizers") or []):
        metadata["finalizers"] = [*(metadata.get("finalizers") or []), CLEANUP_FINALIZER]
    terminating = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": rfc3339(now_s),
        "reason": "InstanceDeletionInProgress",
        "message": "CustomResource deletion is in progress",
    }
    others = [each for each in status.get("conditions") or [] if each.get("type") != "Terminating"]
    definition["status"] = {**status, "conditions": [*others, terminating]}


def _with_propagation(resource: ApiResource, metadata: JsonObject, propagation: str) -> JsonObject:
    """The finalizer of the policy in place of any other: of the request, else of the object, else of its kind."""
    finalizers = metadata.get("finalizers") or []
    if not propagation and not any(finalizer in finalizers for finalizer in _FINALIZERS.values()):
        propagation = "Orphan" if resource.storage in _ORPHANS_BY_DEFAULT else ""
    if not propagation:
        return dict(metadata)
    kept = [finalizer for finalizer in finalizers if finalizer not in _FINALIZERS.values()]
    wanted = [_FINALIZERS[propagation]] if propagation in _FINALIZERS else []
    if set(kept + wanted) == set(finalizers):
        return dict(metadata)
    rest = {name: value for name, value in metadata.items() if name != "finalizers"}
    return {**rest, "finalizers": kept + wanted} if kept + wanted else rest


def _namespace(document: JsonObject, now_s: float) -> Deletion:
    metadata, spec = document["metadata"], document.get("spec") or {}
    kept: Literal["leave", "mark"] = "leave"
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = rfc3339(now_s)
        status = {**(document.get("status") or {}), "phase": "Terminating"}
        document, kept = {**document, "status": status}, "mark"
    is_kept = spec.get("finalizers") or metadata.get("finalizers")
    return Deletion(kept if is_kept else "remove", document)


def _graceful(document: JsonObject, old: JsonObject, options: DeleteOptions, now_s: float) -> Deletion:
    metadata = document["metadata"]
    grace_s = _grace(old, options)
    before = old["metadata"].get("deletionTimestamp")
    if not before:
        metadata["generation"] = (metadata.get("generation") or 0) + 1
        metadata["deletionTimestamp"] = rfc3339(now_s + grace_s)
        metadata["deletionGracePeriodSeconds"] = grace_s
    else:
        before_s = metadata.get("deletionGracePeriodSeconds") or 0
        if options.grace_s is None and grace_s and before_s:
            return _unchanged(old, document)
        if grace_s >= before_s and before_s:
            return _unchanged(old, document)
        if grace_s:
            if not before_s:
                return _unchanged(old, document)
            first_s = (epoch_seconds(before) or now_s) - before_s
            due_s = first_s + grace_s
            if due_s < now_s:
                due_s, grace_s = now_s, 1
            metadata["deletionTimestamp"] = rfc3339(due_s)
            metadata["deletionGracePeriodSeconds"] = grace_s
            return Deletion("mark", document)
        if before_s:
            metadata["deletionTimestamp"] = rfc3339(now_s)
            metadata["deletionGracePeriodSeconds"] = 0
    if grace_s:
        return Deletion("mark", document)
    if not metadata.get("finalizers"):
        return Deletion("mark-and-remove", document)
    return _unchanged(old, document) if metadata == old["metadata"] else Deletion("mark", document)


def _unchanged(old: JsonObject, document: JsonObject) -> Deletion:
    """Only a propagation policy can have changed it."""
    return Deletion("leave", old) if document["metadata"] == old["metadata"] else Deletion("mark", document)


def _grace(pod: JsonObject, options: DeleteOptions) -> int:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    grace_s = options.grace_s
    if grace_s is None:
        grace_s = spec.get("terminationGracePeriodSeconds")
        grace_s = 30 if grace_s is None else grace_s
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    return 1 if grace_s < 0 else grace_s


# --- collections ---


async def delete_collection(cluster: Cluster, call: ApiCall) -> Response:
    """Delete every match by the rules above; the response has them as they were."""
    info, resource = call.info, call.info.resource
    options = delete_options(await read_delete_options(cluster, call), info)
    version, records = await selected_records(cluster, call)
    for record in records:
        name = record.key.rpartition("/")[2]
        if resource.storage == "priorityclasses" and name in BUILT_IN:
            continue
        try:
            await delete_object(cluster, call, name, options)
        except StatusError as error:
            if error.code != 404:  # deleted meanwhile, as requested
                raise
    return await listed(cluster, call, ListPage(version, records), PLAIN)
