"""`plimsoll port-forward`: local ports that lead to ports of a pod.

Every local connection has a WebSocket of its own, and in it SPDY/3.1 with one pair of streams, as kubectl speaks it
from 1.30 on. So each direction can end by itself, and a slow connection holds up no other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, PodName, answered, cluster_options
from plimsoll.cli.terminal import inert
from plimsoll.codec.spdy import PROTOCOL, SpdyConnection, SpdyError, StreamData, StreamReset
from plimsoll.errors import PlimsollError
from plimsoll.kube.request import PODS, get
from plimsoll.net.websocket import WebSocket

TUNNEL = f"{PROTOCOL}+portforward.k8s.io"
ERROR, DATA = 1, 3
CHUNK = 32 << 10


class PortPair(msgspec.Struct, frozen=True):
    local: int  # 0: any free one
    remote: int


class PortPairType(console.ParamType[PortPair]):
    """`8080:80`, `:80` (any free local port) or `80`."""

    name = "[LOCAL:]REMOTE"

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> PortPair:
        if isinstance(value, PortPair):
            return value
        local, colon, remote = str(value).rpartition(":")
        texts = (local or "0", remote) if colon else (remote, remote)
        if not all(text.isascii() and text.isdecimal() and int(text) < 65536 for text in texts) or not int(remote):
            self.fail(f"{value!r} is not [LOCAL:]REMOTE with ports from 1 to 65535", param, ctx)
        return PortPair(int(texts[0]), int(remote))


class Forwarder:
    def __init__(self, cluster: ClusterClient, pod: str, address: str) -> None:
        self._cluster, self._address = cluster, address
        self._path = PODS.path(cluster.namespace, pod, "portforward")

    async def listen(self, pair: PortPair) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._forward(pair.remote, reader, writer)
            except (PlimsollError, OSError) as error:
                console.echo(f"plimsoll: {inert(str(error))}", err=True)
            finally:
                writer.close()

        server = await asyncio.start_server(accept, self._address, pair.local)
        port = server.sockets[0].getsockname()[1]
        console.echo(f"Forwarding from {self._address}:{port} -> {pair.remote}")
        return server

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        socket = await self._cluster.transport.websocket(self._path, (TUNNEL,))
        spdy = SpdyConnection()
        sending = None
        try:
            headers = {"port": str(port), "requestID": "0"}
            await socket.send(spdy.open(ERROR, {**headers, "streamType": "error"}, is_last=True))
            await socket.send(spdy.open(DATA, {**headers, "streamType": "data"}))
            sending = asyncio.create_task(_send(reader, socket, spdy))
            if problem := await _receive(writer, socket, spdy):
                console.echo(f"plimsoll: {inert(problem)}", err=True)
        finally:
            if sending is not None:
                await cancel_all([sending])
            await socket.close()


async def _send(reader: asyncio.StreamReader, socket: WebSocket, spdy: SpdyConnection) -> None:
    with suppress(OSError):  # whichever side has left: `_receive` notices it
        while data := await reader.read(CHUNK):
            await socket.send(spdy.data(DATA, data))
        await socket.send(spdy.data(DATA, b"", is_last=True))


async def _receive(writer: asyncio.StreamWriter, socket: WebSocket, spdy: SpdyConnection) -> str:
    """Until the pod's half has ended. What went wrong, as the node says it."""
    problem, open_streams = b"", {ERROR, DATA}
    while open_streams and (message := await socket.receive()) is not None:
        try:
            events = list(spdy.receive(message))
        except SpdyError as error:
            return str(error)
        for event in events:
            match event:
                case StreamData(stream=3, data=data):
                    writer.write(data)
                    await writer.drain()
                case StreamData(stream=1, data=data):
                    problem += data[: CHUNK - len(problem)]
            if not isinstance(event, StreamReset) and not (isinstance(event, StreamData) and event.is_last):
                continue
            if event.stream in open_streams:
                open_streams.discard(event.stream)
                if event.stream == DATA and writer.can_write_eof():
                    writer.write_eof()
    return problem.decode(errors="replace")


async def forwarded(cluster: ClusterClient, pod: str, address: str, pairs: tuple[PortPair, ...]) -> int:
    await cluster.ask(get(PODS, pod, cluster.namespace))  # a pod that does not exist is reported at once
    forwarder = Forwarder(cluster, pod, address)
    servers = [await forwarder.listen(pair) for pair in pairs]
    try:
        await asyncio.gather(*(server.serve_forever() for server in servers))
    finally:
        for server in servers:
            server.close()
    return 0


@console.command("port-forward")
@cluster_options
@console.option("--address", default="127.0.0.1", show_default=True, help="The local address to listen on.")
@console.argument("pod", type=PodName(), metavar="POD")
@console.argument("ports", nargs=-1, required=True, type=PortPairType(), metavar="[LOCAL:]REMOTE...")
def port_forward(pod: str, ports: tuple[PortPair, ...], address: str, **options: Any) -> int:
    """Forward local ports to ports of a pod, until it is interrupted.

    \b
    Examples:
      plimsoll port-forward web 8080:80
      plimsoll port-forward web :80 443
    """
    return answered(options, lambda cluster: forwarded(cluster, pod, address, ports))
