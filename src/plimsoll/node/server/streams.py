"""Requests that take over their connection: exec, attach and port-forward, over a WebSocket or SPDY/3.1.

The protocol is negotiated here, and the container or sandbox is looked up; `exec`, `spdy` and the two modules for
port-forward carry the data.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from typing import Protocol

import msgspec

from plimsoll.node.server.exec import (
    SUBPROTOCOLS,
    V4,
    V5,
    ExecOptions,
    attach_options,
    exec_options,
    handshake_problem,
    offered_subprotocols,
    run_exec,
)
from plimsoll.node.server.http import HttpError, HttpRequest, HttpResponse, Upgrade
from plimsoll.node.server.idle import IdleClock
from plimsoll.node.server.logs import Query, bare_id, containers, running_container_id
from plimsoll.node.server.port_channels import channel_ports, forward_channels
from plimsoll.node.server.portforward import PORT_FORWARD, ForwardedConnection, PortRefusedError, Streams
from plimsoll.node.server.spdy import SpdyChannels, is_spdy, offered_versions
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.runtime.interface import ExecSession, ObservedSandbox

STREAMS = frozenset({"exec", "attach", "portForward"})
CONNECT_S = 10.0
LOOPBACK = ((socket.AF_INET, "127.0.0.1", "IPv4"), (socket.AF_INET6, "::1", "IPv6"))


class StreamPods(Protocol):
    """The agent's pods. A document is the pod as the API has it, with the newest status of the agent."""

    def find(self, namespace: str, name: str) -> JsonObject | None: ...
    def sandbox(self, uid: str) -> ObservedSandbox | None:
        """The newest of a pod."""


class StreamAccess(Protocol):
    """The part of a runtime that is needed here."""

    async def exec(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession: ...
    async def attach(self, container_id: str, *, stdin: bool, tty: bool) -> ExecSession: ...
    async def loopback_socket(self, sandbox_id: str, family: socket.AddressFamily) -> socket.socket: ...


class StreamRequests:
    def __init__(self, pods: StreamPods, containers: StreamAccess, idle_s: float) -> None:
        self._pods, self._containers, self._idle_s = pods, containers, idle_s

    def exec(self, request: HttpRequest, namespace: str, name: str, container: str) -> HttpResponse:
        return self._session(request, exec_options, namespace, name, container)

    def attach(self, request: HttpRequest, namespace: str, name: str, container: str) -> HttpResponse:
        """Whether the process has a terminal was decided when it was started, whatever the client says."""
        spec = next(
            (each for each in containers(self._found(namespace, name)) if each["name"] == container), JsonObject()
        )
        return self._session(request, attach_options, namespace, name, container, tty=bool(spec.get("tty")))

    def port_forward(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        pod = self._found(namespace, name)
        uid = str(pod["metadata"].get("uid", ""))
        title = f"{name}_{namespace}, uid {uid}"
        connect = functools.partial(self._connect, uid)
        if is_spdy(request):
            _check_version(request, PORT_FORWARD)

            async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await ForwardedConnection(title, connect, IdleClock(self._idle_s), (reader, writer)).run()

            return Upgrade(run)
        subprotocol = _subprotocol(request, (V4,))
        ports = channel_ports(request.query)

        async def run_channels(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            from plimsoll.net.websocket import WebSocket  # imports wsproto, which most agents never need

            channels = await WebSocket.accept(request.headers, request.target, subprotocol, reader, writer)
            await forward_channels(channels, ports, title, connect, IdleClock(self._idle_s))

        return Upgrade(run_channels)

    def _session(
        self,
        request: HttpRequest,
        read: OptionReader,
        namespace: str,
        name: str,
        container: str,
        *,
        tty: bool | None = None,
    ) -> HttpResponse:
        over_spdy = is_spdy(request)
        subprotocol = "" if over_spdy else _subprotocol(request, SUBPROTOCOLS, or_none=True)
        if over_spdy:
            _check_version(request, V4)
        wanted = read(request.query)
        options = wanted if tty is None else msgspec.structs.replace(wanted, tty=tty)
        start = functools.partial(self._start, options, namespace, name, container)

        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if over_spdy:
                channels = await SpdyChannels.accepted(wanted, reader, writer)
                await run_exec(channels, options, start, IdleClock(self._idle_s))
                return
            from plimsoll.net.websocket import WebSocket  # imports wsproto, which most agents never need

            web_socket = await WebSocket.accept(request.headers, request.target, subprotocol, reader, writer)
            has_status = subprotocol in (V5, V4)
            await run_exec(web_socket, options, start, IdleClock(self._idle_s), has_status=has_status)

        return Upgrade(run)

    async def _start(self, options: ExecOptions, namespace: str, name: str, container: str) -> ExecSession:
        full_id = running_container_id(self._found(namespace, name), container)
        if not full_id:
            raise HttpError(404, f'container not found ("{container}")')
        container_id = bare_id(full_id)
        if not options.command:
            return await self._containers.attach(container_id, stdin=options.stdin, tty=options.tty)
        return await self._containers.exec(container_id, options.command, stdin=options.stdin, tty=options.tty)

    def _found(self, namespace: str, name: str) -> JsonObject:
        pod = self._pods.find(namespace, name)
        if pod is None:
            raise HttpError(404, f'pod "{name}" not found')
        return pod

    async def _connect(self, uid: str, port: int) -> Streams:
        """To the pod's loopback address: what a pod serves to itself only can be forwarded, too."""
        sandbox = self._pods.sandbox(uid)
        if sandbox is None or not sandbox.ready:
            raise PortRefusedError("the pod has no network: its sandbox is not ready")
        problems = []
        for family, address, title in LOOPBACK:
            connecting = await self._containers.loopback_socket(sandbox.id, family)
            connecting.setblocking(False)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await asyncio.get_running_loop().sock_connect(connecting, (address, port))
                    return await asyncio.open_connection(sock=connecting)
            except OSError as error:
                connecting.close()
                reason = os.strerror(error.errno).lower() if error.errno else "no answer"
                problems.append(f"{title}: {reason}")
            except BaseException:
                connecting.close()
                raise
        raise PortRefusedError(f"failed to connect to localhost:{port} inside the pod: {', '.join(problems)}")


class OptionReader(Protocol):
    def __call__(self, query: Query, /) -> ExecOptions: ...


def _subprotocol(request: HttpRequest, known: tuple[str, ...], *, or_none: bool = False) -> str:
    """`or_none`: a client need not offer any."""
    if problem := handshake_problem(request):
        raise HttpError(400, problem)
    offered = offered_subprotocols(request)
    if or_none and not offered:
        return ""
    for name in known:
        if name in offered:
            return name
    raise HttpError(400, f"{request.path[0]} needs one of these WebSocket subprotocols: {', '.join(known)}")


def _check_version(request: HttpRequest, known: str) -> None:
    if known not in offered_versions(request):
        raise HttpError(403, f"unable to upgrade: unable to negotiate protocol: the server accepts [{known}]")
