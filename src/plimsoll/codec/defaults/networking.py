"""Defaults of network policies and classes of ingresses."""

from __future__ import annotations

from plimsoll.rules.model.json_object import JsonObject


def network_policy(document: JsonObject) -> JsonObject:
    spec = {**(document.get("spec") or {})}
    for direction in ("ingress", "egress"):
        if spec.get(direction):
            spec[direction] = [_with_protocols(rule) for rule in spec[direction]]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return {**document, "spec": spec}


def _with_protocols(rule: JsonObject) -> JsonObject:
    if not rule.get("ports"):
        return rule
    return {**rule, "ports": [port if port.get("protocol") is not None else _with_tcp(port) for port in rule["ports"]]}


def _with_tcp(port: JsonObject) -> JsonObject:
    return {"protocol": "TCP", **{name: value for name, value in port.items() if name != "protocol"}}


def ingress_class(document: JsonObject) -> JsonObject:
    spec = document.get("spec") or {}
    parameters = spec.get("parameters")
    if not parameters or parameters.get("scope") is not None:
        return document
    return {**document, "spec": {**spec, "parameters": {**parameters, "scope": "Cluster"}}}
