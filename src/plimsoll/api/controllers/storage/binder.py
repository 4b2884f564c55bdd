"""Binds claims to volumes that exist, and releases volumes whose claim is gone (`rules.storage.binding`).

Nothing makes volumes here: a claim that only a provisioner could satisfy stays Pending, and an event says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, read
from plimsoll.api.controllers.events import EventRecorder
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.storage.binding import (
    BOUND,
    BOUND_BY_CONTROLLER,
    claim_verdict,
    claims_of_pod,
    is_bound,
    refers_to,
    volume_phase,
)
from plimsoll.rules.storage.objects import class_of_claim
from plimsoll.rules.timestamps import Clock, rfc3339

CLAIMS, VOLUMES = ResourcePath("/api/v1", "persistentvolumeclaims"), ResourcePath("/api/v1", "persistentvolumes")
CLAIMS_PREFIX, VOLUMES_PREFIX = "/persistentvolumeclaims/", "/persistentvolumes/"
_CLASSES_PREFIX = "storage.k8s.io/storageclasses/"
_PODS_PREFIX = "/pods/"
RETRY_S = 15.0  # of claims that stay pending, as in Kubernetes


def bound_users(context: ControllerContext, claim: JsonObject) -> Iterator[JsonObject]:
    """Pods with a node that use the claim; most others are recognized by their text, since decoding takes long."""
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    named = b'"claimName":"%b"' % name.encode()
    for record in context.store.list(f"{_PODS_PREFIX}{namespace}/")[1]:
        body = record.body
        if b'"nodeName":"' in body and (named in body or b'"ephemeral":' in body):
            pod = read(record)
            if pod["spec"].get("nodeName") and name in claims_of_pod(pod):
                yield pod


def controller(context: ControllerContext, clock: Clock) -> Controller:
    events = EventRecorder(context, "persistentvolume-controller", "PersistentVolumeClaim", "v1", clock)
    volume_events = EventRecorder(context, "persistentvolume-controller", "PersistentVolume", "v1", clock)

    def pending(_key: str, _body: bytes) -> Iterable[str]:
        """A new volume or class may be what claims wait for."""
        return [record.key for record in context.store.list(CLAIMS_PREFIX)[1] if b'"phase":"Bound"' not in record.body]

    def volume_concerns(key: str, body: bytes) -> Iterable[str]:
        return [key, *pending(key, body)]

    def claim_concerns(key: str, body: bytes) -> Iterable[str]:
        name = (msgspec.json.decode(body).get("spec") or {}).get("volumeName")
        volumes = [f"{VOLUMES_PREFIX}/{name}"] if name else []
        if context.store.get(key) is None:  # gone: volumes that refer to it are released
            claim = msgspec.json.decode(body)
            volumes += [
                record.key for record in context.store.list(VOLUMES_PREFIX)[1] if refers_to(read(record), claim)
            ]
        return [key, *volumes]

    def pod_concerns(key: str, body: bytes) -> Iterable[str]:
        if b'"persistentVolumeClaim"' not in body and b'"ephemeral"' not in body:
            return ()
        namespace = key.split("/")[2]
        return [f"{CLAIMS_PREFIX}{namespace}/{name}" for name in claims_of_pod(msgspec.json.decode(body))]

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None:
            return None
        if key.startswith(VOLUMES_PREFIX):
            return await sync_volume(document)
        return await sync_claim(document)

    async def sync_claim(claim: JsonObject) -> float | None:
        if is_bound(claim):
            return await sync_bound(claim)
        volumes = context.documents(VOLUMES_PREFIX)
        name = class_of_claim(claim)
        storage_class = context.document(f"{_CLASSES_PREFIX}/{name}") if name else None
        verdict = claim_verdict(claim, volumes, storage_class, first_node(claim))
        if verdict.volume is None:
            if (claim.get("status") or {}).get("phase") != "Pending":
                await context.set_status(CLAIMS, claim, {**(claim.get("status") or {}), "phase": "Pending"})
            if verdict.event is not None:
                say = events.warning if verdict.event.type == "Warning" else events.normal
                await say(claim, verdict.event.reason, verdict.event.message)
            return RETRY_S
        if await bind(claim, verdict.volume):
            return None
        return 0.2

    def first_node(claim: JsonObject) -> JsonObject | None:
        """Of a pod that uses the claim and has a node."""
        pod = next(bound_users(context, claim), None)
        return None if pod is None else context.document(f"/nodes//{pod['spec']['nodeName']}")

    async def bind(claim: JsonObject, volume: JsonObject) -> bool:
        metadata, name = claim["metadata"], volume["metadata"]["name"]
        reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        known = (volume.get("spec") or {}).get("claimRef") or {}
        if known.get("uid") != metadata["uid"]:
            change: JsonObject = {
                "metadata": {"resourceVersion": volume["metadata"]["resourceVersion"]},
                "spec": {"claimRef": reference},
            }
            if not known:
                change["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
            if not await context.patch(VOLUMES, volume, change):
                return False
        annotations = {BOUND: "yes"}
        if not (claim.get("spec") or {}).get("volumeName"):
            annotations[BOUND_BY_CONTROLLER] = "yes"
        bound = {"metadata": {"annotations": annotations}, "spec": {"volumeName": name}}
        return await context.patch(CLAIMS, claim, bound)

    async def sync_bound(claim: JsonObject) -> float | None:
        name = claim["spec"]["volumeName"]
        volume = context.document(f"{VOLUMES_PREFIX}/{name}")
        status = dict(claim.get("status") or {})
        if volume is None or not refers_to(volume, claim):
            if status.get("phase") != "Lost":
                await context.set_status(CLAIMS, claim, {**status, "phase": "Lost"})
                text = (
                    "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
                    if volume is None
                    else "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
                )
                await events.warning(claim, "ClaimLost" if volume is None else "ClaimMisbound", text)
            return None
        spec = volume.get("spec") or {}
        # Later on the claim may ask for another class; its driver reports when the volume has it.
        if status.get("phase") != "Bound" and spec.get("volumeAttributesClassName"):
            status["currentVolumeAttributesClassName"] = spec["volumeAttributesClassName"]
        status |= {"phase": "Bound", "accessModes": spec.get("accessModes") or []}
        if not status.get("capacity"):
            status["capacity"] = spec.get("capacity") or {}
        await context.set_status(CLAIMS, claim, status)
        return await sync_volume(volume)

    async def sync_volume(volume: JsonObject) -> float | None:
        reference = (volume.get("spec") or {}).get("claimRef") or {}
        where = f"{CLAIMS_PREFIX}{reference.get('namespace')}/{reference.get('name')}"
        claim = context.document(where) if reference else None
        if claim is not None and not refers_to(volume, claim):
            claim = None
        phase = volume_phase(volume, claim)
        status = dict(volume.get("status") or {})
        policy = (volume.get("spec") or {}).get("persistentVolumeReclaimPolicy") or "Retain"
        if phase == "Released" and policy != "Retain":
            # Only a storage driver could delete what is on the volume.
            reason = (
                "error getting deleter volume plugin for volume" if policy == "Delete" else "no volume plugin matched"
            )
            text = f'{reason} "{volume["metadata"]["name"]}": no storage driver is running'
            phase, status["message"] = "Failed", text
            title = "VolumeFailedDelete" if policy == "Delete" else "VolumeFailedRecycle"
            if (volume.get("status") or {}).get("phase") != "Failed":
                await volume_events.warning(volume, title, text)
        elif phase != "Failed":
            status.pop("message", None)
        if status.get("phase") != phase:
            status |= {"phase": phase, "lastPhaseTransitionTime": rfc3339(clock())}
        await context.set_status(VOLUMES, volume, status)
        return None

    sources = {
        CLAIMS_PREFIX: claim_concerns,
        VOLUMES_PREFIX: volume_concerns,
        _CLASSES_PREFIX: pending,
        _PODS_PREFIX: pod_concerns,
    }
    return Controller("persistent volumes", context.store, sources, reconcile)
