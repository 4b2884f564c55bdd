"""StatefulSets: pods with names and an order (`rules.controllers.statefulsets`)."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.dependents import Orphans
from plimsoll.api.controllers.pod_owners import PODS_PREFIX, PodOwner
from plimsoll.api.controllers.revisions import PREFIX as REVISIONS_PREFIX
from plimsoll.api.controllers.revisions import History, owner_changed
from plimsoll.api.controllers.storage.binder import CLAIMS, CLAIMS_PREFIX
from plimsoll.kube import request
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.controllers.revisions import hash_of
from plimsoll.rules.controllers.stateful_claims import claim_owners, claims_of, ordinal_of_claim
from plimsoll.rules.controllers.statefulsets import stateful_step
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import Clock

STATEFUL_SETS = ResourcePath("/apis/apps/v1", "statefulsets")


def controller(context: ControllerContext, pods: Orphans, revisions: Orphans, clock: Clock) -> Controller:
    """`pods`, `revisions`: those without a controller."""
    owner = PodOwner(context, pods, "StatefulSet", "apps/v1", STATEFUL_SETS, "statefulset-controller", clock)
    history = History(context, revisions, owner)

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None:
            return None
        own = await owner.pods(document)
        known = await history.of(document)
        update = await history.current(document, known)
        if update is None:
            return None  # the status has changed, which enqueues this key again
        name = (document.get("status") or {}).get("currentRevision")
        current = next((each for each in known if each["metadata"]["name"] == name), update)
        step = stateful_step(document, own, current, update, clock(), owner.reference(document))
        if document["spec"].get("volumeClaimTemplates"):
            await set_claim_owners(document, own)
        refused = await act(document, step.create, step.delete)
        await context.set_status(STATEFUL_SETS, document, step.status)
        live = {current["metadata"]["name"], update["metadata"]["name"], *map(hash_of, own)}
        await history.truncate(document, known, live)
        if refused is not None:
            raise refused
        return step.requeue_s

    async def act(
        document: JsonObject, create: tuple[JsonObject, ...], delete: tuple[JsonObject, ...]
    ) -> ApiError | None:
        """The first error of a pod that cannot be created; the name of one that was just deleted is free soon."""
        refused: ApiError | None = None
        suffix = f"in StatefulSet {document['metadata']['name']}"
        for pod in create:
            name = pod["metadata"]["name"]
            try:
                await ensure_claims(document, name)
                await owner.create(document, pod, f"create Pod {name} {suffix}")
            except ApiError as error:
                refused = refused or error
        for pod in delete:
            await owner.delete(document, [pod], f"delete Pod {pod['metadata']['name']} {suffix}")
        return refused

    async def ensure_claims(document: JsonObject, pod_name: str) -> None:
        """The claims of a pod exist before it does."""
        ordinal = int(pod_name.rpartition("-")[2])
        namespace = document["metadata"]["namespace"]
        for claim in claims_of(document, ordinal):
            if context.document(f"{CLAIMS_PREFIX}{namespace}/{claim['metadata']['name']}") is None:
                await context.client.ask(request.create(CLAIMS, claim, namespace))
                text = f"create Claim {claim['metadata']['name']} Pod {pod_name} in StatefulSet"
                await owner.events.normal(
                    document, "SuccessfulCreate", f"{text} {document['metadata']['name']} success"
                )

    async def set_claim_owners(document: JsonObject, own: Sequence[JsonObject]) -> None:
        pods = {each["metadata"]["name"]: each for each in own}
        name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
        async for claim in context.each(f"{CLAIMS_PREFIX}{namespace}/"):
            pod = pods.get(f"{name}-{ordinal_of_claim(document, claim)}")
            owners = claim_owners(document, claim, pod, owner.reference(document))
            if owners is not None:
                await context.patch(CLAIMS, claim, {"metadata": {"ownerReferences": owners}})

    sources = {
        owner.prefix: owner_changed(owner, history),
        PODS_PREFIX: owner.dependents.concerns,
        REVISIONS_PREFIX: history.dependents.concerns,
    }
    return Controller("statefulsets", context.store, sources, reconcile)
