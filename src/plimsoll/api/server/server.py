"""The listening server: uvicorn with the application, a certificate, and its own connection class (`connection`).

`serving` is for callers that run the server beside other things (tests, `up`); `serve` runs it until it is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import uvicorn

from plimsoll.api.server.app import App
from plimsoll.api.server.callers import Callers
from plimsoll.api.server.connection import KEEP_ALIVE_S, limited
from plimsoll.api.server.silent import SilentConnections
from plimsoll.errors import PlimsollError
from plimsoll.linux.listeners import listen_problem

SHUTDOWN_S = 5
SILENT = 1024  # connections that have sent nothing, and as many that wait for their handshake
HANDSHAKES, HANDSHAKE_S = 64, 10.0
_TOGETHER, _CROWD_PAUSE_S = 4, 0.005  # handshakes of one address, and how long its next one then waits
_PACE_S, _AT_MOST = 0.01, 8  # in a long round: one handshake for so much of the last round, at most so many
_BACKLOG = 2048
_ACCEPTED = 16  # at most, in one round of the event loop: less than a millisecond
_ACCEPT_PAUSE_S = 0.1

log = logging.getLogger("plimsoll.api")


class Listener(msgspec.Struct, frozen=True):
    """The address and the certificate. Port 0 takes any free port. Client certificates are optional."""

    host: str = "127.0.0.1"
    port: int = 6443
    tls: ssl.SSLContext | None = None  # none: plain HTTP, for tests only
    advertised: str = ""  # the host that others use; empty: `host`

    @property
    def local_host(self) -> str:
        """By which a client on this machine reaches it."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)


class ServerStartError(PlimsollError):
    """The server did not start, with the reason."""


class _Server(uvicorn.Server):
    """Leaves signals to the caller, accepts connections itself, and sets `listening` when it does.

    asyncio accepts all waiting connections at once, begins TLS with each, and each may keep its memory for a minute
    without sending a byte. Here TLS begins when a client has sent something (`silent`), with one connection in each
    short round of the event loop (`callers`), because a handshake takes half a millisecond, and one more when the
    client's certificate arrives. Where other work makes the rounds long, more begin in each: else fifty new clients
    would wait for fifty of them. While an address has several under way, its next one waits for their end, or a
    moment: they may be far away. If many are silent, the oldest is closed, and so is the oldest of many handshakes: an
    honest client needs a moment for either, so under attack the others go first.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._accepting = contextlib.ExitStack()  # ends it
        self._again: asyncio.TimerHandle | None = None  # when it has paused
        self._speaking = Callers()
        self._next: asyncio.Handle | None = None  # the next handshake
        self._crowd: asyncio.TimerHandle | None = None  # the next one of a crowd
        self._under_way: Counter[str] = Counter()  # handshakes by address
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}  # oldest first

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        assert sockets is not None
        (bound,) = sockets
        bound.setblocking(False)
        bound.listen(_BACKLOG)
        silent = self._accepting.enter_context(
            contextlib.closing(SilentConnections(self._has_spoken, SILENT, HANDSHAKE_S))
        )
        self._accept_from(bound, silent)
        self._accepting.callback(asyncio.get_running_loop().remove_reader, bound)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.close()
        if self._again is not None:
            self._again.cancel()
        while self._handshakes:
            self._drop_oldest_handshake()
        for connection in self._speaking:
            connection.close()
        self._speaking = Callers()
        await super().shutdown(sockets)

    def _accept_from(self, bound: socket.socket, silent: SilentConnections) -> None:
        asyncio.get_running_loop().add_reader(bound, self._accept, bound, silent)

    def _accept(self, bound: socket.socket, silent: SilentConnections) -> None:
        for _ in range(_ACCEPTED):
            try:
                connection, address = bound.accept()
            except (BlockingIOError, ConnectionAbortedError):  # there is none, or its client is gone already
                return
            except OSError as error:  # out of descriptors
                log.warning("cannot accept a connection: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(bound)
                self._again = loop.call_later(_ACCEPT_PAUSE_S, self._accept_from, bound, silent)
                return
            connection.setblocking(False)
            silent.add(address[0], connection)

    def _has_spoken(self, address: str, connection: socket.socket) -> None:
        self._speaking.add(address, connection)
        if len(self._speaking) > SILENT:
            self._speaking.take_surplus().close()
        if self._next is None:  # no handshake has begun in this round
            self._begin_next()

    def _schedule(self) -> None:
        """Begin handshakes in the next round of the event loop."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.call_soon(self._begin_after, loop.time())

    def _begin_after(self, last_s: float) -> None:
        """`last_s`: a time in the last round."""
        self._begin_next(handshakes_due(asyncio.get_running_loop().time() - last_s))

    def _begin_next(self, due: int = 1) -> None:
        self._next = None
        # After a long round the moment of a crowd is over.
        most, begun = _TOGETHER if due == 1 else HANDSHAKES, 0
        while begun < due:
            taken = self._speaking.take([each for each, count in self._under_way.items() if count >= most])
            if taken is None:
                break
            self._begin(*taken)
            begun += 1
        if begun:
            self._schedule()
        elif self._speaking and self._crowd is None:
            self._crowd = asyncio.get_running_loop().call_later(_CROWD_PAUSE_S, self._begin_of_crowd)

    def _begin_of_crowd(self) -> None:
        self._crowd = None
        taken = self._speaking.take()
        if taken is not None:
            self._begin(*taken)
        self._schedule()

    def _begin(self, address: str, connection: socket.socket) -> None:
        self._under_way[address] += 1
        self._handshakes[connection] = task = asyncio.get_running_loop().create_task(self._connect(connection))
        task.add_done_callback(lambda _: self._end_handshake(address, connection))
        if len(self._handshakes) > HANDSHAKES:
            self._drop_oldest_handshake()

    def _end_handshake(self, address: str, connection: socket.socket) -> None:
        self._handshakes.pop(connection, None)
        self._under_way[address] -= 1
        if not self._under_way[address]:
            del self._under_way[address]
        self._schedule()

    def _drop_oldest_handshake(self) -> None:
        """By an end of the stream, at which asyncio closes its transport and then the socket.

        A cancelled handshake may leave the transport registered. If its socket is closed then, the number of the
        descriptor is used again, and events of another connection are delivered to that transport.
        """
        oldest = next(iter(self._handshakes))
        del self._handshakes[oldest]
        with contextlib.suppress(OSError):  # the client may have left
            oldest.shutdown(socket.SHUT_RDWR)

    async def _connect(self, connection: socket.socket) -> None:
        config = self.config

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        with contextlib.suppress(OSError):  # the client's affair: it left, or does not speak TLS
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=config.ssl, ssl_handshake_timeout=HANDSHAKE_S if config.ssl else None
            )

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def handshakes_due(round_s: float) -> int:
    """How many begin after a round of this length: a quarter of the time is theirs, but never much at once."""
    return max(1, min(_AT_MOST, int(round_s / _PACE_S)))


