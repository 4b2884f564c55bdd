"""Requests that the API server forwards to a node: `pods/log`, `nodes/proxy`, and the streams exec, attach and
port-forward (05 B6 Subresources).

A log is streamed as it arrives. A stream is a WebSocket on both sides, and every message is forwarded unchanged, so its
channels concern only the client and the node. SPDY, the protocol of kubectl up to 1.29, is passed through (`tunnel`).
kubectl from 1.30 on speaks the same SPDY for port-forward, within a WebSocket: that is taken off here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import NamedTuple, Protocol
from urllib.parse import quote

from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.exchange import HIJACK, Message, Receive, Scope, Send, Streams
from plimsoll.api.machinery.status import StatusError, bad_request, internal, internal_error, invalid, unavailable
from plimsoll.api.nodeproxy.client import NodeAddress, NodeCalls, node_endpoint, pod_of, why_unreachable
from plimsoll.api.nodeproxy.tunnel import (
    SpdyMessages,
    is_spdy,
    offered_versions,
    pass_through,
    upgrade_request,
    upgraded,
)
from plimsoll.api.server.app import App
from plimsoll.codec.spdy import PROTOCOL
from plimsoll.errors import FieldError
from plimsoll.kube.request import ApiError as NodeRefused
from plimsoll.kube.request import ApiResponse, Method, Request, UnreachableError, with_query
from plimsoll.rules.model.json_object import JsonObject

_REMOTE_COMMAND = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")
_LOG_PROTOCOL = "binary.k8s.io"
SUBPROTOCOLS = {"exec": _REMOTE_COMMAND, "attach": _REMOTE_COMMAND, "portforward": ("v4.channel.k8s.io",)}
PORT_FORWARD = "portforward.k8s.io"
TUNNEL = f"{PROTOCOL}+{PORT_FORWARD}"  # SPDY within the messages of a WebSocket
_LOG_OPTIONS = (
    "follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream", "tailLines", "timestamps",
)  # fmt: skip
_STREAM_OPTIONS = ("stdin", "stdout", "stderr", "tty")


class NodeStreams:
    def __init__(self, calls: NodeCalls) -> None:
        self._calls = calls

    async def log(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        info = call.info
        pod = pod_of(app.cluster, info.namespace, info.name)
        container = _container(pod, info.option("container"))
        _check_log_options(call)
        node = pod["spec"].get("nodeName")
        if not node:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        query = [(name, info.option(name)) for name in _LOG_OPTIONS if info.option(name)]
        path = f"/containerLogs/{info.namespace}/{info.name}/{container}"
        request = Request("GET", with_query(path, query), accept="*/*")
        await self._forward(app, node, request, receive, send, is_log=True)

    async def log_over_websocket(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        """The same, each piece as one binary message."""
        protocol = _LOG_PROTOCOL if _LOG_PROTOCOL in scope.get("subprotocols", ()) else None

        async def message_of(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send({"type": "websocket.accept", "subprotocol": protocol})
                return
            if message["body"]:
                await send({"type": "websocket.send", "bytes": message["body"]})
            if not message.get("more_body"):
                await send({"type": "websocket.close", "code": 1000})

        async def disconnect() -> Message:
            while (await receive())["type"] != "websocket.disconnect":
                pass  # a reader of a log has nothing to say
            return {"type": "http.disconnect"}

        with suppress(RuntimeError):  # of uvicorn: the client has closed
            await self.log(app, call, scope, disconnect, message_of)

    async def proxy(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        info = call.info
        method: Method = scope["method"]
        path = proxied_path(info.rest, scope)
        node = _kubelet_of(app, info.name)
        await self._forward(app, node, Request(method, path, accept="*/*"), receive, send)

    async def over_http(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        """A stream with an upgrade that ASGI does not know: SPDY is passed through, anything else is refused."""
        target = _target(app, call)
        if HIJACK not in scope or not is_spdy(scope["headers"]):
            raise bad_request("Upgrade request required")
        async with self._spdy(app, target, offered_versions(scope["headers"])) as (far, answer):
            client = scope[HIJACK]()
            client[1].write(answer)
            try:
                await pass_through(client, far)
            finally:
                client[1].close()

    @asynccontextmanager
    async def _spdy(
        self, app: App, target: NodeTarget, versions: Sequence[str]
    ) -> AsyncIterator[tuple[Streams, bytes]]:
        """A connection to the node that was upgraded to SPDY, with the head of its answer."""
        endpoint = node_endpoint(app.cluster, target.node)
        try:
            far = await self._calls.connect(endpoint)
        except UnreachableError as error:
            raise _not_dialed(endpoint, error) from error
        try:
            answer = await upgraded(far, upgrade_request(str(endpoint), target.path, versions))
            if isinstance(answer, ApiResponse):
                raise _refusal(answer)
            yield far, answer
        except UnreachableError as error:
            raise _not_dialed(endpoint, error) from error
        finally:
            far[1].close()

    async def _forward(
        self, app: App, node: str, request: Request, receive: Receive, send: Send, *, is_log: bool = False
    ) -> None:
        """Forward the node's response, piece by piece, until it ends or the client disconnects.

        An error of the node that concerns a log becomes a Status. A node that cannot be reached is 500 for a log and
        503 for the proxy, as a kube-apiserver has it.
        """
        endpoint = node_endpoint(app.cluster, node)
        transport = await self._calls.transport(endpoint)
        task = asyncio.current_task()
        assert task is not None
        leaving = asyncio.create_task(_disconnected(receive))
        passing = True
        leaving.add_done_callback(lambda done: task.cancel() if passing and not done.cancelled() else None)
        try:
            async with aclosing(transport.stream(request)) as stream:
                async for part in stream:
                    if isinstance(part, ApiResponse):
                        if is_log and part.status >= 400:
                            raise _refusal(part)
                        type_ = b"text/plain" if is_log else part.content_type or b"text/plain"
                        headers = [(b"content-type", type_)]
                        if part.location:
                            headers.append((b"location", part.location))
                        await send({"type": "http.response.start", "status": part.status, "headers": headers})
                        part = part.body
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except UnreachableError as error:
            why = why_unreachable(endpoint, error)
            if is_log:
                raise internal(f'Get "https://{endpoint}{request.path}": {why}') from error
            raise unavailable(f"error trying to reach service: {why}") from error
        except asyncio.CancelledError:
            if not leaving.done():
                raise
            task.uncancel()
        finally:
            passing = False
            leaving.cancel()

    async def over_websocket(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket that has not been accepted yet."""
        target, asked = _target(app, call), scope.get("subprotocols", ())
        if call.info.subresource == "portforward" and TUNNEL in asked:
            async with self._spdy(app, target, (PORT_FORWARD,)) as (node, _):
                await send({"type": "websocket.accept", "subprotocol": TUNNEL})
                await _relay(SpdyMessages(node), receive, send)
            return
        known = SUBPROTOCOLS[call.info.subresource]
        offered = [protocol for protocol in known if protocol in asked]
        if not offered and (asked or call.info.subresource == "portforward"):
            names = ", ".join(known)
            raise bad_request(f"{call.info.subresource} needs one of these WebSocket subprotocols: {names}")
        endpoint = node_endpoint(app.cluster, target.node)
        try:
            far = await self._calls.websocket(endpoint, target.path, offered)
        except NodeRefused as error:
            raise StatusError(error.code, error.reason, error.message) from error
        except UnreachableError as error:
            raise _not_dialed(endpoint, error) from error
        try:
            await send({"type": "websocket.accept", "subprotocol": far.subprotocol or None})
            await _relay(far, receive, send)
        finally:
            await far.close()


