"""ResourceQuotas' status: what is used, recalculated when pods end or a quota changes (01 §9).

Admission charges a pod in its own transaction; this controller releases what ended pods no longer use. The patch names
the resourceVersion it was calculated on, so a charge made meanwhile is never lost. On a store that servers share, the
charge is a write of its own, before that of its object: until the object is there, it stays charged (`Charges`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from plimsoll.api.admission.quota import counted_names
from plimsoll.api.controllers.controller import Controller, ControllerContext, namespace_of
from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.admission.quota import SERVICE_COUNTS, bounds_claims, claims_used, increase, services_used, used_by
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod, ResourceList
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.timestamps import Clock, epoch_seconds

QUOTAS = ResourcePath("/api/v1", "resourcequotas")
PREFIX = "/resourcequotas/"
REQUEUE_S = 0.05
_QUOTAS = 1024  # above that, charges of deleted ones are forgotten
CHARGE_S = 12.0  # from a charge to its object, at most: all writes of a change together have 8 s (`store.etcd`)
_NOT_COUNTED = ("/events/", "coordination.k8s.io/leases/", PREFIX)  # frequent, or followed for themselves


class Charges:
    """Of one quota on a shared store: what was charged for objects that are not there yet.

    A charge is where `used` rises. It ends when the objects that are counted rise by as much, or after `CHARGE_S`.
    """

    def __init__(self) -> None:
        self._version = 0
        self._used: ResourceList = {}
        self._counted: ResourceList = {}
        self._expected: ResourceList | None = None  # what the controller itself writes, which charges nothing
        self._pending: list[tuple[float, ResourceList]] = []  # since when, oldest first

    def note(self, version: int, used: ResourceList, now_s: float) -> None:
        """Each version of the quota, in order; older ones are ignored."""
        if version <= self._version:
            return
        if used != self._expected and (charged := increase(used, self._used)):
            self._pending.append((now_s, charged))
        self._version, self._used = version, used

    def corrected(self, counted: ResourceList, now_s: float) -> ResourceList:
        """What to write as `used`: what is counted, and what is charged and not there yet."""
        arrived = increase(counted, self._counted)
        self._counted = counted
        pending = []
        for since_s, charged in self._pending:
            left = increase(charged, arrived)
            arrived = increase(arrived, charged)
            if left and now_s - since_s < CHARGE_S:
                pending.append((since_s, left))
        self._pending = pending
        found = dict(counted)
        for name in counted.keys() & self._used.keys():
            most = sum((charged[name] for _, charged in pending if name in charged), counted[name])
            found[name] = max(counted[name], min(self._used[name], most))
        self._expected = found
        return found

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)


def controller(context: ControllerContext, profile: Profile, clock: Clock, catalog: Catalog = BUILT_IN) -> Controller:
    def counted() -> dict[str, str]:
        """Name in quotas → where the objects are stored."""
        return {name: f"{kind.group}/{kind.plural}/" for kind in catalog.stored() for name in counted_names(kind)}

    def limited_namespace(key: str, body: bytes) -> Iterable[str]:
        if not context.store.has_any({PREFIX}):
            return ()
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
        prefixes, is_pending = counted(), False
        for document in quotas:
            hard = document.get("spec", {}).get("hard") or {}
            amounts = used_by(from_document(document, ResourceQuota), pods, profile, expired)
            used = {name: str(amount) for name, amount in amounts.items()}
            for name in hard.keys() - used.keys():
                prefix = prefixes.get(name)
                used[name] = str(context.store.count(f"{prefix}{namespace}/")) if prefix else "0"
            if any(map(bounds_claims, hard)):
                claims = [each async for each in context.each(f"/persistentvolumeclaims/{namespace}/")]
                used |= claims_used(from_document(document, ResourceQuota), claims)
            if SERVICE_COUNTS & hard.keys():
                used |= services_used([each async for each in context.each(f"/services/{namespace}/")], hard)
            if context.store.is_shared:
                used = with_charges(document, used)
                is_pending |= charges[document["metadata"]["uid"]].is_pending
            if not await _write(context, document, {"hard": hard, "used": used}):
                return REQUEUE_S
        return CHARGE_S if is_pending else None

    charges: dict[str, Charges] = {}  # by uid of the quota

    def note(key: str, body: bytes) -> Iterable[str]:
        if context.store.is_shared:
            noted(msgspec.json.decode(body))
        return namespace_of(key, body)

    def noted(document: JsonObject) -> Charges:
        metadata, used = document["metadata"], from_document(document, ResourceQuota).status.used or {}
        own = charges.setdefault(metadata["uid"], Charges())
        own.note(int(metadata["resourceVersion"]), used, time.monotonic())
        return own

    def with_charges(document: JsonObject, counted: dict[str, str]) -> dict[str, str]:
        amounts = {name: Quantity.parse(amount) for name, amount in counted.items()}
        corrected = noted(document).corrected(amounts, time.monotonic())
        live = {quota["metadata"]["uid"] for quota in context.documents(PREFIX)} if len(charges) > _QUOTAS else charges
        for uid in [uid for uid in charges if uid not in live]:
            del charges[uid]
        return {name: counted[name] if amounts[name] == amount else str(amount) for name, amount in corrected.items()}

    def of_any(key: str, body: bytes) -> Iterable[str]:
        return () if key.startswith(_NOT_COUNTED) else limited_namespace(key, body)

    sources = {"": of_any, PREFIX: note}
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