def _websocket(**arguments: Any) -> asyncio.Protocol:
    """wsproto needs more than a megabyte: it is imported when a client opens the first WebSocket."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    return WSProtocol(**arguments)


def _config(app: App, listener: Listener) -> uvicorn.Config:
    tls = listener.tls
    return uvicorn.Config(
        app,
        host=listener.host,
        port=listener.port,
        http=limited(app.options.limits.connections),
        ws=_websocket,  # type: ignore[arg-type]  # uvicorn only calls it
        # A pong waits behind the data that a container has not read yet (kubectl cp of a large file), so a late one
        # does not mean that the client has gone; TCP notices that by the pings.
        ws_ping_timeout=None,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
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


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: App, listener: Listener) -> AsyncIterator[str]:
    """Yield the server's URL once it answers; shut it down at the end. Raises StoreError, ServerStartError."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are one for each bad request of a client
    with contextlib.closing(_bound_socket(listener)) as bound:
        port = bound.getsockname()[1]
        app.pages.set_address(_address(listener.advertised or listener.host, port))
        async with app.running():
            server = _Server(_config(app, listener))
            running = asyncio.create_task(server.serve(sockets=[bound]))
            listening = asyncio.create_task(server.listening.wait())
            await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                listening.cancel()
                running.result()
                raise ServerStartError("the API server did not start; its log has the reason")
            try:
                yield f"{'https' if listener.tls else 'http'}://{_address(listener.local_host, port)}"
            finally:
                app.end_watches()
                server.should_exit = True
                await running


async def serve(app: App, listener: Listener, announce: Callable[[str], None], stop: asyncio.Event) -> None:
    """Run until `stop` is set. `announce` is called with the URL as soon as the server answers."""
    async with serving(app, listener) as url:
        announce(url)
        await stop.wait()
