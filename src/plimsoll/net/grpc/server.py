"""A gRPC server on a unix socket: unary calls, and streams of answers to one request.

A handler gets the request's bytes and returns the answer's, or is an asynchronous generator of answers. It raises
`GrpcError` to end the call with that status; any other exception ends this call only, with UNKNOWN. One client cannot
delay the others: the number of connections and of calls on each is limited, a request has at most `max_message`
bytes, and an answer waits for the window of its own client only. The deadline that a client sends is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll.net.grpc.server_connection import ServerConnection

log = logging.getLogger(__name__)

Unary = Callable[[bytes], Awaitable[bytes]]
Stream = Callable[[bytes], AsyncGenerator[bytes, None]]
MAX_MESSAGE = 4 << 20  # the default of grpc-go
BACKLOG = 64


class GrpcServer:
    def __init__(
        self,
        unary: Mapping[str, Unary],
        streams: Mapping[str, Stream] | None = None,
        *,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        """Handlers by the whole path of the method, such as `/v1.PodResourcesLister/List`."""
        self.unary, self.streams, self.max_message = unary, streams or {}, max_message
        self.connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def listen(self, path: Path, *, mode: int = 0o600) -> None:
        """Replaces a socket that an earlier process left there, but no other file. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mask = os.umask(0o777 & ~mode)
            try:
                listener.bind(os.fspath(path))
            finally:
                os.umask(mask)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._connection, sock=listener, backlog=BACKLOG)
        except BaseException:
            listener.close()
            raise
        self._path = path

    def _connection(self) -> ServerConnection:
        from plimsoll.net.grpc.server_connection import ServerConnection  # most sockets have no client

        return ServerConnection(self)

    async def close(self) -> None:
        """End every call and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in [*self.connections]:
            connection.fail("the server ends")
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._path = None
