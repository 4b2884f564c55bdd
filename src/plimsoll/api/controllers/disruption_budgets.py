"""PodDisruptionBudgets' status: how many of their pods may be evicted now (`rules.controllers.disruption_budgets`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, NamespacePods, namespace_of, unhurried
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.disruption_budgets import BudgetedPod, budget_status, budgeted_pod
from plimsoll.rules.controllers.pods import desired_replicas
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.scheduling.selectors import selects

BUDGETS = ResourcePath("/apis/policy/v1", "poddisruptionbudgets")
PREFIX = "policy/poddisruptionbudgets/"


def controller(context: ControllerContext) -> Controller:
    def budgeted_namespace(key: str, body: bytes) -> Iterable[str]:
        if not context.store.has_any({PREFIX}):
            return ()
        return [namespace for namespace in namespace_of(key, body) if context.store.count(f"{PREFIX}{namespace}/")]

    known = NamespacePods(context, _read)  # of namespaces with budgets

    async def reconcile(namespace: str) -> float | None:
        budgets = [each async for each in context.each(f"{PREFIX}{namespace}/")]
        if not budgets:
            known.forget(namespace)
            return None
        active = [pod async for pod in known.of(namespace) if pod.is_active]
        for document in budgets:
            selector = from_document(document, PodDisruptionBudget).spec.selector
            pods = [pod async for pod in unhurried(active) if selects(selector, pod.labels)]
            status = budget_status(document, pods, await _expected(context, namespace, pods))
            before = document.get("status") or {}
            if any(before.get(name) != value for name, value in status.items()):
                await context.patch_status(BUDGETS, document, status)
        return None

    sources = {PREFIX: namespace_of, "/pods/": budgeted_namespace}
    return Controller("disruption-budgets", context.store, sources, reconcile)


def _read(body: bytes) -> BudgetedPod:
    return budgeted_pod(msgspec.json.decode(body))


_SCALED = ("apps/replicasets", "apps/statefulsets", "/replicationcontrollers")


async def _expected(context: ControllerContext, namespace: str, pods: list[BudgetedPod]) -> int:
    """The desired replicas of the pods' controllers, and one for each pod without one that has replicas.

    The pods of a deployment's ReplicaSets are as many as the deployment says, also while it rolls out.
    """
    controllers = Counter([pod.controller for pod in pods])
    owners = controllers.keys() - {""}
    scaled: dict[str, JsonObject] = {}
    known: set[str] = set()
    for prefix in _SCALED if owners else ():
        async for each in context.each(f"{prefix}/{namespace}/"):
            if each["metadata"]["uid"] in owners:
                known.add(each["metadata"]["uid"])
                top = _deployment(context, namespace, each) or each
                scaled[top["metadata"]["uid"]] = top
    return sum(map(desired_replicas, scaled.values())) + sum(
        count for uid, count in controllers.items() if uid not in known
    )


def _deployment(context: ControllerContext, namespace: str, replica_set: JsonObject) -> JsonObject | None:
    for owner in replica_set["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "Deployment":
            found = context.document(f"apps/deployments/{namespace}/{owner['name']}")
            if found is not None and found["metadata"]["uid"] == owner["uid"]:
                return found
    return None
