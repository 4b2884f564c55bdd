"""ResourceQuotas' status: what is used, counted anew when pods end or a quota changes (01 §9).

Admission charges a pod in its own transaction; here what it no longer holds is given back. The patch names the version
it was counted on, so a charge that came between is never lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.admission.quota import counted_names
from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.machinery.kinds import RESOURCES
from plimsoll.codec.lean.lean import from_document, pod_from_json
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.admission.quota import used_by
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock, epoch_seconds

QUOTAS = ResourcePath("/api/v1", "resourcequotas")
PREFIX = "/resourcequotas/"
AGAIN_S = 0.05


def loop(shelf: ControllerContext, profile: Profile, clock: Clock) -> Controller:
    counted = {name: f"{each.group}/{each.plural}/" for each in RESOURCES for name in counted_names(each)}

    def of_namespace(key: str, _: bytes) -> Iterable[str]:
        return (key.split("/")[2],)

    def of_bounded(key: str, _: bytes) -> Iterable[str]:
        namespace = key.split("/")[2]
        return (namespace,) if shelf.store.count(f"{PREFIX}{namespace}/") else ()

    def by_grace(every: list[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Those that count, and those that should have gone by now."""
        now_s = clock()
        late = {pod.metadata.uid for pod in every if (epoch_seconds(pod.metadata.deletion_timestamp) or now_s) < now_s}
        return (
            [pod for pod in every if pod.metadata.uid not in late],
            [pod for pod in every if pod.metadata.uid in late],
        )

    async def look(namespace: str) -> float | None:
        quotas = shelf.documents(f"{PREFIX}{namespace}/")
        if not quotas:
            return None
        pods, expired = by_grace([pod_from_json(record.body) for record in shelf.store.list(f"/pods/{namespace}/")[1]])
        for document in quotas:
            hard = document.get("spec", {}).get("hard") or {}
            amounts = used_by(from_document(document, ResourceQuota), pods, profile, expired)
            used = {name: str(amount) for name, amount in amounts.items()}
            for name in hard.keys() - used.keys():
                prefix = counted.get(name)
                used[name] = str(shelf.store.count(f"{prefix}{namespace}/")) if prefix else "0"
            if not await _written(shelf, document, {"hard": hard, "used": used}):
                return AGAIN_S
        return None

    sources = {**dict.fromkeys(("/pods/", *counted.values()), of_bounded), PREFIX: of_namespace}
    return Controller("quotas", shelf.store, sources, look)


async def _written(shelf: ControllerContext, document: JsonObject, status: JsonObject) -> bool:
    """False where somebody else was faster."""
    if status == document.get("status"):
        return True
    metadata = document["metadata"]
    before = document.get("status") or {}
    gone = {key: dict.fromkeys(before.get(key, {}).keys() - status[key].keys()) for key in status}
    change = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "status": {key: {**gone[key], **status[key]} for key in status},
    }
    name, namespace = metadata["name"], metadata["namespace"]
    try:
        await shelf.client.ask(request.patch(QUOTAS, name, change, namespace, "status", content_type=request.MERGE))
    except ApiError as error:
        if error.is_gone:
            return True
        if not error.is_conflict:
            raise
        return False
    return True
