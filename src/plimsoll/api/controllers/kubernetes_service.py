"""The service default/kubernetes: the API server's own address, with its Endpoints and EndpointSlice.

It is written to the store directly, as `bootstrap` does: the address may be a loopback address, which the API refuses
in endpoints. What is changed or deleted comes back.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Sequence

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.api.machinery.service_addresses import CLAIM_S, CLAIMS
from plimsoll.linux.identity import internal_ip
from plimsoll.rules.admission.service_addresses import ServiceRanges, cluster_ips
from plimsoll.rules.controllers.mirrored_endpoints import SKIP_MIRROR
from plimsoll.rules.lifecycle.service_links import UNPROXIED
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.records import Decision, Record

NAMESPACE, NAME = "default", "kubernetes"
_CHECK_S = 5.0  # whether other servers have come or gone
_KEYS = tuple(key(stored_resource(storage), NAMESPACE, NAME) for storage in ("services", "endpoints", "endpointslices"))

log = logging.getLogger(__name__)


class Advertised(msgspec.Struct, frozen=True):
    ip: str
    port: int


def advertised(address: str) -> Advertised:
    """From HOST:PORT of the listener to an address that others can use."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        ip = ipaddress.ip_address(found[0][4][0])
    return Advertised(internal_ip(str(ip)), int(port))


def wanted(ranges: ServiceRanges, servers: Sequence[Advertised]) -> dict[str, JsonObject]:
    """By key: labels and annotations (under `metadata`) and the rest of each object.

    An EndpointSlice has one port, so servers with another port than the first are only in the Endpoints.
    """
    at = servers[0]
    family = f"IPv{ipaddress.ip_address(at.ip).version}"
    port = {"name": "https", "port": at.port, "protocol": "TCP"}
    address = ranges.kubernetes_ip
    service = {
        "metadata": {
            "labels": {"component": "apiserver", "provider": "kubernetes"},
            "annotations": {UNPROXIED: "true"},  # there is no proxy of services here
        },
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": at.port}],
            "clusterIP": address,
            "clusterIPs": [address],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": [ranges.family],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    }
    endpoints = {
        "metadata": {"labels": {SKIP_MIRROR: "true"}},
        "subsets": [
            {
                "addresses": [{"ip": each.ip} for each in servers if each.port == number],
                "ports": [{**port, "port": number}],
            }
            for number in dict.fromkeys(each.port for each in servers)
        ],
    }
    endpoint_slice = {
        "metadata": {"labels": {"kubernetes.io/service-name": NAME}},
        "addressType": family,
        "endpoints": [
            {"addresses": [each.ip], "conditions": {"ready": True}} for each in servers if each.port == at.port
        ],
        "ports": [port],
    }
    return dict(zip(_KEYS, (service, endpoints, endpoint_slice), strict=True))


async def publish(cluster: Cluster, servers: Sequence[Advertised]) -> None:
    """Idempotent."""
    for where, desired in wanted(cluster.service_addresses.ranges, servers).items():

        def decide(record: Record | None, version: int, desired: JsonObject = desired) -> Decision:
            metadata: JsonObject = {"name": NAME, "namespace": NAMESPACE, "uid": cluster.new_uid()}
            metadata["creationTimestamp"] = cluster.now()
            if "addressType" in desired:
                metadata["generation"] = 1
            old = None
            if record is not None:
                old = decoded(record)
                if old["metadata"].get("deletionTimestamp"):
                    return None
                metadata = old["metadata"]
            own = {name: {**(metadata.get(name) or {}), **values} for name, values in desired["metadata"].items()}
            new = {**desired, "metadata": {**metadata, **own}}
            return None if new == old else body_of(new, version)

        await cluster.store.change(where, decide)


def report_conflicts(cluster: Cluster) -> None:
    """Cluster IPs that are outside the range or in use twice, after the range or a backup has changed."""
    ranges = cluster.service_addresses.ranges
    owners: dict[str, str] = {ranges.kubernetes_ip: f"{NAMESPACE}/{NAME}"}
    for service in cluster.documents("services"):
        name = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
        for address in cluster_ips(service):
            if ipaddress.ip_address(address) not in ranges.network and owners.get(address) != name:
                log.warning("service %s: cluster IP %s is not in %s: recreate it", name, address, ranges.cluster_ips)
            elif owners.setdefault(address, name) != name:
                log.warning("service %s: cluster IP %s belongs to %s: recreate it", name, address, owners[address])


def claims_controller(context: ControllerContext, cluster: Cluster) -> Controller:
    """Removes the claims of addresses whose service is gone (`machinery.service_addresses`)."""

    async def reconcile(_: str) -> float | None:
        found, is_open = cluster.service_addresses.surplus()
        for name, uid in found:
            await cluster.service_addresses.give_back(uid, (name,))
        return CLAIM_S if is_open else None

    def of_any(_: str, __: bytes) -> Iterable[str]:
        return ("",)

    sources = {CLAIMS: of_any, "/services/": of_any} if cluster.store.is_shared else {}
    return Controller("service-addresses", context.store, sources, reconcile)


def controller(
    context: ControllerContext,
    cluster: Cluster,
    servers: Callable[[], Sequence[Advertised]],
    published: Callable[[], None],
) -> Controller:
    """`published` is called whenever everything is as it should be."""

    def own(where: str, _: bytes) -> Iterable[str]:
        return (NAME,) if where in _KEYS else ()

    async def reconcile(_: str) -> float | None:
        await publish(cluster, servers())
        published()
        return _CHECK_S if cluster.store.is_shared else None

    return Controller(
        "kubernetes-service", context.store, dict.fromkeys(_KEYS, own), reconcile, periodic=lambda: (NAME,)
    )
