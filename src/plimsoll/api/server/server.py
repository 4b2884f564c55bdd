"""The listening server: uvicorn with the application, a certificate, and its own connection class (`connection`).

`serving` is for callers that run the server beside other things (tests, `up`); `serve` runs it until it is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import uvicorn

from plimsoll.api.server.app import App
from plimsoll.api.server.connection import KEEP_ALIVE_S, limited
from plimsoll.errors import PlimsollError
from plimsoll.linux.listeners import listening_process

SHUTDOWN_S = 5


class Listener(msgspec.Struct, frozen=True):
    """The address and the certificate. Port 0 takes any free port. Client certificates are optional."""

    host: str = "127.0.0.1"
    port: int = 6443
    tls: ssl.SSLContext | None = None  # none: plain HTTP, for tests only


class ServerStartError(PlimsollError):
    """The server did not start, with the reason."""


class _Server(uvicorn.Server):
    """Leaves signals to the caller and sets `listening` when it listens."""

    def __init__(self, app: App, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # uvicorn ends the process if the application does not start
            raise ServerStartError(str(self._app.start_problem or "the API server did not start")) from None
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def _config(app: App, listener: Listener) -> uvicorn.Config:
    tls = listener.tls
    return uvicorn.Config(
        app,
        host=listener.host,
        port=listener.port,
        http=limited(app.options.limits.connections),
        ws="wsproto",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        backlog=2048,
        ssl_context_factory=(lambda *_: tls) if tls is not None else None,
    )


def _bound_socket(listener: Listener) -> socket.socket:
    """Bound here, so that a port in use is a clear error and port 0 is known before the first connection."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    # With its protocol: asyncio sets TCP_NODELAY only on sockets that name TCP, and without it every response waits for
    # the client's delayed acknowledgement (40 ms).
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((listener.host, listener.port))
    except OSError as error:
        bound.close()
        raise ServerStartError(listen_problem(listener.host, listener.port, error)) from error
    return bound


def listen_problem(host: str, port: int, error: OSError) -> str:
    used_by = listening_process(port) if error.errno == errno.EADDRINUSE else None
    who = f" by process {used_by[0]} ({used_by[1]})" if used_by is not None else ""
    return f"cannot listen on {host}:{port}: {error.strerror}{who}; choose another with --listen HOST:PORT"


@contextlib.asynccontextmanager
async def serving(app: App, listener: Listener) -> AsyncIterator[str]:
    """Yield the server's URL once it answers; shut it down at the end."""
    bound = _bound_socket(listener)
    address = f"{listener.host}:{bound.getsockname()[1]}"
    app.pages.set_address(address)
    server = _Server(app, _config(app, listener))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    listening = asyncio.create_task(server.listening.wait())
    await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        listening.cancel()
        bound.close()
        running.result()
        raise ServerStartError("the API server ended at once")
    try:
        yield f"{'https' if listener.tls else 'http'}://{address}"
    finally:
        app.end_watches()
        server.should_exit = True
        await running


async def serve(app: App, listener: Listener, announce: Callable[[str], None], stop: asyncio.Event) -> None:
    """Run until `stop` is set. `announce` is called with the URL as soon as the server answers."""
    async with serving(app, listener) as url:
        announce(url)
        await stop.wait()
