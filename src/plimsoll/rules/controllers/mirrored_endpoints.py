"""EndpointSlices for Endpoints that other parties write, of services without a selector.

Readers of slices find these addresses, too: one slice for each set of ports and address family.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from plimsoll.rules.controllers.endpoints import (
    MANAGED_BY,
    SERVICE_NAME,
    Part,
    SlicePlan,
    grouped_subsets,
    port_key,
    text_of,
)
from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.model.json_object import JsonObject

MIRRORING_CONTROLLER = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"  # Endpoints that are nothing but a lock
_NOT_COPIED = ("endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration")
_MAX_PER_SUBSET = 1000


def is_mirrored(endpoints: JsonObject | None, service: JsonObject | None) -> bool:
    if endpoints is None or service is None:
        return False
    metadata = endpoints["metadata"]
    if (metadata.get("labels") or {}).get(SKIP_MIRROR) == "true":
        return False
    return _LEADER not in (metadata.get("annotations") or {})


def mirrored(endpoints: JsonObject, existing: Sequence[JsonObject]) -> SlicePlan:
    """`existing`: the mirrored slices of these Endpoints."""
    plan = SlicePlan([], [], [])
    by_key: dict[tuple[str, str], list[JsonObject]] = {}
    for each in existing:
        by_key.setdefault((each.get("addressType") or "", port_key(each.get("ports") or [])), []).append(each)
    for wanted in _slices(endpoints):
        same = by_key.pop((wanted["addressType"], port_key(wanted["ports"])), [])
        plan.delete.extend(same[1:])
        if not same:
            plan.create.append(wanted)
        elif _differs(same[0], wanted):
            marks = {field: wanted["metadata"][field] for field in ("labels", "annotations")}
            metadata = {**same[0]["metadata"], **marks}
            plan.update.append({**same[0], "endpoints": wanted["endpoints"], "metadata": metadata})
    for left in by_key.values():
        plan.delete.extend(left)
    return plan


def _differs(existing: JsonObject, wanted: JsonObject) -> bool:
    if (existing.get("endpoints") or []) != wanted["endpoints"]:
        return True
    before, after = existing["metadata"], wanted["metadata"]
    return any((before.get(field) or {}) != after[field] for field in ("labels", "annotations"))


def _slices(endpoints: JsonObject) -> list[JsonObject]:
    found = []
    for subset in _regrouped(endpoints):
        by_family: dict[str, list[JsonObject]] = {}
        both = [(each, True) for each in subset.get("addresses") or []]
        both += [(each, False) for each in subset.get("notReadyAddresses") or []]
        for address, is_ready in both[:_MAX_PER_SUBSET]:
            family = f"IPv{ipaddress.ip_address(address['ip']).version}"
            by_family.setdefault(family, []).append(_endpoint(address, is_ready=is_ready))
        found += [_slice(endpoints, family, each, subset.get("ports") or []) for family, each in by_family.items()]
    return found


def _regrouped(endpoints: JsonObject) -> list[JsonObject]:
    """The subsets, with the ports that have the same addresses together."""
    parts: list[Part] = []
    for subset in endpoints.get("subsets") or []:
        ports: list[JsonObject] = [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports") or []]
        known = {
            text_of(each): (is_ready, each)
            for field, is_ready in (("notReadyAddresses", False), ("addresses", True))
            for each in subset.get(field) or []
        }
        parts.append((ports, known))
    return grouped_subsets(parts)


def _endpoint(address: JsonObject, *, is_ready: bool) -> JsonObject:
    endpoint: JsonObject = {"addresses": [address["ip"]], "conditions": {"ready": is_ready}}
    return endpoint | {field: address[field] for field in ("hostname", "targetRef", "nodeName") if address.get(field)}


def _slice(endpoints: JsonObject, family: str, found: list[JsonObject], ports: list[JsonObject]) -> JsonObject:
    metadata = endpoints["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    labels = {SERVICE_NAME: metadata["name"], MANAGED_BY: MIRRORING_CONTROLLER}
    return {
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {key: value for key, value in annotations.items() if key not in _NOT_COPIED},
            "ownerReferences": [reference(endpoints, "Endpoints", "v1")],
        },
        "addressType": family,
        "endpoints": found,
        "ports": ports,
    }
