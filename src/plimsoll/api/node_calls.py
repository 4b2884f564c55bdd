"""Calls from the API server to a node's endpoint (design §1): logs, exec, stats, metrics.

Which node stands in the pod, where it listens stands in the Node. The node must show a certificate of our CA that bears
its name, so nobody else can answer for it; the server shows its own client certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

import msgspec

from plimsoll.api.authority import Authority
from plimsoll.api.cluster import Cluster
from plimsoll.api.kinds import stored_resource
from plimsoll.api.status import ApiError, not_found
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import Access
from plimsoll.kube.request import Unreachable
from plimsoll.kube.websocket import WebSocket

Document = dict[str, Any]
_NODES, _PODS = stored_resource("nodes"), stored_resource("pods")


class Endpoint(msgspec.Struct, frozen=True):
    node: str
    host: str
    port: int


class NodeCalls:
    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._context: ssl.SSLContext | None = None
        self._transports: dict[Endpoint, HttpTransport] = {}

    def transport(self, endpoint: Endpoint) -> HttpTransport:
        found = self._transports.get(endpoint)
        if found is None:
            host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
            access = Access(f"https://{host}:{endpoint.port}", server_name=endpoint.node)
            found = self._transports[endpoint] = HttpTransport(access, tls=self._tls())
        return found

    async def websocket(self, endpoint: Endpoint, target: str, subprotocols: Sequence[str]) -> WebSocket:
        return await WebSocket.connect(
            endpoint.host,
            endpoint.port,
            target,
            tls=self._tls(),
            server_name=endpoint.node,
            subprotocols=subprotocols,
        )

    async def close(self) -> None:
        transports, self._transports = self._transports, {}
        for each in transports.values():
            await each.close()

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self._authority.client_context()
        return self._context


def node_endpoint(cluster: Cluster, name: str) -> Endpoint:
    """Raises 404 for a node that is not there, 503 for one that has not said where it listens."""
    node = cluster.document("nodes", "", name)
    if node is None:
        raise not_found(_NODES, name)
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
    host = addresses.get("InternalIP") or addresses.get("Hostname")
    if not port or not host:
        raise ApiError(503, "ServiceUnavailable", f'node "{name}" has not told where its endpoint listens', {})
    return Endpoint(name, host, int(port))


def pod_of(cluster: Cluster, namespace: str, name: str) -> Document:
    pod = cluster.document("pods", namespace, name)
    if pod is None:
        raise not_found(_PODS, name)
    return pod


def unreachable(error: Unreachable) -> ApiError:
    return ApiError(502, "", f"error dialing the node: {error}", {})
