"""The ASGI application: authenticate, route, authorize, respond, count. It contains all that concerns HTTP.

Paths outside the resources (discovery, health, version, OpenAPI) are static pages. A request for a resource becomes an
`ApiCall` for `api.handlers.dispatch`; a watch becomes a stream. Every error is a `StatusError` with its Status, or an
error of the server, which is logged with its traceback and answered with 500 without one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from plimsoll.api.admission.hooks import check_connect
from plimsoll.api.auth.impersonation import impersonated
from plimsoll.api.auth.roles import may_read_path
from plimsoll.api.discovery.pages import StaticPages, send_page
from plimsoll.api.handlers.dispatch import Handler, Route, handle
from plimsoll.api.handlers.list import make_consistent
from plimsoll.api.handlers.patch import growth_bytes
from plimsoll.api.handlers.watch import WatchStream, divide_watches
from plimsoll.api.machinery.audit import Audit
from plimsoll.api.machinery.bodies import YAML_AT_ONCE_BYTES
from plimsoll.api.machinery.call import ApiCall, Response, warning_headers
from plimsoll.api.machinery.cluster import Cluster, Limits
from plimsoll.api.machinery.encoding import as_yaml
from plimsoll.api.machinery.exchange import SURPLUS, Authenticator, Exchange, Receive, Scope, Send
from plimsoll.api.machinery.metrics import RequestMetrics
from plimsoll.api.machinery.negotiate import YAML, MediaType, accepted_form
from plimsoll.api.machinery.request_info import RequestInfo, parsed_query, request_info
from plimsoll.api.machinery.rounds import ClientLostError, Pace, Rounds
from plimsoll.api.machinery.status import (
    StatusError,
    internal_error,
    no_such_resource,
    path_forbidden,
    too_many_requests,
    unauthorized,
)
from plimsoll.api.machinery.users import ANONYMOUS, InvalidCredentialsError, User
from plimsoll.api.server.authorized import COLLECTION_VERBS, authorized_selection, may_create
from plimsoll.api.server.bootstrap import BOOTSTRAP_HOOKS, INDEX_HOOKS, bootstrap
from plimsoll.api.server.costs import is_long_write, leaves, objects_read, watch_cost
from plimsoll.api.server.fairness import LONG_OBJECTS, NO_SEAT, URL_BYTES, Fairness, is_exempt
from plimsoll.api.server.health import Health
from plimsoll.api.server.in_process import USER
from plimsoll.api.server.shared_store import became_newer, handled, refusal_by_store
from plimsoll.api.server.write_messages import Settings
from plimsoll.api.server.write_process import WriteProcess
from plimsoll.api.tables.views import PIECE_BYTES, Viewer, whole
from plimsoll.rules.admission.pod_security import DEFAULT_POD_SECURITY, PodSecurity
from plimsoll.rules.admission.service_addresses import DEFAULT_RANGES, ServiceRanges
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.store.errors import StoreError, WriteFailedError
from plimsoll.store.etcd.location import Location
from plimsoll.store.sealing import PLAIN, Sealing
from plimsoll.store.store import Store

# Another part that runs as long as the server: the controllers, the scheduler.
Service = Callable[["App"], AbstractAsyncContextManager[None]]
# Handles what is not a single response: log -f, exec, proxy. (group, resource, subresource)
Streamer = Callable[["App", ApiCall, Scope, Receive, Send], Awaitable[None]]
# Answers everything below one component of the path, also to users who are not known yet: the dashboard.
Mount = Callable[["App", Exchange], Awaitable[None]]

log = logging.getLogger("plimsoll.api")

_JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
_SURPLUS_RETRY_S = 5
_CLIENT_LOST = 499  # in metrics and the audit log, as nginx has it
_NOT_FOUND = b"404 page not found\n"


class Options(msgspec.Struct, frozen=True):
    """The configuration of a server. `authenticate` has no default: the caller must choose it."""

    state_directory: Path
    authenticate: Authenticator
    profile: Profile = DEFAULT_PROFILE
    gates: dict[str, bool] | None = None
    limits: Limits = Limits()
    services: Sequence[Service] = ()
    handlers: dict[Route, Handler] = {}
    streamers: dict[tuple[str, str, str], Streamer] = {}
    sockets: dict[tuple[str, str, str], Streamer] = {}  # the same for WebSockets
    mounts: dict[str, Mount] = {}  # by the first component of the path
    audit: Audit | None = None
    root_ca: str = ""  # the CA's certificate, PEM, which every namespace has in `kube-root-ca.crt`
    sealing: Sealing = PLAIN
    pod_security: PodSecurity = DEFAULT_POD_SECURITY
    reserve_bytes: int = 0  # disk space that is kept for deletions
    clock: Callable[[], float] = time.time
    service_ranges: ServiceRanges = DEFAULT_RANGES
    etcd: Location | None = None  # where the objects are, if not in SQLite below the state directory


class App:
    """`cluster` exists between startup and shutdown."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.meter = RequestMetrics()
        self.pages = StaticPages(options.profile)
        self.cluster: Cluster
        self.rounds = Rounds()
        self.fairness = Fairness(options.limits, self.meter, self.rounds, time.monotonic)
        rules = options.profile.name, options.gates, options.limits, options.service_ranges
        self.write_process = WriteProcess(Settings(*rules, options.root_ca, options.pod_security))
        self.start_hooks: dict[str, str] = {}  # what starts with the server, by name: its fault, empty if it is done
        self._health = Health()
        self._is_open = False
        self._watches: set[asyncio.Task[None]] = set()

    # --- startup and shutdown ---

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store, create what every cluster has, start the services; the reverse at the end."""
        options = self.options
        if options.etcd is not None:
            store = await Store.open_etcd(options.etcd, sealing=options.sealing)
        else:
            store = await Store.open(
                options.state_directory / "store", reserve_bytes=options.reserve_bytes, sealing=options.sealing
            )
        try:
            self.cluster = Cluster(
                store,
                options.profile,
                options.gates,
                clock=options.clock,
                limits=options.limits,
                services=options.service_ranges,
                root_ca=options.root_ca,
                pod_security=options.pod_security,
            )
            divide_watches(self.cluster)
            if not (self.cluster.in_place and self.cluster.profile.resize_subresource):
                self.pages.leave_out("pods/resize")
            if store.fault:
                log.error("%s", store.fault)
            fault = ""
            try:
                await bootstrap(self.cluster)
            except WriteFailedError as error:
                fault = str(error)
                log.error("reads are served, writes are not: %s", error)
            self.start_hooks |= dict.fromkeys(INDEX_HOOKS, "") | dict.fromkeys(BOOTSTRAP_HOOKS, fault)
            async with AsyncExitStack() as stack:
                for service in options.services:
                    await stack.enter_async_context(service(self))
                self._is_open = True
                self.faults()  # what is to be seen once
                try:
                    yield
                finally:
                    self._is_open = False
        finally:
            await self.write_process.close()
            self.cluster.worker.close()
            self.cluster.expressions.close()
            await store.close()

    def faults(self) -> dict[str, str]:
        """Health checks by name; an empty text means that it passed."""
        return self._health.faults(self.cluster if self._is_open else None, self.start_hooks)

    def end_watches(self) -> None:
        """End every watch, so that shutdown does not wait for clients that never disconnect."""
        self._is_open = False
        for task in self._watches:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._websocket(scope, receive, send)

    # --- one request ---

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        self.meter.in_flight += 1
        request = Exchange(scope, receive, send)
        try:
            await self._answer(request)
        except StatusError as error:
            await self._count(request)
            headers = [*_JSON_HEADERS, *error.headers(), *warning_headers(request.warnings)]
            await request.respond(error.code, error.body(), headers)
        except ClientLostError:
            request.code = request.code or _CLIENT_LOST
            request.give_up()
        except StoreError as error:
            log.error("%s %s: %s", scope["method"], scope["path"], error)
            refusal = refusal_by_store(error)
            await request.respond(refusal.code, refusal.body(), [*_JSON_HEADERS, *refusal.headers()])
        except Exception:  # a defect in one handler: the client still gets an answer
            self.meter.faults += 1
            log.exception("%s %s failed", scope["method"], scope["path"])
            refusal = internal_error("the server failed to handle the request; its log has the reason")
            await request.respond(refusal.code, refusal.body(), _JSON_HEADERS)
        finally:
            self.meter.in_flight -= 1
            self._note(request, time.perf_counter() - began)

    async def _answer(self, request: Exchange) -> None:
        scope = request.scope
        user = await self._identified(request)
        path, query = scope["raw_path"].decode("latin-1"), parsed_query(scope["query_string"])
        mount = self.options.mounts.get(path.removeprefix("/").partition("/")[0])
        if mount is not None:
            await self._count(request)
            await mount(self, request)
            return
        page = await self.pages.found(request, path, query, self.faults, self.cluster.worker)
        if page is not None:
            await self._count(request)
            if not may_read_path(user, path, self.cluster):
                raise unauthorized() if user == ANONYMOUS else path_forbidden(user.name, scope["method"].lower(), path)
            await send_page(request, page)
            return
        if user == ANONYMOUS:
            raise unauthorized()
        limits = self.options.limits
        if request.claim is not None and not request.claim(
            user.name, 0 if is_exempt(user) else limits.user_connections
        ):
            raise too_many_requests(
                f"{limits.user_connections} connections of this user are open, which is the limit: close some, or try "
                "again later",
                retry_after_s=_SURPLUS_RETRY_S,
            )
        info = request_info(scope["method"], path, query, self.cluster.catalog)
        if info is None:
            await self._count(request)
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
            await request.respond(404, _NOT_FOUND, headers)
            return
        request.info = info
        if SURPLUS in scope and not user.node:  # a node that cannot report would become NotReady
            self.meter.refused += 1
            raise too_many_requests(
                f"{scope[SURPLUS]} connections are open, which is the limit: close some, or try again later",
                retry_after_s=_SURPLUS_RETRY_S,
            )
        request.is_counted = True
        await self.fairness.admit(user, info.verb)
        call = await self._authorized_call(request, info)
        request.warnings = call.warnings
        streamer = self.options.streamers.get((info.resource.group, info.resource.plural, info.subresource))
        if streamer is not None:
            await check_connect(self.cluster, call)
            await streamer(self, call, scope, request.receive, request.send)
            return
        is_list, has_views = info.verb in COLLECTION_VERBS, info.resource.verbs != ("create",)
        form = accepted_form(request.header(b"accept"), is_list=is_list, has_views=has_views)
        if info.verb == "watch":
            async with self.fairness.watch(user, watch_cost(call.selection)):
                seat = await self.fairness.take_seat(user, objects_read(self.cluster, info))
                try:
                    if not info.option("resourceVersion"):
                        await make_consistent(self.cluster, call)
                    watch = WatchStream(self.cluster, call, form, seat.leave)
                    await self.stream(request, watch.lines(request.wire), info.resource.plural, _JSON_HEADERS)
                finally:
                    seat.leave()
            return
        reads, size, limit_bytes = objects_read(self.cluster, info), 0, 0
        if info.verb not in ("get", "list"):
            is_review = not info.resource.storage and not is_exempt(user)
            limit_bytes = limits.review_bytes if is_review else limits.body_bytes
            size = request.expected_bytes(limit_bytes)
            if is_long_write(self.cluster, info, size, call.content_type):
                reads = LONG_OBJECTS + 1
        seat = await self.fairness.take_seat(user, reads, size)  # before the body is read
        try:
            if limit_bytes:
                call.body = await request.body(limit_bytes)
                if seat is NO_SEAT and growth_bytes(call):
                    seat = await self.fairness.take_seat(user, LONG_OBJECTS + 1, size)
            handler = partial(handle, self.cluster, call, form, self.options.handlers)
            if seat is not NO_SEAT and leaves(self.cluster, call, self.options.handlers):
                handler = partial(self.write_process.handle, self.cluster, call, scope)
            answer = await handled(self.cluster, call, handler)
            if len(answer.body) > PIECE_BYTES:
                seat.leave()
                seat = await self.fairness.take_seat(user, LONG_OBJECTS + 1)
            await self._send(request, call, answer, form)
        finally:
            seat.leave()

    async def _send(self, request: Exchange, call: ApiCall, answer: Response, form: MediaType) -> None:
        info = call.info
        body = answer.body
        if not answer.is_ready:
            if form.view:
                viewer = Viewer(info.resource, form, info.option("includeObject"), self.cluster.profile.name)
                body = viewer.one(body, self.cluster.clock()) + b"\n"
            else:
                body = whole(info.resource, body) + b"\n"
        headers = [*_JSON_HEADERS, *answer.headers, *warning_headers(call.warnings)]
        if form.is_yaml:
            headers[0] = (b"content-type", YAML.encode())
        if answer.pieces is not None:
            await request.respond_in_pieces(answer.code, answer.pieces, headers)
            return
        if form.is_yaml and info.verb not in ("list", "deletecollection"):
            body = await self._as_yaml(body, call.user.name)
        await request.respond(answer.code, body, headers)

    async def _as_yaml(self, body: bytes, user: str) -> bytes:
        if len(body) <= YAML_AT_ONCE_BYTES:
            return as_yaml(msgspec.json.decode(body))
        return await self.cluster.worker.run(user, lambda: as_yaml(msgspec.json.decode(body)))

    async def stream(
        self, request: Exchange, pieces: AsyncGenerator[bytes], what: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Until the stream ends, the client disconnects or the server closes. `what`: for the metric of watches."""
        watchers = self.meter.watchers
        watchers[what] = watchers.get(what, 0) + 1
        self.meter.in_flight -= 1  # a watch does not count as a request in flight
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        leaving = asyncio.create_task(request.disconnected())

        def left(done: asyncio.Task[None]) -> None:
            if task in self._watches and not done.cancelled():  # else the watch has ended
                task.cancel()

        leaving.add_done_callback(left)
        try:
            await request.start(200, headers)
            async with aclosing(pieces):
                async for lines in pieces:
                    await request.send({"type": "http.response.body", "body": lines, "more_body": True})
        except asyncio.CancelledError:
            if not leaving.done() and self._is_open:
                raise
            task.uncancel()
        finally:
            self._watches.discard(task)
            leaving.cancel()
            self.meter.in_flight += 1
            watchers[what] -= 1
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """exec: authorized like any request; an error is the response to the upgrade, with its Status."""
        began = time.perf_counter()
        scope["method"] = "GET"  # a WebSocket begins with one
        request = Exchange(scope, receive, send)
        await receive()
        try:
            call = await self._socket_call(request)
            info = call.info
            serve = self.options.sockets.get((info.resource.group, info.resource.plural, info.subresource))
            if serve is None:
                raise no_such_resource()
            await check_connect(self.cluster, call)
            async with self.fairness.watch(request.user):
                request.code = 101
                await serve(self, call, scope, receive, send)
        except StatusError as error:
            await self._count(request)
            request.code = error.code
            body = error.body()
            headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(body))]
            await send({"type": "websocket.http.response.start", "status": error.code, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
        finally:
            self._note(request, time.perf_counter() - began)

    async def _socket_call(self, request: Exchange) -> ApiCall:
        scope = request.scope
        user = await self._identified(request)
        if user == ANONYMOUS:
            raise unauthorized()
        query = parsed_query(scope["query_string"])
        info = request_info("GET", scope["raw_path"].decode("latin-1"), query, self.cluster.catalog)
        if info is None:
            raise no_such_resource()
        request.info, request.is_counted = info, True
        await self.fairness.admit(user, info.verb)
        return await self._authorized_call(request, info)

    async def _authorized_call(self, request: Exchange, info: RequestInfo) -> ApiCall:
        return ApiCall(
            info,
            request.user,
            selection=await authorized_selection(self.cluster, info, request.user),
            content_type=request.header(b"content-type"),
            user_agent=request.header(b"user-agent"),
            warnings=[],
            annotations=request.annotations,
            may_create=may_create(self.cluster, info, request.user),
            pace=Pace(self.rounds, request.user.name, request.is_lost),
        )

    async def _identified(self, request: Exchange) -> User:
        """The user of a request, who pays for a long URL before it is parsed.

        Parts in this process put their user into the scope, which no connection can do (`in_process`).
        """
        scope = request.scope
        inside = scope.get(USER)
        try:
            request.user = inside or self.options.authenticate(scope, request.headers)
        except InvalidCredentialsError:
            if not self._is_open or not await became_newer(self.cluster):
                raise unauthorized() from None
            request.user = self._authenticated(request)
        cost = (len(scope["raw_path"]) + len(scope["query_string"])) // URL_BYTES
        if cost:
            await self.fairness.slow_down(request.user, cost)
        if inside is None and request.user != ANONYMOUS:
            request.user = impersonated(request.user, request.headers, scope["headers"], self.cluster)
        return request.user

    def _authenticated(self, request: Exchange) -> User:
        try:
            return self.options.authenticate(request.scope, request.headers)
        except InvalidCredentialsError:
            raise unauthorized() from None

    async def _count(self, request: Exchange) -> None:
        """Against the user's rate, if it is not yet: a client that only makes mistakes has a rate, too."""
        if not request.is_counted:
            request.is_counted = True
            await self.fairness.slow_down(request.user)

    def _note(self, request: Exchange, seconds: float) -> None:
        info, code = request.info, request.code
        if info is None:
            self.meter.count(request.scope["method"].lower(), "", "", "", code, seconds)
        else:
            resource = info.resource
            self.meter.count(info.verb, resource.group, resource.plural, info.subresource, code, seconds)
        if self.options.audit is not None:
            now_s = self.options.clock()
            self.options.audit.note(request, now_s - seconds, now_s)
