"""Port-forward over the channels of a WebSocket (v4.channel.k8s.io), as client libraries other than kubectl use it.

`?ports=80&ports=443`: port number i has channel 2·i for data and 2·i+1 for what went wrong. Both begin with the port in
two bytes, little endian. There is one connection per port, made at once; no half of it can be closed alone.
"""

from __future__ import annotations

import asyncio
import struct

from plimsoll.aio import cancel_all
from plimsoll.errors import PlimsollError
from plimsoll.node.server.exec import ChannelSocket
from plimsoll.node.server.http import HttpError
from plimsoll.node.server.idle import IdleClock
from plimsoll.node.server.logs import Query
from plimsoll.node.server.portforward import CHUNK, Connect, Streams

MAX_PORTS = 127  # two channels each, and a channel is one byte


def channel_ports(query: Query) -> tuple[int, ...]:
    """Raises HttpError(400)."""
    ports = []
    for text in (text for texts in query.get("ports") or query.get("port") or () for text in texts.split(",")):
        if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
            raise HttpError(400, f'query parameter "ports": "{text}" is not a port from 1 to 65535')
        ports.append(int(text))
    if not 0 < len(ports) <= MAX_PORTS:
        raise HttpError(400, f'query parameter "ports" is required, with at most {MAX_PORTS} ports')
    return tuple(ports)


async def forward_channels(
    channels: ChannelSocket, ports: tuple[int, ...], pod: str, connect: Connect, idle: IdleClock
) -> None:
    connections: dict[int, Streams] = {}
    tasks: list[asyncio.Task[None]] = []
    try:
        for number, port in enumerate(ports):
            for channel in (2 * number, 2 * number + 1):
                await channels.send(bytes([channel]) + struct.pack("<H", port))
            try:
                connections[2 * number] = await connect(port)
            except (PlimsollError, OSError) as error:
                message = f"error forwarding port {port} to pod {pod}: {error}"
                await channels.send(bytes([2 * number + 1]) + message.encode())
        tasks = [
            asyncio.create_task(each)
            for each in (
                _to_clients(channels, connections, idle),
                _to_pod(channels, connections, idle),
                channels.gone(),
                idle.expired(),
            )
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await channels.close()
    except OSError:
        pass  # the client has left
    finally:
        await cancel_all(tasks)
        for _, writer in connections.values():
            writer.close()


async def _to_clients(channels: ChannelSocket, connections: dict[int, Streams], idle: IdleClock) -> None:
    """Until every connection has ended."""
    async with asyncio.TaskGroup() as group:
        for channel, connection in connections.items():
            group.create_task(_to_client(channels, channel, connection, idle))


async def _to_client(channels: ChannelSocket, channel: int, connection: Streams, idle: IdleClock) -> None:
    try:
        while data := await connection[0].read(CHUNK):
            idle.touch()
            await channels.send(bytes([channel]) + data)
    except OSError:
        pass  # of the pod or of the client: either way nothing more comes


async def _to_pod(channels: ChannelSocket, connections: dict[int, Streams], idle: IdleClock) -> None:
    channel: int | None = None
    try:
        async for data, is_last in channels.pieces():
            idle.touch()
            if channel is None and data:
                channel, data = data[0], data[1:]
            connection = connections.get(-1 if channel is None else channel)
            if connection is not None and data and not connection[1].is_closing():
                connection[1].write(data)
                await connection[1].drain()
            channel = None if is_last else channel
    except OSError:
        pass
