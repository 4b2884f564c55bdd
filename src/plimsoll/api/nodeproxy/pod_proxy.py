"""`pods/proxy` and `services/proxy`: an HTTP request to a port of a pod, through the port-forward of its node.

So the server needs no route to the pods' network, and a pod is reached at its loopback address, like with
`kubectl port-forward`. A service's request goes to one of its ready endpoints. Names are `NAME`, `NAME:PORT` or
`SCHEME:NAME:PORT`; a port of a service may be its name. With `https` the pod's certificate is not verified, as in
Kubernetes. Links and redirects to the pod's own host lead back through the proxy (`links`).
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.exchange import Exchange, Receive, Scope, Send
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.rounds import Worker
from plimsoll.api.machinery.status import StatusError, bad_request, not_found
from plimsoll.api.nodeproxy.client import NodeCalls, node_endpoint, pod_of, why_unreachable
from plimsoll.api.nodeproxy.links import PAGE_BYTES, Links, is_page
from plimsoll.api.nodeproxy.streams import proxied_path
from plimsoll.api.server.app import App
from plimsoll.kube.request import ApiError as NodeRefused
from plimsoll.kube.request import UnreachableError, with_query
from plimsoll.net.http import CHUNK, HttpClientConnection
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.net.websocket import WebSocket

CHANNELS = "v4.channel.k8s.io"
_SERVICES = stored_resource("services")
_STEPS = 8  # of /api/v1/namespaces/NAMESPACE/pods/NAME/proxy
# Of one connection only (RFC 9110, 7.6.1), and what the server does not pass on.
_DROPPED = frozenset(
    {b"authorization", b"connection", b"content-length", b"host", b"keep-alive", b"proxy-authenticate",
     b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"x-forwarded-uri"}
)  # fmt: skip


class PortTarget(NamedTuple):
    pod: JsonObject
    port: int
    scheme: str


class ProxyName(NamedTuple):
    scheme: str
    name: str
    port: str


def proxy_name(text: str) -> ProxyName:
    """`NAME`, `NAME:PORT`, `SCHEME:NAME:PORT`; raises 400."""
    parts = text.split(":")
    if len(parts) == 1:
        return ProxyName("http", text, "")
    if len(parts) == 2:
        return ProxyName("http", parts[0], parts[1])
    if len(parts) != 3 or parts[0] not in ("", "http", "https"):
        raise bad_request(f'invalid request "{text}": must be NAME, NAME:PORT or SCHEME:NAME:PORT')
    return ProxyName(parts[0] or "http", parts[1], parts[2])


def pod_target(cluster: Cluster, namespace: str, asked: ProxyName) -> PortTarget:
    """Without a port: the first that a container names, else 80."""
    pod = pod_of(cluster, namespace, asked.name)
    if asked.port:
        return PortTarget(pod, _port_number(asked.port), asked.scheme)
    ports = [port["containerPort"] for each in pod["spec"]["containers"] for port in each.get("ports") or ()]
    return PortTarget(pod, ports[0] if ports else 80, asked.scheme)


def _port_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise bad_request(f'invalid port "{text}"')
    return int(text)


def service_target(cluster: Cluster, namespace: str, asked: ProxyName) -> PortTarget:
    """A ready endpoint, any of them; raises 404, 503."""
    service = cluster.document("services", namespace, asked.name)
    if service is None:
        raise not_found(_SERVICES, asked.name)
    name = _port_name(service, asked)
    endpoints = cluster.document("endpoints", namespace, asked.name) or {}
    found = [
        (address, port["port"])
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        if (port.get("name") or "") == name
        for address in subset.get("addresses") or ()
    ]
    if not found:
        raise _unavailable(f'no endpoints available for service "{asked.name}"')
    pods = [(each["targetRef"]["name"], port) for each, port in found if (each.get("targetRef") or {}).get("name")]
    if not pods:
        raise _unavailable(f'the endpoints of service "{asked.name}" are not pods, which are reached through nodes')
    pod, number = pods[secrets.randbelow(len(pods))]
    return PortTarget(pod_of(cluster, namespace, pod), number, asked.scheme)


def _port_name(service: JsonObject, asked: ProxyName) -> str:
    ports = (service.get("spec") or {}).get("ports") or []
    if not asked.port:
        return ports[0].get("name") or "" if len(ports) == 1 else ""
    for port in ports:
        if asked.port in (port.get("name"), str(port.get("port"))):
            return port.get("name") or ""
    raise _unavailable(f'no service port "{asked.port}" found for service "{asked.name}"')


def _unavailable(text: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", text, {})


class PodProxy:
    def __init__(self, calls: NodeCalls) -> None:
        self._calls = calls

    async def pods(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        target = pod_target(app.cluster, call.info.namespace, proxy_name(call.info.name))
        await self._forward(app, call, target, scope, receive, send)

    async def services(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        target = service_target(app.cluster, call.info.namespace, proxy_name(call.info.name))
        await self._forward(app, call, target, scope, receive, send)

    async def _forward(
        self, app: App, call: ApiCall, target: PortTarget, scope: Scope, receive: Receive, send: Send
    ) -> None:
        request = Exchange(scope, receive, send)
        if request.header(b"upgrade"):
            raise bad_request("upgraded connections are not proxied to pods: use port-forward")
        path: str = scope["raw_path"].decode("latin-1")
        if scope["method"] in ("GET", "HEAD") and path.endswith("/proxy"):
            await request.respond(301, b"", [(b"location", path.encode("latin-1") + b"/")])
            return
        body = await request.body(app.options.limits.body_bytes) if scope["method"] not in ("GET", "HEAD") else b""
        metadata, node = target.pod["metadata"], target.pod["spec"].get("nodeName")
        if not node:
            raise _unavailable(f"pod {metadata['name']} does not have a host assigned")
        where = f"/portForward/{metadata['namespace']}/{metadata['name']}"
        endpoint = node_endpoint(app.cluster, node)
        try:
            socket = await self._calls.websocket(endpoint, with_query(where, [("ports", str(target.port))]), [CHANNELS])
        except NodeRefused as error:
            raise StatusError(error.code, error.reason, error.message) from error
        except UnreachableError as error:
            raise _unavailable(f"error trying to reach service: {why_unreachable(endpoint, error)}") from error
        port = PortConnection(socket)
        try:
            stream = await TlsStream.opened(port) if target.scheme == "https" else port
            connection = HttpClientConnection(stream, stream)
            proxy = "/".join(path.split("/")[:_STEPS])
            links = Links(proxy, request.header(b"host"), f"localhost:{target.port}")
            message = _request_head(call, scope, target, body) + body
            await self._exchange(connection, request, message, links, app.cluster.worker)
        except (EOFError, ConnectionError, ssl.SSLError) as error:
            reason = port.problem or str(error) or "it closed the connection without an answer"
            raise StatusError(503, "ServiceUnavailable", f"error trying to reach service: {reason}", {}) from error
        finally:
            socket.abort()

    async def _exchange(
        self, connection: HttpClientConnection, request: Exchange, message: bytes, links: Links, worker: Worker
    ) -> None:
        code = await connection.begin(message)
        headers = {name: value for name, value in connection.headers.items() if name not in _DROPPED}
        if b"location" in headers:
            headers[b"location"] = links.link(headers[b"location"].decode("latin-1")).encode("latin-1")
        if request.scope["method"] == "HEAD":
            await request.respond(code, b"", [*headers.items()])
            return
        parts = connection.parts()
        if is_page(headers) and b"location" not in headers:
            page = await _beginning(parts, PAGE_BYTES)
            if len(page) <= PAGE_BYTES:
                encoding = headers.get(b"content-encoding", b"")
                page = await worker.run(request.user.name, partial(links.page, page, encoding))
                await request.respond(code, page, [*headers.items()])
                return
            parts = _again(page, parts)
        await request.respond_in_pieces(code, parts, [*headers.items()])


async def _beginning(parts: AsyncIterator[bytes], most_bytes: int) -> bytes:
    """All, or more than `most_bytes`."""
    begun = bytearray()
    async for part in parts:
        begun += part
        if len(begun) > most_bytes:
            break
    return bytes(begun)


async def _again(begun: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield begun
    async for part in rest:
        yield part


def _request_head(call: ApiCall, scope: Scope, target: PortTarget, body: bytes) -> bytes:
    path = proxied_path(call.info.rest, scope)
    lines = [f"{scope['method']} {path} HTTP/1.1".encode(), b"host: localhost:%d" % target.port]
    lines += [name + b": " + value for name, value in scope["headers"] if name.lower() not in _DROPPED]
    lines.append(b"x-forwarded-uri: " + scope["raw_path"])
    if body or scope["method"] in ("POST", "PUT", "PATCH"):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"connection: close", b"", b""])


class PortConnection:
    """One forwarded port as a byte stream: channel 0 has the data, channel 1 what went wrong."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._started: set[int] = set()  # channels whose port has been read
        self._unsent: list[bytes] = []
        self.problem = ""

    async def read(self, _: int) -> bytes:
        while (message := await self._socket.receive()) is not None:
            channel, data = message[0] if message else 0, message[1:]
            if channel not in self._started:
                self._started.add(channel)  # the first message has the port's number
                data = data[2:]
            if channel == 1 and data:
                self.problem = data.decode("utf-8", "replace")
                return b""
            if channel == 0 and data:
                return data
        return b""

    def write(self, data: bytes) -> None:
        self._unsent.append(data)

    async def drain(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if data:
            await self._socket.send(b"\x00" + data)

    def close(self) -> None:
        self._socket.abort()


@cache
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class TlsStream:
    """TLS inside a forwarded port, whose messages asyncio's own TLS cannot read."""

    def __init__(self, port: PortConnection) -> None:
        self._port = port
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _unverified().wrap_bio(self._incoming, self._outgoing)

    @classmethod
    async def opened(cls, port: PortConnection) -> TlsStream:
        made = cls(port)
        while True:
            try:
                made._tls.do_handshake()
            except ssl.SSLWantReadError:
                await made._receive()
            else:
                return made

    async def read(self, count: int) -> bytes:
        while True:
            try:
                return self._tls.read(count)
            except ssl.SSLWantReadError:
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # many servers close without a word of TLS
                return b""

    async def _receive(self) -> None:
        await self.drain()
        data = await self._port.read(CHUNK)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def write(self, data: bytes) -> None:
        self._tls.write(data)

    async def drain(self) -> None:
        self._port.write(self._outgoing.read())
        await self._port.drain()

    def close(self) -> None:
        self._port.close()
