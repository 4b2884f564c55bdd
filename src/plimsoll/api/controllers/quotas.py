"""ResourceQuotas' status: what is used, recalculated when pods end or a quota changes (01 §9).

Admission charges a pod in its own transaction; this controller releases what ended pods no longer use. The patch names
the resourceVersion it was calculated on, so a charge made meanwhile is never lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.admission.quota import counted_names
from plimsoll.api.controllers.controller import Controller, ControllerContext, namespace_of
from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.admission.quota import SERVICE_COUNTS, services_used, used_by
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock, epoch_seconds

QUOTAS = ResourcePath("/api/v1", "resourcequotas")
PREFIX = "/resourcequotas/"
REQUEUE_S = 0.05
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
            if SERVICE_COUNTS & hard.keys():
                used |= services_used(context.documents(f"/services/{namespace}/"), hard)
            if not await _write(context, document, {"hard": hard, "used": used}):
                return REQUEUE_S
        return None

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
