"""Defaults of Services, Endpoints and EndpointSlices that depend on nothing but the object."""

from __future__ import annotations

from typing import Any

from plimsoll.rules.model.json_object import JsonObject

AFFINITY_S = 10800
EXTERNAL = ("NodePort", "LoadBalancer")


def service_defaults(spec: JsonObject) -> JsonObject:
    """What the spec lacks."""
    kind = spec.get("type") or "ClusterIP"
    defaults: JsonObject = {"type": kind, "sessionAffinity": "None"}
    if spec.get("sessionAffinity") == "ClientIP":
        timeout = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
        if not timeout:
            defaults["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_S}}
    if kind != "ExternalName":
        defaults["internalTrafficPolicy"] = "Cluster"
    if (kind in EXTERNAL or spec.get("externalIPs")) and not spec.get("externalTrafficPolicy"):
        defaults["externalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        defaults["allocateLoadBalancerNodePorts"] = True
    return defaults


def port_defaults(port: JsonObject) -> JsonObject:
    defaults: JsonObject = {"protocol": port.get("protocol") or "TCP"}
    target: Any = port.get("targetPort")
    if target in (None, 0, ""):
        defaults["targetPort"] = port.get("port") or 0
    return defaults


def endpoints(document: JsonObject) -> JsonObject:
    subsets = [
        {**subset, "ports": [_with_protocol(port) for port in subset["ports"]]} if subset.get("ports") else subset
        for subset in document.get("subsets") or []
    ]
    return {**document, "subsets": subsets} if subsets else document


def _with_protocol(port: JsonObject) -> JsonObject:
    return port if port.get("protocol") else {**port, "protocol": "TCP"}


def endpoint_slice(document: JsonObject) -> JsonObject:
    ports = [
        {"name": "", "protocol": "TCP", **{name: value for name, value in port.items() if value is not None}}
        for port in document.get("ports") or []
    ]
    return {**document, "ports": ports} if ports else document
