"""PodDisruptionBudgets' status: how many of their pods may be evicted now (`rules.controllers.disruption_budgets`)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.codec.lean.lean import from_document
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.disruption_budgets import budget_status
from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.controllers.replicasets import desired_replicas, is_active
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.scheduling.selectors import selects

BUDGETS = ResourcePath("/apis/policy/v1", "poddisruptionbudgets")
PREFIX = "policy/poddisruptionbudgets/"


def loop(shelf: ControllerContext) -> Controller:
    def of_namespace(key: str, _: bytes) -> Iterable[str]:
        return (key.split("/")[2],)

    def of_covered(key: str, _: bytes) -> Iterable[str]:
        namespace = key.split("/")[2]
        return (namespace,) if shelf.store.count(f"{PREFIX}{namespace}/") else ()

    async def look(namespace: str) -> float | None:
        budgets = shelf.documents(f"{PREFIX}{namespace}/")
        if not budgets:
            return None
        active = [pod for pod in shelf.documents(f"/pods/{namespace}/") if is_active(pod)]
        for document in budgets:
            selector = from_document(document, PodDisruptionBudget).spec.selector
            pods = [pod for pod in active if selects(selector, pod["metadata"].get("labels"))]
            status = budget_status(document, pods, _expected(shelf, namespace, pods))
            before = document.get("status") or {}
            if any(before.get(name) != value for name, value in status.items()):
                await shelf.client.ask(
                    request.patch(
                        BUDGETS,
                        document["metadata"]["name"],
                        {"status": status},
                        namespace,
                        "status",
                        content_type=request.MERGE,
                    )
                )
        return None

    return Controller("budgets", shelf.store, {PREFIX: of_namespace, "/pods/": of_covered}, look)


def _expected(shelf: ControllerContext, namespace: str, pods: list[JsonObject]) -> int:
    """What the pods' ReplicaSets want, and each pod without one for itself."""
    owners = {uid for pod in pods if (uid := controller_of(pod))}
    sets = [each for each in shelf.documents(f"apps/replicasets/{namespace}/") if each["metadata"]["uid"] in owners]
    known = {each["metadata"]["uid"] for each in sets}
    return sum(map(desired_replicas, sets)) + sum(controller_of(pod) not in known for pod in pods)
