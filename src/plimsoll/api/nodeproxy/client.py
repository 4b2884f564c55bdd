"""Calls from the API server to a node's endpoint: logs, exec, stats, metrics.

The pod names its node, and the Node has the address of its endpoint. The node must present a certificate of the
cluster's CA with the name of its endpoint, so no other process can answer for it; the server presents its own client
certificate.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from plimsoll.api.auth.ca import Authority, endpoint_name
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.exchange import Streams
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.status import StatusError, not_found
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import Access
from plimsoll.kube.request import UnreachableError
from plimsoll.rules.admission.addresses import is_ip
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems

if TYPE_CHECKING:
    from plimsoll.net.websocket import WebSocket

CONNECT_S = 10.0
_NODES, _PODS = stored_resource("nodes"), stored_resource("pods")


class NodeAddress(msgspec.Struct, frozen=True):
    node: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NodeCalls:
    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._context: ssl.SSLContext | None = None
        self._transports: dict[str, tuple[NodeAddress, HttpTransport]] = {}  # by node: where it listened last

    async def transport(self, endpoint: NodeAddress) -> HttpTransport:
        known = self._transports.get(endpoint.node)
        if known is not None and known[0] == endpoint:
            return known[1]
        access = Access(f"https://{endpoint}", server_name=endpoint_name(endpoint.node))
        transport = HttpTransport(access, tls=self._tls())
        self._transports[endpoint.node] = (endpoint, transport)
        if known is not None:
            await known[1].close()
        return transport

    async def keep_only(self, nodes: Collection[str]) -> None:
        """Close the connections to nodes that no longer exist."""
        for gone in self._transports.keys() - nodes:
            _, transport = self._transports.pop(gone)
            await transport.close()

    async def websocket(self, endpoint: NodeAddress, target: str, subprotocols: Sequence[str]) -> WebSocket:
        from plimsoll.kube.websocket import connect

        return await connect(
            endpoint.host,
            endpoint.port,
            target,
            tls=self._tls(),
            server_name=endpoint_name(endpoint.node),
            subprotocols=subprotocols,
        )

    async def connect(self, endpoint: NodeAddress) -> Streams:
        """A connection of its own. UnreachableError where there is none."""
        try:
            async with asyncio.timeout(CONNECT_S):
                return await asyncio.open_connection(
                    endpoint.host, endpoint.port, ssl=self._tls(), server_hostname=endpoint_name(endpoint.node)
                )
        except OSError as error:
            raise UnreachableError(f"{endpoint}: {error}") from error

    async def close(self) -> None:
        await self.keep_only(())

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self._authority.client_context()
        return self._context


def node_endpoint(cluster: Cluster, name: str) -> NodeAddress:
    """Raises 404 for a node that does not exist, 503 for one that has not reported its endpoint."""
    node = cluster.document("nodes", "", name)
    if node is None:
        raise not_found(_NODES, name)
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    addresses = {address.get("type"): address.get("address") for address in status.get("addresses") or ()}
    host = addresses.get("InternalIP") or addresses.get("Hostname")
    if not port or not host:
        raise StatusError(503, "ServiceUnavailable", f'node "{name}" has not reported the address of its endpoint', {})
    if not 0 < port < 65536 or not _is_host(host) or not _is_host(name):
        raise StatusError(
            503, "ServiceUnavailable", f'node "{name}" reports an invalid endpoint: {host!r}, port {port}', {}
        )
    return NodeAddress(name, host, port)


def _is_host(text: str) -> bool:
    """The addresses in a node's status are not validated when they are written, so they are checked before use.

    Labels have 63 characters at most: Kubernetes does not require it of a node's name, but TLS and the resolver do.
    """
    if is_ip(text):
        return "%" not in text
    return not dns_subdomain_problems(text) and all(len(label) < 64 for label in text.split("."))


def pod_of(cluster: Cluster, namespace: str, name: str) -> JsonObject:
    pod = cluster.document("pods", namespace, name)
    if pod is None:
        raise not_found(_PODS, name)
    return pod


def why_unreachable(endpoint: NodeAddress, error: UnreachableError) -> str:
    """As Go has it: `dial tcp 127.0.0.1:10250: connect: connection refused`."""
    match error.__cause__:
        case EOFError():
            return "EOF"
        case TimeoutError():
            return f"dial tcp {endpoint}: i/o timeout"
        case ConnectionResetError():
            return "read: connection reset by peer"
        case ssl.SSLError() as cause:
            return f"tls: {cause}"
        case OSError(errno=int(number)):
            return f"dial tcp {endpoint}: connect: {os.strerror(number).lower()}"
    return str(error)
