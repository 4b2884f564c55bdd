"""Endpoints and EndpointSlices: the addresses of the pods that a service selects.

A pod counts once it has an address and has not terminated. It is ready if its condition Ready is true and it is not
being deleted; with `publishNotReadyAddresses` it is ready anyway. A slice has at most 100 endpoints with the same
ports. What is already in a slice stays there, so that a change of one pod is a change of one slice.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.rules.controllers.owner_references import reference
from plimsoll.rules.model.json_object import JsonObject

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SLICE_CONTROLLER = "endpointslice-controller.k8s.io"
ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
ENDPOINTS_CONTROLLER = "endpoint-controller"
HEADLESS_LABEL = "service.kubernetes.io/headless"
ZONE = "topology.kubernetes.io/zone"
MAX_PER_SLICE = 100
MAX_ADDRESSES = 1000
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
_OWN = (SERVICE_NAME, MANAGED_BY, HEADLESS_LABEL)


class Port(msgspec.Struct, frozen=True, rename="camel"):
    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class PortOwner(msgspec.Struct, frozen=True, rename="camel"):
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class Address(msgspec.Struct, frozen=True):
    ip: str = ""


class PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    containers: tuple[PortOwner, ...] = ()
    init_containers: tuple[PortOwner, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    pod_ip: str = msgspec.field(name="podIP", default="")
    pod_ips: tuple[Address, ...] = msgspec.field(name="podIPs", default=())


class ServedPod(msgspec.Struct, frozen=True):
    """What endpoints read of a pod."""

    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def is_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def address(self, family: str) -> str:
        """The first of this family; a loopback address, as of a node that serves only its own machine, is none."""
        for each in (*self.status.pod_ips, Address(self.status.pod_ip)):
            if each.ip:
                ip = ipaddress.ip_address(each.ip)
                if f"IPv{ip.version}" == family and not ip.is_loopback:
                    return each.ip
        return ""

    def reference(self) -> JsonObject:
        metadata = self.metadata
        return {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


def selected(service: JsonObject, labels: Mapping[str, str] | None) -> bool:
    """Whether the service selects a pod with these labels; without a selector it selects none."""
    selector: Mapping[str, str] = (service.get("spec") or {}).get("selector") or {}
    return bool(selector) and all((labels or {}).get(key) == value for key, value in selector.items())


def serves(pod: ServedPod, *, deleted: bool) -> bool:
    """Whether it is an endpoint at all; `deleted`: also while it is being deleted."""
    return pod.status.phase not in ("Succeeded", "Failed") and (deleted or not pod.is_deleted)


def target_port(pod: ServedPod, port: JsonObject) -> int:
    """The number of a service's port on this pod; 0 if the pod has no port of that name."""
    target: Any = port.get("targetPort")
    if isinstance(target, int):
        return target
    for own in _container_ports(pod):
        if own.name == target and own.protocol == (port.get("protocol") or "TCP"):
            return own.container_port
    return 0


def _container_ports(pod: ServedPod) -> Iterator[Port]:
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        yield from container.ports


class _PortsOfPods:
    """The ports of a service on its pods, resolved once for all pods that agree in the ports it names.

    A service may have thousands of ports and of pods, and its controller runs beside the requests of all clients.
    """

    def __init__(self, service: JsonObject) -> None:
        self._ports = (service.get("spec") or {}).get("ports") or []
        self._named = frozenset(each.get("targetPort") for each in self._ports if type(each.get("targetPort")) is str)
        self._known: dict[tuple[tuple[str, str, int], ...], tuple[list[JsonObject], str]] = {}
        self.is_headless = _is_headless(service)

    def of(self, pod: ServedPod) -> tuple[list[JsonObject], str]:
        """With their `port_key`. The list is shared."""
        own = (
            (port.name, port.protocol, port.container_port)
            for port in _container_ports(pod)
            if port.name in self._named
        )
        names = tuple(own) if self._named else ()
        if names not in self._known:
            found = _ports(self._ports, pod)
            self._known[names] = found, port_key(found)
        return self._known[names]

    def publish(self, pod: ServedPod) -> bool:
        """A pod without any of the service's ports is an endpoint only of a headless service without ports."""
        return bool(self.of(pod)[0]) or (self.is_headless and not self._ports)


