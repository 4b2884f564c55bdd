"""The cells of services, endpoints, endpoint slices and ingresses in `kubectl get`, beside name and age."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from plimsoll.api.tables.pod_printer import NONE, part
from plimsoll.rules.model.json_object import JsonObject

_UNSET = "<unset>"
_SHOWN = 3


def service_cells(service: JsonObject) -> list[Any]:
    """Type, Cluster-IP, External-IP, Port(s), Selector."""
    spec = part(service, "spec")
    selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    address = spec.get("clusterIP") or NONE
    return [spec.get("type") or "", address, _external_address(service), _ports(spec), selector or NONE]


def _external_address(service: JsonObject) -> str:
    spec = part(service, "spec")
    outside = list(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or ""
    if spec.get("type") == "LoadBalancer":
        ingress = part(service, "status", "loadBalancer").get("ingress") or []
        found = [each.get("ip") or each.get("hostname") or "" for each in ingress] + outside
        return ",".join(found) or "<pending>"
    return ",".join(outside) or NONE


def _ports(spec: JsonObject) -> str:
    shown = []
    for port in spec.get("ports") or []:
        number = f"{port.get('port')}:{port['nodePort']}" if port.get("nodePort") else f"{port.get('port')}"
        shown.append(f"{number}/{port.get('protocol')}")
    return ",".join(shown) or NONE


def endpoints_cells(document: JsonObject) -> list[Any]:
    """Every address has every port of its subset: a document of 2 MB may have 10⁸ of both, so they are only counted."""
    subsets = [(subset.get("ports") or [{}], subset.get("addresses") or []) for subset in document.get("subsets") or []]
    found = (
        _endpoint(address.get("ip") or "", port.get("port"))
        for ports, addresses in subsets
        for port in ports
        for address in addresses
    )
    return [_first(found, sum(len(ports) * len(addresses) for ports, addresses in subsets)) or NONE]


def _endpoint(ip: str, port: int | None) -> str:
    if not port:
        return ip
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def slice_cells(document: JsonObject) -> list[Any]:
    """AddressType, Ports, Endpoints."""
    ports = [str(port.get("port") or "*") for port in document.get("ports") or []]
    addresses = [each for endpoint in document.get("endpoints") or [] for each in endpoint.get("addresses") or []]
    return [
        document.get("addressType") or "",
        _first(ports, len(ports)) or _UNSET,
        _first(addresses, len(addresses)) or _UNSET,
    ]


def _first(items: Iterable[str], count: int) -> str:
    """The first of so many."""
    more = f" + {count - _SHOWN} more..." if count > _SHOWN else ""
    return ",".join(islice(items, _SHOWN)) + more


def ingress_cells(ingress: JsonObject) -> list[Any]:
    """Class, Hosts, Address, Ports."""
    spec = part(ingress, "spec")
    rules = spec.get("rules") or []
    found = part(ingress, "status", "loadBalancer").get("ingress") or []
    addresses = sorted({each.get("ip") or each.get("hostname") or "" for each in found} - {""})
    ports = "80, 443" if spec.get("tls") else "80"
    return [spec.get("ingressClassName") or NONE, _hosts(rules), ",".join(addresses), ports]


def _hosts(rules: list[JsonObject]) -> str:
    """The first ones; rules without a host count where there are more."""
    shown: list[str] = []
    for rule in rules:
        if len(shown) == _SHOWN:
            return f"{','.join(shown)} + {len(rules) - _SHOWN} more..."
        if rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) or "*"


def ingress_class_cells(ingress_class: JsonObject) -> list[Any]:
    """Controller, Parameters."""
    spec = part(ingress_class, "spec")
    parameters = spec.get("parameters")
    if not parameters:
        return [spec.get("controller") or "", NONE]
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return [spec.get("controller") or "", f"{parameters.get('kind')}{group}/{parameters.get('name')}"]
