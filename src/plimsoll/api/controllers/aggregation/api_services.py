"""An APIService for each served group and version: what is missing is written again, what is left over is removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from plimsoll.api.controllers.controller import Controller, ControllerContext, resource_path
from plimsoll.api.machinery.cluster import Cluster, key, prefix
from plimsoll.api.machinery.kinds import GROUPS, stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.kube import request
from plimsoll.rules.controllers.api_services import AUTO_MANAGED, local_service, local_status, service_name
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.records import Decision, Record

_DEFINITIONS = prefix(stored_resource("customresourcedefinitions"))
_SERVICES = prefix(stored_resource("apiservices"))
_KIND = {"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1"}
_GONE_OR_THERE = (404, 409)


async def ensure_built_in(cluster: Cluster) -> None:
    """At the start, so that they are there with the first request. Idempotent."""

    async def ensure(group: str, version: str) -> None:
        document = {**local_service(group, version), "status": local_status(cluster.now())}
        own = {"uid": cluster.new_uid(), "creationTimestamp": cluster.now()}

        def decide(record: Record | None, revision: int) -> Decision:
            whole = {**document, "metadata": {**document["metadata"], **own}}
            return None if record is not None else body_of(whole, revision)

        await cluster.store.change(_key(group, version), decide)

    await asyncio.gather(*(ensure(group, version) for group, version in sorted(GROUPS)))


def _key(group: str, version: str) -> str:
    return key(stored_resource("apiservices"), "", service_name(group, version))


def missing(cluster: Cluster) -> str:
    """Of the server's own groups, for the health check: empty if there is an APIService for each."""
    names = [service_name(*each) for each in sorted(GROUPS) if cluster.store.get(_key(*each)) is None]
    return f"missing APIService: [{' '.join(names)}]" if names else ""


def controller(context: ControllerContext) -> Controller:
    services = resource_path(stored_resource("apiservices"))

    def every(_: str, __: bytes) -> Iterable[str]:
        return ("",)  # there are few

    async def reconcile(_: str) -> float | None:
        wanted = {service_name(*each): each for each in (*GROUPS, *_custom(context.documents(_DEFINITIONS)))}
        found = {each["metadata"]["name"]: each for each in context.documents(_SERVICES)}
        for name in wanted.keys() - found.keys():
            made = {**_KIND, **local_service(*wanted[name])}
            await context.attempt(request.create(services, made), _GONE_OR_THERE)
        for name, document in found.items():
            if name not in wanted and AUTO_MANAGED in (document["metadata"].get("labels") or {}):
                await context.attempt(request.delete(services, name), _GONE_OR_THERE)
        return None

    return Controller("apiservices", context.store, {_DEFINITIONS: every, _SERVICES: every}, reconcile)


def _custom(definitions: list[JsonObject]) -> Iterator[tuple[str, str]]:
    for definition in definitions:
        spec = definition.get("spec") or {}
        yield from ((spec["group"], each["name"]) for each in spec.get("versions") or [] if each.get("served"))
