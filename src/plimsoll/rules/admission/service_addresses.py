"""Addresses and node ports of Services, from the ranges of the API server.

What a service needs depends on its type: every type but ExternalName has a cluster IP unless it is headless, NodePort
and LoadBalancer have a node port for each port. A client may request an address or port of the range that is free. The
rest comes from the upper part of the range first, so that requests for fixed ones in the lower part find them free
(KEP-3070): with 10.96.0.0/12 the lower 256 addresses, with 30000-32767 the lower 86 ports.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from plimsoll.errors import FieldError, InvalidConfigError
from plimsoll.rules.model.json_object import JsonObject

HEADLESS = "None"
MAX_RANGE_BITS = 20
_Choose = Callable[[int], int]  # a number below its argument
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceRanges(msgspec.Struct, frozen=True):
    cluster_ips: str = "10.96.0.0/12"
    first_node_port: int = 30000
    last_node_port: int = 32767

    @property
    def network(self) -> _Network:
        return ipaddress.ip_network(self.cluster_ips)

    @property
    def family(self) -> str:
        return "IPv6" if ":" in self.cluster_ips else "IPv4"

    @property
    def kubernetes_ip(self) -> str:
        """Of the service default/kubernetes: the first of the range."""
        return str(self.network[1])


DEFAULT_RANGES = ServiceRanges()


def service_ranges(cluster_ips: str, node_ports: str) -> ServiceRanges:
    """`10.96.0.0/12`, `30000-32767`; raises InvalidConfigError."""
    try:
        network = ipaddress.ip_network(cluster_ips)
    except ValueError as error:
        raise InvalidConfigError("--service-cluster-ip-range", str(error)) from None
    size = network.max_prefixlen - network.prefixlen
    if not 3 <= size <= MAX_RANGE_BITS:
        reason = f"{cluster_ips}: it must have 3 to {MAX_RANGE_BITS} bits for addresses, and has {size}"
        raise InvalidConfigError("--service-cluster-ip-range", reason)
    first, _, last = node_ports.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        reason = f"{node_ports}: it must be FIRST-LAST, from 1 to 65535"
        raise InvalidConfigError("--service-node-port-range", reason)
    return ServiceRanges(cluster_ips, int(first), int(last))


class Used(msgspec.Struct, frozen=True):
    """By other services."""

    addresses: Collection[str] = frozenset()
    ports: Collection[int] = frozenset()


def cluster_ips(service: JsonObject) -> list[str]:
    """Those that come from the range."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return []
    return [address for address in spec.get("clusterIPs") or [] if address != HEADLESS]


def node_ports(service: JsonObject) -> list[int]:
    spec = service.get("spec") or {}
    ports = [port["nodePort"] for port in spec.get("ports") or [] if port.get("nodePort")]
    return [*ports, spec["healthCheckNodePort"]] if spec.get("healthCheckNodePort") else ports


def has_cluster_ip(spec: JsonObject) -> bool:
    return spec.get("type") != "ExternalName" and spec.get("clusterIP") != HEADLESS


def has_node_ports(spec: JsonObject) -> bool:
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def has_health_port(spec: JsonObject) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


class Allocation(msgspec.Struct, frozen=True):
    service: JsonObject
    errors: tuple[FieldError, ...] = ()


def allocated(
    service: JsonObject, old: JsonObject | None, used: Used, ranges: ServiceRanges, choose: _Choose
) -> Allocation:
    """The valid service with every address and port that it needs. What `old` has, it keeps."""
    spec: JsonObject = dict(service.get("spec") or {})
    errors: list[FieldError] = []
    kept_ips = set(cluster_ips(old or {}))
    kept_ports = set(node_ports(old or {}))
    if has_cluster_ip(spec):
        requested = spec.get("clusterIP") or ""
        if requested and requested not in kept_ips:
            errors += _address_errors(requested, used, ranges)
        elif not requested:
            found = free_address(ranges, used.addresses, choose)
            if not found:
                detail = f"failed to allocate a serviceIP: range is full: {ranges.cluster_ips}"
                errors.append(FieldError("FieldValueInvalid", "spec.clusterIPs", detail))
            spec["clusterIP"], spec["clusterIPs"] = found, [found]
    if has_node_ports(spec) or has_health_port(spec):
        errors += _with_ports(spec, used, kept_ports, ranges, choose)
    return Allocation({**service, "spec": spec}, tuple(errors))