def proxied_path(rest: str, scope: Scope) -> str:
    """What the far end is asked for: `rest` with its final slash, which tells directories apart, and the query."""
    query = scope["query_string"].decode("latin-1")
    slash = "/" if rest and scope["raw_path"].endswith(b"/") else ""
    # Quoted again: a line break in it would start a header, or another request.
    return "/" + quote(rest, safe="/:@!$&'()*+,;=~") + slash + (f"?{query}" if query else "")


def _kubelet_of(app: App, name: str) -> str:
    """The node in `NAME` or `[https:]NAME:PORT`, where the port is the one of its endpoint; raises 400 for another."""
    parts = name.split(":")
    node = parts[1] if len(parts) == 3 else parts[0]
    if len(parts) > 1 and (len(parts) > 3 or parts[-1] not in ("", str(node_endpoint(app.cluster, node).port))):
        raise bad_request(f"{name}: only the port of the node's endpoint can be reached through this proxy")
    return node


class FarEnd(Protocol):
    """The node's side of a stream: a WebSocket, or SPDY in messages."""

    async def receive(self) -> bytes | None: ...
    async def send(self, data: bytes) -> None: ...


async def _relay(far: FarEnd, receive: Receive, send: Send) -> None:
    async def outward() -> None:
        with suppress(RuntimeError):  # of uvicorn: the client has closed, maybe before it was accepted
            while (message := await far.receive()) is not None:
                await send({"type": "websocket.send", "bytes": message})
            await send({"type": "websocket.close", "code": 1000})

    async def inward() -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes")
            with suppress(ConnectionError):  # `outward` ends when the node has closed
                await far.send(data if data is not None else message["text"].encode())

    tasks = [asyncio.create_task(outward()), asyncio.create_task(inward())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _not_dialed(endpoint: NodeAddress, error: UnreachableError) -> StatusError:
    return internal(f"error dialing backend: {why_unreachable(endpoint, error)}")


def _refusal(answer: ApiResponse) -> StatusError:
    text = answer.body.decode("utf-8", "replace").strip()
    if answer.status == 400:
        return bad_request(text)
    return internal_error(text) if answer.status == 500 else StatusError(answer.status, "", text, {})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _container(pod: JsonObject, name: str) -> str:
    spec = pod["spec"]
    kinds = ("initContainers", "containers", "ephemeralContainers")
    names = [container["name"] for kind in kinds for container in spec.get(kind) or ()]
    own = pod["metadata"]["name"]
    if name:
        if name not in names:
            raise bad_request(f"container {name} is not valid for pod {own}")
        return name
    regular: list[str] = [container["name"] for container in spec["containers"]]
    if len(regular) > 1:
        raise bad_request(f"a container name must be specified for pod {own}, choose one of: [{' '.join(names)}]")
    return regular[0]


class NodeTarget(NamedTuple):
    node: str
    path: str  # with its query


def _target(app: App, call: ApiCall) -> NodeTarget:
    """Where a stream goes; raises what is wrong with the request."""
    info = call.info
    pod = pod_of(app.cluster, info.namespace, info.name)
    is_port_forward = info.subresource == "portforward"
    container = "" if is_port_forward else _container(pod, info.option("container"))
    node: str = pod["spec"].get("nodeName") or ""
    if not node:
        raise bad_request(f"pod {info.name} does not have a host assigned")
    if is_port_forward:
        query = [("ports", port) for port in info.query.get("ports") or ()]
        return NodeTarget(node, with_query(f"/portForward/{info.namespace}/{info.name}", query))
    query = []
    if info.subresource == "exec":
        query = [("command", argument) for argument in info.query.get("command") or ()]
        if not query:
            raise bad_request("you must specify at least 1 command for the container")
    query += [(name, info.option(name)) for name in _STREAM_OPTIONS if info.option(name)]
    return NodeTarget(node, with_query(f"/{info.subresource}/{info.namespace}/{info.name}/{container}", query))


def _check_log_options(call: ApiCall) -> None:
    errors = []
    for name, least in (("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)):
        text = call.info.option(name)
        if not text:
            continue
        try:
            number = int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
        if number < least:
            detail = "must be greater than or equal to 0" if least == 0 else "must be greater than 0"
            errors.append(FieldError("FieldValueInvalid", name, detail, number))
    if errors:
        raise invalid("", "PodLogOptions", call.info.name, errors)
