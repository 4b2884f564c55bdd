"""One client's connection: its certificate, its limits before the first request, how long it may be idle.

No user is known before the head of a request is complete, so until then a client gets little memory and little time. A
connection above the limit is a surplus connection: the server answers its first request, mostly with an error, and
closes it; above the reserve it answers nothing. A connection belongs to the user of its first request (`Peers`): those
without a user are few, and users other than administrators and nodes have a limit. For a new connection without a user
the oldest of them is dropped that shows the same certificate as most, so a crowd drops its own.

An answer that the client does not read waits in the connection's buffer. It is dropped after `UNREAD_S`, or as soon as
its user, or all together, have more of them than a server has memory for.

Timers are per connection and not per request: the idle timer checks the clock when it fires.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from plimsoll.api.machinery.exchange import CLAIM, HIJACK, SURPLUS, WIRE, Streams, Wire
from plimsoll.api.machinery.users import certificate_user
from plimsoll.api.server.fairness import is_exempt
from plimsoll.api.server.inbox import Inbox
from plimsoll.net.lanes import slowing_down
from plimsoll.net.tls import use_small_buffers

KEEP_ALIVE_S = 120
HEAD_BYTES, HEAD_S = 64 * 1024, 32.0  # of a request's line and headers
HEADERS = 256
PIPELINED = 8  # requests that wait for the answer to the one before
UNREAD_S = 30.0
UNREAD_BYTES, USER_UNREAD_BYTES = 128 * 1024 * 1024, 32 * 1024 * 1024
UNKNOWN = 256  # connections without a user
SPILL_BYTES = 8 * 1024 * 1024  # of a body after its response, which most clients read only when they have sent all
RESERVE = 1024  # connections beyond the limit that still get an answer
use_small_buffers()


class TooManyPipelinedError(Exception):
    """More requests on one connection than may wait there."""


class TooManyHeadersError(Exception):
    """More headers in one request than any client sends."""


class Peers:
    """The connections of one server by their users, and what they have not read."""

    def __init__(self) -> None:
        # Without a user, by the name in their certificate, each oldest first.
        self._unknown: dict[str, dict[HttpConnection, None]] = {}
        self._all_unknown = 0
        self._owned: dict[str, int] = {}
        self._unread: dict[str, int] = {}  # bytes
        self._all_unread = 0

    def add(self, connection: HttpConnection) -> None:
        self._unknown.setdefault(connection.shown_name, {})[connection] = None
        self._all_unknown += 1
        if self._all_unknown > UNKNOWN:
            most = max(self._unknown.values(), key=len)
            oldest = next(iter(most))
            self.forget(oldest)
            oldest.drop()

    def forget(self, connection: HttpConnection) -> None:
        """It has a user, or is none of these any more."""
        alike = self._unknown.get(connection.shown_name, {})
        if connection in alike:
            del alike[connection]
            self._all_unknown -= 1
            if not alike:
                del self._unknown[connection.shown_name]

    def own(self, connection: HttpConnection, user: str, limit: int) -> bool:
        owned = self._owned.get(user, 0)
        if limit and owned >= limit:
            return False
        self.forget(connection)
        self._owned[user] = owned + 1
        return True

    def disown(self, user: str) -> None:
        self._owned[user] -= 1
        if not self._owned[user]:
            del self._owned[user]

    def note_unread(self, user: str, size: int) -> bool:
        """Whether so many bytes more, or less, may be unread."""
        of_user = self._unread.pop(user, 0) + size
        if of_user:
            self._unread[user] = of_user
        self._all_unread += size
        return of_user <= USER_UNREAD_BYTES and self._all_unread <= UNREAD_BYTES


class HttpConnection(HttpToolsProtocol):
    """Puts the client's certificate, verified by TLS, into `scope["state"]["peer"]`. Use `limited`."""

    limit = 0  # of connections; 0: none
    peers = Peers()
    inbox = Inbox()

    shown_name, _is_exempt = "", False  # by the client's certificate
    _running: RequestResponseCycle | None = None  # uvicorn knows only the newest of several requests
    _owner = ""
    _unread_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None

    _head_bytes = _spilled_bytes = 0
    _head_open = _body_open = _is_surplus = _is_upgraded = False
    _head_timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._slow_down = slowing_down(self.loop)
        if self.limit:
            surplus = len(self.connections) - self.limit
            self._is_surplus = surplus > 0
            if surplus > RESERVE:
                self.drop()
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None:
            peer = tls.getpeercert()
            self.app_state = {**self.app_state, "peer": peer}
            user = certificate_user(peer) if peer else None
            if user is not None:
                self.shown_name, self._is_exempt = user.name, is_exempt(user)
        self.peers.add(self)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Of a client that is exempt by its certificate at once, of others in their round (`Inbox`, `Lanes`)."""
        if self._is_exempt:
            self.parse(data)
        else:
            self._slow_down(self._descriptor)
            self.inbox.receive(self, data)

    def pause(self) -> None:
        self.transport.pause_reading()

    def resume(self) -> None:
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def parse(self, data: bytes) -> None:
        if self.parser is None:  # the connection has ended meanwhile
            return
        if self._is_upgraded or self.transport.is_closing():  # what follows too early is lost
            return
        super().data_received(data)
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._await_head()
        else:
            self._head_bytes = 0
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, against its declared type
        answered = cycle is not None and cycle.response_complete
        self._spilled_bytes = self._spilled_bytes + len(data) if self._body_open and answered else 0
        if self._head_bytes > HEAD_BYTES or self._spilled_bytes > SPILL_BYTES:
            self.drop()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """uvicorn's, with a limit."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > HEADERS:
            raise TooManyHeadersError  # ends the parsing: the answer is 400

    def on_headers_complete(self) -> None:
        self._head_open, self._body_open = False, True
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        before: RequestResponseCycle | None = self.cycle
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            self.drop()
            raise TooManyPipelinedError  # ends the parsing of what else was received
        if self.cycle is not before and self.cycle is not None:  # an upgrade has none
            self.scope[WIRE] = Wire(self.cycle)  # type: ignore[literal-required]
            self.scope[CLAIM] = self.claim  # type: ignore[literal-required]
            if self.parser.should_upgrade():
                self.scope[HIJACK] = self.hijack  # type: ignore[literal-required]
            if self._is_surplus:
                self.scope[SURPLUS] = self.limit  # type: ignore[literal-required]
                self.cycle.keep_alive = False

    def claim(self, user: str, limit: int) -> bool:
        """`Claim`. A connection that the user may not have is closed after its answer."""
        if self._owner == user:
            return True
        if not self.peers.own(self, user, limit):
            self.cycle.keep_alive = False
            return False
        if self._owner:
            self.peers.disown(self._owner)
        self._owner = user
        return True

    def drop(self) -> None:
        """End it at once; what is being answered stops."""
        self._end_running()
        self.transport.abort()

    def _end_running(self) -> None:
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._running = None

    def pause_writing(self) -> None:
        super().pause_writing()
        # What TLS has encrypted waits once more below it.
        self._unread_bytes = 2 * self.transport.get_write_buffer_size()
        may_wait = self.peers.note_unread(self._owner, self._unread_bytes)
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_S, self.drop)
        if not may_wait:
            self.drop()

    def resume_writing(self) -> None:
        self._have_read()
        super().resume_writing()

    def _have_read(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        self.peers.note_unread(self._owner, -self._unread_bytes)
        self._unread_bytes = 0

    def _forget(self) -> None:
        """It is no longer a connection of this server: it has ended, or speaks another protocol."""
        self._have_read()
        self.peers.forget(self)
        if self._owner:
            self.peers.disown(self._owner)
            self._owner = ""

    def _unsupported_upgrade_warning(self) -> None:
        """To another protocol than WebSocket."""
        self._is_upgraded = True

    def handle_websocket_upgrade(self) -> None:
        self._is_upgraded = True
        self._forget()
        super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def hijack(self) -> Streams:
        """Hand the connection over: no HTTP from here on, the caller closes the writer."""
        self.cycle.response_started = self.cycle.response_complete = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = _Hijacked(self, reader)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)

    def on_message_complete(self) -> None:
        self._body_open = False
        super().on_message_complete()
        cycle: RequestResponseCycle | None = self.cycle  # None for an upgrade
        if cycle is not None and cycle.response_complete and not cycle.keep_alive:  # see `Wire.refuse_body`
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._idle_timer = None
        self._forget()
        self.pipeline.clear()
        self._end_running()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """uvicorn's, without a timer for each response."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_at(self._idle_since + KEEP_ALIVE_S, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            return  # its response sets the next timer
        end = self._idle_since + KEEP_ALIVE_S
        if end > self.loop.time() or self._head_open:
            self._idle_timer = self.loop.call_at(max(end, self.loop.time() + 1), self._check_idle)
        else:
            self.transport.close()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self.drop)


class _Hijacked(asyncio.StreamReaderProtocol):
    """The bytes of a connection that was HTTP; its end is still counted there."""

    def __init__(self, http: HttpConnection, reader: asyncio.StreamReader) -> None:
        super().__init__(reader, loop=http.loop)
        self._http = http

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._http.connection_lost(exc)


def limited(limit: int) -> type[HttpConnection]:
    """The connection class of a server with this limit."""
    return type("LimitedConnection", (HttpConnection,), {"limit": limit, "peers": Peers(), "inbox": Inbox()})
