"""ClusterRoles with an aggregationRule: their rules are those of the roles that the selectors match."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, resource_path
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.kube import request
from plimsoll.rules.access.rbac import GROUP, PolicyRule, aggregated
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import LabelSelector
from plimsoll.rules.scheduling.selectors import matches_selector

_PREFIX = f"{GROUP}/clusterroles/"


def controller(context: ControllerContext) -> Controller:
    roles = resource_path(stored_resource("clusterroles"))

    def every_aggregate(_: str, __: bytes) -> Iterable[str]:
        return ("",)  # any role may be selected by any other; there are few

    async def reconcile(_: str) -> float | None:
        documents = context.documents(_PREFIX)
        for document in documents:
            if not document.get("aggregationRule"):
                continue
            rules = _joined(document, documents)
            if rules != _rules(document):
                # The change enqueues this again: a role that selects this one needs what it has become.
                change = {"rules": msgspec.to_builtins(rules)}
                name = document["metadata"]["name"]
                await context.attempt(request.patch(roles, name, change, content_type=request.MERGE))
        return None

    return Controller("role aggregation", context.store, {_PREFIX: every_aggregate}, reconcile)


def _joined(role: JsonObject, every: Iterable[JsonObject]) -> tuple[PolicyRule, ...]:
    written = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    selectors = msgspec.convert(written, tuple[LabelSelector, ...])
    own = role["metadata"]["name"]
    return aggregated(
        (each["metadata"]["name"], _rules(each))
        for each in every
        if each["metadata"]["name"] != own
        and any(matches_selector(selector, each["metadata"].get("labels")) for selector in selectors)
    )


def _rules(role: JsonObject) -> tuple[PolicyRule, ...]:
    return msgspec.convert(role.get("rules") or (), tuple[PolicyRule, ...])