def _address_errors(address: str, used: Used, ranges: ServiceRanges) -> list[FieldError]:
    problem = ""
    if ipaddress.ip_address(address) not in ranges.network or address in _ends(ranges.network):
        problem = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is"
        problem = f"{problem} {ranges.cluster_ips}"
    elif address in used.addresses:
        problem = "provided IP is already allocated"
    if not problem:
        return []
    shown = f'[]string{{"{address}"}}: failed to allocate IP {address}: {problem}'
    return [FieldError("FieldValueInvalid", "spec.clusterIPs", shown)]


def _ends(network: _Network) -> tuple[str, str]:
    return str(network[0]), str(network[-1])


def _with_ports(
    spec: JsonObject, used: Used, kept: set[int], ranges: ServiceRanges, choose: _Choose
) -> list[FieldError]:
    errors: list[FieldError] = []
    taken = set(used.ports)
    ports: list[Any] = list(spec.get("ports") or [])
    own: dict[tuple[int, str], int] = {}  # a port number with another protocol gets the same node port
    if has_node_ports(spec):
        for index, port in enumerate(ports):
            number = port.get("nodePort") or 0
            if number and number not in kept:
                errors += _port_errors(f"spec.ports[{index}].nodePort", number, used, ranges)
            if number:
                taken.add(number)
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                continue
            number, protocol = port.get("port") or 0, port.get("protocol") or "TCP"
            shared = [node for (known, other), node in own.items() if known == number and other != protocol]
            found = shared[0] if shared else free_port(ranges, taken, choose)
            if not found:
                detail = "failed to allocate a nodePort: range is full"
                errors.append(FieldError("FieldValueInvalid", f"spec.ports[{index}].nodePort", detail))
            taken.add(found)
            own[number, protocol] = found
            ports[index] = {**port, "nodePort": found}
        spec["ports"] = ports
    if has_health_port(spec):
        number = spec.get("healthCheckNodePort") or 0
        if number and number not in kept:
            errors += _port_errors("spec.healthCheckNodePort", number, used, ranges)
        spec["healthCheckNodePort"] = number or free_port(ranges, taken, choose)
    return errors


def _port_errors(path: str, number: int, used: Used, ranges: ServiceRanges) -> list[FieldError]:
    first, last = ranges.first_node_port, ranges.last_node_port
    if not first <= number <= last:
        detail = f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        return [FieldError("FieldValueInvalid", path, detail, number)]
    if number in used.ports:
        return [FieldError("FieldValueInvalid", path, "provided port is already allocated", number)]
    return []


def free_address(ranges: ServiceRanges, used: Collection[str], choose: _Choose) -> str:
    """Empty if the range is full."""
    network = ranges.network
    count = network.num_addresses - 2  # without its first and last
    found = _free(count, _lower(count), lambda place: str(network[place + 1]) in used, choose)
    return "" if found is None else str(network[found + 1])


def free_port(ranges: ServiceRanges, used: Collection[int], choose: _Choose) -> int:
    """0 if the range is full."""
    first = ranges.first_node_port
    count = ranges.last_node_port - first + 1
    found = _free(count, _lower(count), lambda place: first + place in used, choose)
    return 0 if found is None else first + found


def _lower(count: int) -> int:
    """How many of the range are for requests first: a 16th of it, 16 to 256."""
    return 0 if count < 16 else min(max(16, count // 16), 256)


def _free(count: int, lower: int, is_used: Callable[[int], bool], choose: _Choose) -> int | None:
    """From a random place of the upper part on, then of the lower part."""
    for start, size in ((lower, count - lower), (0, lower)):
        offset = choose(size) if size else 0
        for step in range(size):
            place = start + (offset + step) % size
            if not is_used(place):
                return place
    return None
