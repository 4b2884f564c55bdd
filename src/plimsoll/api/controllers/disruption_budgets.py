"""PodDisruptionBudgets' status: how many of their pods may be evicted now (`rules.controllers.disruption_budgets`)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import Controller, ControllerContext, namespace_of
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.disruption_budgets import budget_status
from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.controllers.pods import desired_replicas, is_active
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.scheduling.selectors import selects

BUDGETS = ResourcePath("/apis/policy/v1", "poddisruptionbudgets")
PREFIX = "policy/poddisruptionbudgets/"


def controller(context: ControllerContext) -> Controller:
    def budgeted_namespace(key: str, body: bytes) -> Iterable[str]:
        return [namespace for namespace in namespace_of(key, body) if context.store.count(f"{PREFIX}{namespace}/")]

    async def reconcile(namespace: str) -> float | None:
        budgets = context.documents(f"{PREFIX}{namespace}/")
        if not budgets:
            return None
        active = [pod for pod in context.documents(f"/pods/{namespace}/") if is_active(pod)]
        for document in budgets:
            selector = from_document(document, PodDisruptionBudget).spec.selector
            pods = [pod for pod in active if selects(selector, pod["metadata"].get("labels"))]
            status = budget_status(document, pods, _expected(context, namespace, pods))
            before = document.get("status") or {}
            if any(before.get(name) != value for name, value in status.items()):
                await context.patch_status(BUDGETS, document, status)
        return None

    sources = {PREFIX: namespace_of, "/pods/": budgeted_namespace}
    return Controller("disruption-budgets", context.store, sources, reconcile)


def _expected(context: ControllerContext, namespace: str, pods: list[JsonObject]) -> int:
    """The desired replicas of the pods' ReplicaSets, and one for each pod without a ReplicaSet."""
    owners = {uid for pod in pods if (uid := controller_of(pod))}
    sets = [
        replica_set
        for replica_set in context.documents(f"apps/replicasets/{namespace}/")
        if replica_set["metadata"]["uid"] in owners
    ]
    known = {replica_set["metadata"]["uid"] for replica_set in sets}
    return sum(map(desired_replicas, sets)) + sum(controller_of(pod) not in known for pod in pods)
