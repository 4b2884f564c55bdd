"""Claims that a pod uses, and volumes bound to a claim, stay until they are not needed: then their finalizer goes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.storage.binder import CLAIMS, CLAIMS_PREFIX, VOLUMES, VOLUMES_PREFIX, bound_users
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.storage.binding import claims_of_pod
from plimsoll.rules.storage.objects import CLAIM_FINALIZER, VOLUME_FINALIZER

_DELETED = b'"deletionTimestamp":'


def controller(context: ControllerContext) -> Controller:
    def deleted(key: str, body: bytes) -> Iterable[str]:
        return (key,) if _DELETED in body else ()

    def of_pod(key: str, body: bytes) -> Iterable[str]:
        if b'"persistentVolumeClaim"' not in body and b'"ephemeral"' not in body:
            return ()
        namespace = key.split("/")[2]
        return [f"{CLAIMS_PREFIX}{namespace}/{name}" for name in claims_of_pod(msgspec.json.decode(body))]

    def of_claim(key: str, body: bytes) -> Iterable[str]:
        name = (msgspec.json.decode(body).get("spec") or {}).get("volumeName")
        return [*deleted(key, body), *([f"{VOLUMES_PREFIX}/{name}"] if name else [])]

    def is_used(claim: JsonObject) -> bool:
        return any(
            (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") for pod in bound_users(context, claim)
        )

    async def release(resource: ResourcePath, document: JsonObject, finalizer: str) -> None:
        metadata = document["metadata"]
        left = [each for each in metadata.get("finalizers") or [] if each != finalizer]
        change = {"metadata": {"finalizers": left or None, "resourceVersion": metadata["resourceVersion"]}}
        await context.patch(resource, document, change)

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None or not document["metadata"].get("deletionTimestamp"):
            return None
        finalizers = document["metadata"].get("finalizers") or []
        if key.startswith(CLAIMS_PREFIX):
            if CLAIM_FINALIZER in finalizers and not is_used(document):
                await release(CLAIMS, document, CLAIM_FINALIZER)
        elif VOLUME_FINALIZER in finalizers and (document.get("status") or {}).get("phase") != "Bound":
            await release(VOLUMES, document, VOLUME_FINALIZER)
        return None

    sources = {CLAIMS_PREFIX: of_claim, VOLUMES_PREFIX: deleted, "/pods/": of_pod}
    return Controller("storage protection", context.store, sources, reconcile)
