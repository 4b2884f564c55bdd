"""ResourceQuotas' status: what is used, recalculated when pods end or a quota changes (01 §9).

Admission charges a pod in its own transaction; this controller releases what ended pods no longer use. The patch names
the resourceVersion it was calculated on, so a charge made meanwhile is never lost. On a store that servers share, the
charge is a write of its own, just before that of its object (`CHARGE_S`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from plimsoll.api.admission.quota import counted_names
from plimsoll.api.controllers.controller import Controller, ControllerContext, namespace_of
from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.admission.quota import SERVICE_COUNTS, bounds_claims, claims_used, services_used, used_by
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock, epoch_seconds

QUOTAS = ResourcePath("/api/v1", "resourcequotas")
PREFIX = "/resourcequotas/"
REQUEUE_S = 0.05
CHARGE_S = 1.0  # from a charge to its object, at most
_QUOTAS = 1024  # whose charges are remembered
_NOT_COUNTED = ("/events/", "coordination.k8s.io/leases/", PREFIX)  # frequent, or followed for themselves


def controller(context: ControllerContext, profile: Profile, clock: Clock, catalog: Catalog = BUILT_IN) -> Controller:
    def counted() -> dict[str, str]:
        """Name in quotas → where the objects are stored."""
        return {name: f"{kind.group}/{kind.plural}/" for kind in catalog.stored() for name in counted_names(kind)}

    def limited_namespace(key: str, body: bytes) -> Iterable[str]:
        return [namespace for namespace in namespace_of(key, body) if context.store.count(f"{PREFIX}{namespace}/")]

    def by_grace(every: list[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Those that count, and those whose deletion grace period has expired."""
        now_s = clock()
        late = {pod.metadata.uid for pod in every if (epoch_seconds(pod.metadata.deletion_timestamp) or now_s) < now_s}
        return (
            [pod for pod in every if pod.metadata.uid not in late],
            [pod for pod in every if pod.metadata.uid in late],
        )

    async def reconcile(namespace: str) -> float | None:
        quotas = context.documents(f"{PREFIX}{namespace}/")
        if not quotas:
            return None
        pods, expired = by_grace([pod async for pod in context.pods(f"/pods/{namespace}/")])
        prefixes = counted()
        for document in quotas:
            hard = document.get("spec", {}).get("hard") or {}
            amounts = used_by(from_document(document, ResourceQuota), pods, profile, expired)
            used = {name: str(amount) for name, amount in amounts.items()}
            for name in hard.keys() - used.keys():
                prefix = prefixes.get(name)
                used[name] = str(context.store.count(f"{prefix}{namespace}/")) if prefix else "0"
            if any(map(bounds_claims, hard)):
                claims = context.documents(f"/persistentvolumeclaims/{namespace}/")
                used |= claims_used(from_document(document, ResourceQuota), claims)
            if SERVICE_COUNTS & hard.keys():
                used |= services_used(context.documents(f"/services/{namespace}/"), hard)
            if is_charging(document, used):
                return CHARGE_S
            if not await _write(context, document, {"hard": hard, "used": used}):
                return REQUEUE_S
        return None

    charged: dict[str, tuple[str, float]] = {}  # by uid of the quota: its version, and since when

    def is_charging(document: JsonObject, used: dict[str, str]) -> bool:
        """On a shared store a charge is written before its object: a new one may be of an object that is on its way."""
        before = (document.get("status") or {}).get("used") or {}
        if not context.store.is_shared or before.keys() != used.keys() or before == used:
            return False
        metadata = document["metadata"]
        if charged.get(metadata["uid"], ("", 0.0))[0] != metadata["resourceVersion"]:
            if len(charged) >= _QUOTAS:
                charged.clear()
            charged[metadata["uid"]] = metadata["resourceVersion"], time.monotonic()
        return time.monotonic() - charged[metadata["uid"]][1] < CHARGE_S

    def of_any(key: str, body: bytes) -> Iterable[str]:
        return () if key.startswith(_NOT_COUNTED) else limited_namespace(key, body)

    sources = {"": of_any, PREFIX: namespace_of}
    return Controller("quotas", context.store, sources, reconcile)


async def _write(context: ControllerContext, document: JsonObject, status: JsonObject) -> bool:
    """False where the quota has changed meanwhile."""
    if status == document.get("status"):
        return True
    metadata = document["metadata"]
    before = document.get("status") or {}
    removed = {key: dict.fromkeys(before.get(key, {}).keys() - status[key].keys()) for key in status}
    change = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "status": {key: {**removed[key], **status[key]} for key in status},
    }
    name, namespace = metadata["name"], metadata["namespace"]
    try:
        await context.client.ask(request.patch(QUOTAS, name, change, namespace, "status", content_type=request.MERGE))
    except ApiError as error:
        if error.is_gone:
            return True
        if not error.is_conflict:
            raise
        return False
    return True
