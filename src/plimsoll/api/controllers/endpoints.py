"""Endpoints and EndpointSlices of services with a selector (`rules.controllers.endpoints`).

Of services without a selector other parties write the Endpoints, which `mirroring` copies into slices.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, NamespacePods
from plimsoll.kube import request
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.endpoints import (
    MANAGED_BY,
    SERVICE_NAME,
    SLICE_CONTROLLER,
    ZONE,
    ServedPod,
    SlicePlan,
    endpoints,
    selected,
    slices,
)
from plimsoll.rules.controllers.mirrored_endpoints import MIRRORING_CONTROLLER, is_mirrored, mirrored
from plimsoll.rules.model.json_object import JsonObject

ENDPOINTS = ResourcePath("/api/v1", "endpoints", "Endpoints")
SLICES = ResourcePath("/apis/discovery.k8s.io/v1", "endpointslices", "EndpointSlice")
SERVICES_PREFIX, PODS_PREFIX = "/services/", "/pods/"
ENDPOINTS_PREFIX, SLICES_PREFIX = "/endpoints/", "discovery.k8s.io/endpointslices/"
# The object is gone, another write was first, or the namespace is being deleted: what follows is another event.
_CHANGED = (403, 404, 409)
_SLICE = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1"}
_ENDPOINTS = {"kind": "Endpoints", "apiVersion": "v1"}
_POD = msgspec.json.Decoder(ServedPod)


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Labels


_LABELLED = msgspec.json.Decoder(_Labelled)


async def slices_of(context: ControllerContext, namespace: str, name: str, manager: str) -> list[JsonObject]:
    """The slices of a service that this controller manages."""
    own = {SERVICE_NAME: name, MANAGED_BY: manager}
    found = context.each(f"{SLICES_PREFIX}{namespace}/")
    return [each async for each in found if own.items() <= (each["metadata"].get("labels") or {}).items()]


async def carry_out(context: ControllerContext, plan: SlicePlan, namespace: str) -> None:
    for made in plan.create:
        await context.attempt(request.create(SLICES, {**_SLICE, **made}, namespace), _CHANGED)
    for changed in plan.update:
        name = changed["metadata"]["name"]
        await context.attempt(request.replace(SLICES, {**_SLICE, **changed}, name, namespace), _CHANGED)
    for gone in plan.delete:
        await context.attempt(request.delete(SLICES, gone["metadata"]["name"], namespace), _CHANGED)


def mirroring(context: ControllerContext) -> Controller:
    """Keys are those of Endpoints."""

    def of_service(key: str, body: bytes) -> Iterable[str]:
        return (ENDPOINTS_PREFIX + key.removeprefix(SERVICES_PREFIX),)

    def of_slice(key: str, body: bytes) -> Iterable[str]:
        labels = _LABELLED.decode(body).metadata.labels or {}
        if labels.get(MANAGED_BY) != MIRRORING_CONTROLLER:
            return ()
        return (f"{ENDPOINTS_PREFIX}{key.split('/')[2]}/{labels.get(SERVICE_NAME, '')}",)

    async def reconcile(key: str) -> float | None:
        _, _, namespace, name = key.split("/")
        found, service = context.document(key), context.document(f"{SERVICES_PREFIX}{namespace}/{name}")
        if service is not None and (service.get("spec") or {}).get("selector"):
            return None
        existing = await slices_of(context, namespace, name, MIRRORING_CONTROLLER)
        if found is not None and is_mirrored(found, service):
            await carry_out(context, mirrored(found, existing), namespace)
        else:
            await carry_out(context, SlicePlan([], [], existing), namespace)
        return None

    sources = {ENDPOINTS_PREFIX: lambda key, _: (key,), SERVICES_PREFIX: of_service, SLICES_PREFIX: of_slice}
    return Controller("endpointslice-mirroring", context.store, sources, reconcile)


def controller(context: ControllerContext) -> Controller:
    selecting: dict[str, dict[str, JsonObject]] = {}  # namespace → key → service with a selector
    pods = NamespacePods(context, _POD.decode)  # of namespaces with services

    def of_service(key: str, body: bytes) -> Iterable[str]:
        namespace = key.split("/")[2]
        service = context.document(key)
        known = selecting.setdefault(namespace, {})
        known.pop(key, None)
        if service is not None and (service.get("spec") or {}).get("selector"):
            known[key] = service
        if not known:
            del selecting[namespace]
            pods.forget(namespace)
        return (key,)

    def of_pod(key: str, body: bytes) -> Iterable[str]:
        services = selecting.get(key.split("/")[2])
        if not services:
            return ()
        labels = _LABELLED.decode(body).metadata.labels
        return [key for key, service in services.items() if selected(service, labels)]

    def of_endpoints(key: str, body: bytes) -> Iterable[str]:
        _, _, namespace, name = key.split("/")
        own = f"{SERVICES_PREFIX}{namespace}/{name}"
        return [own] if own in selecting.get(namespace, {}) else []

    def of_slice(key: str, body: bytes) -> Iterable[str]:
        labels = _LABELLED.decode(body).metadata.labels or {}
        if labels.get(MANAGED_BY) != SLICE_CONTROLLER:
            return ()
        return (f"{SERVICES_PREFIX}{key.split('/')[2]}/{labels.get(SERVICE_NAME, '')}",)

    def zones() -> dict[str, str]:
        nodes = context.documents("/nodes/")
        return {node["metadata"]["name"]: (node["metadata"].get("labels") or {}).get(ZONE, "") for node in nodes}

    async def reconcile(key: str) -> float | None:
        _, _, namespace, name = key.split("/")
        service = context.document(key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            if service is None and context.store.get(f"{ENDPOINTS_PREFIX}{namespace}/{name}") is not None:
                await context.attempt(request.delete(ENDPOINTS, name, namespace))
            return None
        spec = service.get("spec") or {}
        if not spec.get("selector") or spec.get("type") == "ExternalName":
            return None
        chosen = [pod async for pod in pods.of(namespace) if selected(service, pod.metadata.labels)]
        existing = await slices_of(context, namespace, name, SLICE_CONTROLLER)
        await carry_out(context, slices(service, chosen, zones(), existing), namespace)
        await write_endpoints(service, chosen)
        return None

    async def write_endpoints(service: JsonObject, chosen: list[ServedPod]) -> None:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        wanted = endpoints(service, chosen)
        old = context.document(f"{ENDPOINTS_PREFIX}{namespace}/{name}")
        if old is None:
            await context.attempt(request.create(ENDPOINTS, {**_ENDPOINTS, **wanted}, namespace), _CHANGED)
            return
        metadata = {**old["metadata"], "labels": wanted["metadata"]["labels"]}
        if "annotations" in wanted["metadata"]:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **wanted["metadata"]["annotations"]}
        if metadata == old["metadata"] and wanted["subsets"] == (old.get("subsets") or []):
            return
        changed = {**_ENDPOINTS, "metadata": metadata, "subsets": wanted["subsets"]}
        await context.attempt(request.replace(ENDPOINTS, changed, name, namespace), _CHANGED)

    sources = {
        SERVICES_PREFIX: of_service,
        PODS_PREFIX: of_pod,
        ENDPOINTS_PREFIX: of_endpoints,
        SLICES_PREFIX: of_slice,
    }
    return Controller("endpoints", context.store, sources, reconcile)