def _ports(of_service: Iterable[JsonObject], pod: ServedPod) -> list[JsonObject]:
    found = []
    for port in of_service:
        if number := target_port(pod, port):
            entry = {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"}
            found.append({**entry, "appProtocol": port["appProtocol"]} if port.get("appProtocol") else entry)
    return found


def _is_headless(service: JsonObject) -> bool:
    return (service.get("spec") or {}).get("clusterIP") == "None"


def _hostname(service: JsonObject, pod: ServedPod) -> str:
    return pod.spec.hostname if pod.spec.subdomain == service["metadata"]["name"] else ""


# --- Endpoints ---


def endpoints(service: JsonObject, pods: Sequence[ServedPod]) -> JsonObject:
    """The Endpoints of a service with a selector: `metadata` (name, namespace, labels, annotations) and `subsets`."""
    spec, metadata = service.get("spec") or {}, service["metadata"]
    publishes = bool(spec.get("publishNotReadyAddresses"))
    family = (spec.get("ipFamilies") or ["IPv4"])[0]
    ports_of, parts, count = _PortsOfPods(service), dict[str, Part](), 0
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        address = pod.address(family)
        if not address or not serves(pod, deleted=publishes) or not ports_of.publish(pod):
            continue
        count += 1
        if count > MAX_ADDRESSES:
            continue
        entry: JsonObject = {"ip": address}
        if hostname := _hostname(service, pod):
            entry["hostname"] = hostname
        if pod.spec.node_name:
            entry["nodeName"] = pod.spec.node_name
        entry["targetRef"] = pod.reference()
        ports, key = ports_of.of(pod)
        parts.setdefault(key, (ports, {}))[1][pod.metadata.uid] = (publishes or pod.is_ready, entry)
    labels = {**(metadata.get("labels") or {}), ENDPOINTS_MANAGED_BY: ENDPOINTS_CONTROLLER}
    if _is_headless(service):
        labels[HEADLESS_LABEL] = ""
    made: JsonObject = {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels}
    if count > MAX_ADDRESSES:
        made["annotations"] = {OVER_CAPACITY: "truncated"}
    return {"metadata": made, "subsets": grouped_subsets([*parts.values()])}


# Ports, and the addresses that have all of them: ready or not, and the entry, by what identifies it.
Part = tuple[Sequence[JsonObject], dict[str, tuple[bool, JsonObject]]]


def grouped_subsets(parts: Sequence[Part]) -> list[JsonObject]:
    """Ports that have the same addresses together. Those of the same parts are not looked at one by one."""
    where: dict[str, tuple[JsonObject | None, dict[int, None]]] = {}
    for index, (ports, _) in enumerate(parts):
        for port in ports or (None,):
            where.setdefault(text_of(port), (port, {}))[1][index] = None
    alike: dict[tuple[int, ...], list[JsonObject]] = {}
    for port, found_in in where.values():
        ports_alike = alike.setdefault(tuple(found_in), [])
        if port is not None:
            ports_alike.append(port)
    grouped: dict[str, tuple[list[JsonObject], dict[str, tuple[bool, JsonObject]]]] = {}
    for numbers, ports_alike in alike.items():
        addresses = {key: value for number in numbers for key, value in parts[number][1].items()}
        text = text_of(sorted((uid, ready) for uid, (ready, _) in addresses.items()))
        grouped.setdefault(text, ([], addresses))[0].extend(ports_alike)
    subsets = []
    for ports, addresses in grouped.values():
        subset: JsonObject = {}
        for field, wanted in (("addresses", True), ("notReadyAddresses", False)):
            found = [entry for ready, entry in addresses.values() if ready is wanted]
            if found:
                subset[field] = sorted(found, key=lambda entry: ipaddress.ip_address(entry["ip"]).packed)
        if ports:
            subset["ports"] = sorted(ports, key=lambda port: (port["name"], port["port"], port["protocol"]))
        subsets.append(subset)
    return sorted(subsets, key=text_of)


def text_of(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


# --- EndpointSlices ---


class SlicePlan(msgspec.Struct, frozen=True):
    create: list[JsonObject]
    update: list[JsonObject]
    delete: list[JsonObject]


def slices(
    service: JsonObject, pods: Sequence[ServedPod], zones: Mapping[str, str], existing: Sequence[JsonObject]
) -> SlicePlan:
    """`zones`: of the nodes; `existing`: this controller's slices of this service."""
    create: list[JsonObject] = []
    update: list[JsonObject] = []
    delete: list[JsonObject] = []
    families = (service.get("spec") or {}).get("ipFamilies") or ["IPv4"]
    for family in families:
        own = [each for each in existing if each.get("addressType") == family]
        _plan_family(service, pods, zones, family, own, create, update, delete)
    delete += [each for each in existing if each.get("addressType") not in families]
    return SlicePlan(create, update, delete)


def _plan_family(
    service: JsonObject,
    pods: Sequence[ServedPod],
    zones: Mapping[str, str],
    family: str,
    existing: list[JsonObject],
    create: list[JsonObject],
    update: list[JsonObject],
    delete: list[JsonObject],
) -> None:
    groups: dict[str, tuple[list[JsonObject], dict[str, JsonObject]]] = {}
    ports_of = _PortsOfPods(service)
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        address = pod.address(family)
        if address and serves(pod, deleted=True) and ports_of.publish(pod):
            ports, key = ports_of.of(pod)
            group = groups.setdefault(key, (ports, {}))
            group[1][pod.metadata.uid] = _endpoint(service, pod, address, zones)
    unused = list(existing)
    labels = slice_labels(service)
    if not groups:
        groups[""] = ([], {})  # one empty slice says that there is nothing
        unused.sort(key=lambda each: each["metadata"]["name"])
    for key, (ports, wanted) in groups.items():
        same = [each for each in unused if port_key(each.get("ports") or []) == key] or unused[:1]
        unused = [each for each in unused if all(each is not other for other in same)]
        left = dict(wanted)
        filled: list[tuple[JsonObject, list[JsonObject]]] = []
        for each in same:
            known = [(one.get("targetRef") or {}).get("uid") for one in each.get("endpoints") or []]
            filled.append((each, [left.pop(uid) for uid in known if uid in left][:MAX_PER_SLICE]))
        rest = list(left.values())
        for _, endpoints_ in filled:
            room = MAX_PER_SLICE - len(endpoints_)
            endpoints_ += rest[:room]
            rest = rest[room:]
        for index, (each, endpoints_) in enumerate(filled):
            if not endpoints_ and (wanted or index):
                delete.append(each)
            elif (
                (each.get("endpoints") or []) != endpoints_
                or (each.get("ports") or []) != ports
                or (each["metadata"].get("labels") != labels)
            ):
                changed = {**each, "endpoints": endpoints_, "ports": ports}
                update.append({**changed, "metadata": {**each["metadata"], "labels": labels}})
        for start in range(0, max(len(rest), 0 if filled else 1), MAX_PER_SLICE):
            part = rest[start : start + MAX_PER_SLICE]
            create.append(_new_slice(service, family, part, ports, labels))
    delete += unused


def port_key(ports: Sequence[JsonObject]) -> str:
    return text_of(
        sorted(
            (port.get("name"), port.get("port"), port.get("protocol"), port.get("appProtocol") or "") for port in ports
        )
    )


def _endpoint(service: JsonObject, pod: ServedPod, address: str, zones: Mapping[str, str]) -> JsonObject:
    publishes = bool((service.get("spec") or {}).get("publishNotReadyAddresses"))
    endpoint: JsonObject = {
        "addresses": [address],
        "conditions": {
            "ready": publishes or (pod.is_ready and not pod.is_deleted),
            "serving": pod.is_ready,
            "terminating": pod.is_deleted,
        },
    }
    if hostname := _hostname(service, pod):
        endpoint["hostname"] = hostname
    endpoint["targetRef"] = pod.reference()
    if pod.spec.node_name:
        endpoint["nodeName"] = pod.spec.node_name
        if zone := zones.get(pod.spec.node_name):
            endpoint["zone"] = zone
    return endpoint


def slice_labels(service: JsonObject) -> dict[str, str]:
    given = {key: value for key, value in (service["metadata"].get("labels") or {}).items() if key not in _OWN}
    labels = {**given, SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: SLICE_CONTROLLER}
    if _is_headless(service):
        labels[HEADLESS_LABEL] = ""
    return dict(sorted(labels.items()))


def _new_slice(
    service: JsonObject, family: str, endpoints_: list[JsonObject], ports: list[JsonObject], labels: dict[str, str]
) -> JsonObject:
    metadata = service["metadata"]
    return {
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [reference(service, "Service", "v1")],
        },
        "addressType": family,
        "endpoints": endpoints_,
        "ports": ports,
    }
