"""Requests that the API server forwards to a node: `pods/log`, `pods/exec`, `nodes/proxy` (05 B6 Subresources).

A log is streamed as it arrives. Exec is a WebSocket on both sides, and every message is forwarded unchanged, so its
channels concern only kubectl and the node. SPDY, the protocol of kubectl up to 1.29, is passed through (`tunnel`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from urllib.parse import quote

from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.exchange import HIJACK, Message, Receive, Scope, Send
from plimsoll.api.machinery.status import StatusError, bad_request, internal_error, invalid
from plimsoll.api.nodeproxy.client import NodeCalls, node_endpoint, pod_of, unreachable
from plimsoll.api.nodeproxy.tunnel import is_spdy, pass_through, upgrade_request, upgraded
from plimsoll.api.server.app import App
from plimsoll.errors import FieldError
from plimsoll.kube.request import ApiError as NodeRefused
from plimsoll.kube.request import ApiResponse, Method, Request, UnreachableError, with_query
from plimsoll.net.websocket import WebSocket
from plimsoll.rules.model.json_object import JsonObject

SUBPROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_LOG_OPTIONS = (
    "follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream", "tailLines", "timestamps",
)  # fmt: skip
_EXEC_OPTIONS = ("stdin", "stdout", "stderr", "tty")
_TEXT = [(b"content-type", b"text/plain")]


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
        await self._forward(app, node, request, receive, send, errors_as_status=True)

    async def proxy(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        info = call.info
        method: Method = scope["method"]
        query = scope["query_string"].decode("latin-1")
        # Quoted again: a line break in it would start a header, or another request.
        path = "/" + quote(info.rest, safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
        await self._forward(app, info.name, Request(method, path, accept="*/*"), receive, send)

    async def exec_over_http(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        """exec with an upgrade that ASGI does not know: SPDY is passed through, anything else is refused."""
        node, container = _exec_target(app, call)
        if HIJACK not in scope or not is_spdy(scope["headers"]):
            raise bad_request("Upgrade request required")
        endpoint = node_endpoint(app.cluster, node)
        request = upgrade_request(f"{endpoint.host}:{endpoint.port}", _exec_path(call, container), scope["headers"])
        try:
            far = await self._calls.connect(endpoint)
        except UnreachableError as error:
            raise unreachable(error) from error
        try:
            answer = await upgraded(far, request)
            if isinstance(answer, ApiResponse):
                raise _refusal(answer)
            client = scope[HIJACK]()
            client[1].write(answer)
            try:
                await pass_through(client, far)
            finally:
                client[1].close()
        except UnreachableError as error:
            raise unreachable(error) from error
        finally:
            far[1].close()

    async def _forward(
        self, app: App, node: str, request: Request, receive: Receive, send: Send, *, errors_as_status: bool = False
    ) -> None:
        """Forward the node's response, piece by piece, until it ends or the client disconnects.

        `errors_as_status`: an error of the node becomes a Status.
        """
        transport = await self._calls.transport(node_endpoint(app.cluster, node))
        task = asyncio.current_task()
        assert task is not None
        leaving = asyncio.create_task(_disconnected(receive))
        passing = True
        leaving.add_done_callback(lambda done: task.cancel() if passing and not done.cancelled() else None)
        try:
            async with aclosing(transport.stream(request)) as stream:
                async for part in stream:
                    if isinstance(part, ApiResponse):
                        if errors_as_status and part.status >= 400:
                            raise _refusal(part)
                        await send({"type": "http.response.start", "status": part.status, "headers": _TEXT})
                        part = part.body
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except UnreachableError as error:
            raise unreachable(error) from error
        except asyncio.CancelledError:
            if not leaving.done():
                raise
            task.uncancel()
        finally:
            passing = False
            leaving.cancel()

    async def exec(self, app: App, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket that has not been accepted yet."""
        node, container = _exec_target(app, call)
        offered = [protocol for protocol in SUBPROTOCOLS if protocol in scope.get("subprotocols", ())]
        if not offered:
            raise bad_request(f"exec needs one of these WebSocket subprotocols: {', '.join(SUBPROTOCOLS)}")
        try:
            target = _exec_path(call, container)
            far = await self._calls.websocket(node_endpoint(app.cluster, node), target, offered)
        except NodeRefused as error:
            raise StatusError(error.code, error.reason, error.message) from error
        except UnreachableError as error:
            raise unreachable(error) from error
        try:
            await send({"type": "websocket.accept", "subprotocol": far.subprotocol or offered[0]})
            await _relay(far, receive, send)
        finally:
            await far.close()


async def _relay(far: WebSocket, receive: Receive, send: Send) -> None:
    async def outward() -> None:
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
    names = [container["name"] for kind in ("initContainers", "containers") for container in spec.get(kind) or ()]
    own = pod["metadata"]["name"]
    if name:
        if name not in names:
            raise bad_request(f"container {name} is not valid for pod {own}")
        return name
    regular: list[str] = [container["name"] for container in spec["containers"]]
    if len(regular) > 1:
        raise bad_request(f"a container name must be specified for pod {own}, choose one of: [{' '.join(names)}]")
    return regular[0]


def _exec_target(app: App, call: ApiCall) -> tuple[str, str]:
    """Node and container; raises what is wrong with the request."""
    info = call.info
    pod = pod_of(app.cluster, info.namespace, info.name)
    container = _container(pod, info.option("container"))
    node: str = pod["spec"].get("nodeName") or ""
    if not node:
        raise bad_request(f"pod {info.name} does not have a host assigned")
    if not info.query.get("command"):
        raise bad_request("you must specify at least 1 command for the container")
    return node, container


def _exec_path(call: ApiCall, container: str) -> str:
    info = call.info
    query = [("command", argument) for argument in info.query["command"]]
    query += [(name, info.option(name)) for name in _EXEC_OPTIONS if info.option(name)]
    return with_query(f"/exec/{info.namespace}/{info.name}/{container}", query)


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
