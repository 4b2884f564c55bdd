"""The dashboard below /dashboard/ of the API server: pages for everyone, everything else for users with the right.

    GET  /dashboard/…                static files
    POST /dashboard/api/code         a one-time code, for a user who is already known
    POST /dashboard/api/session      code → session token; DELETE ends the session
    GET  /dashboard/api/whoami
    GET  /dashboard/api/stream       one JSON object per line: a snapshot, then changes (`hub`)
    GET  /dashboard/api/views/NAME   the data of one view as JSON, the same that its table shows
    GET  /dashboard/api/history      frames of a node, from its ring
    GET  /dashboard/api/incident     the same as one HTML file
    POST /dashboard/api/explain      a manifest → its cgroups, as a picture
    POST /dashboard/api/forecast     what a resize of a pod would lead to

A token is sent in the Authorization header only, never in an address. A resize itself is an ordinary PATCH of the pod.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from plimsoll.api.auth.roles import denial, is_allowed
from plimsoll.api.auth.sessions import CODE_S, IDLE_S, Sessions
from plimsoll.api.machinery.exchange import SURPLUS, Exchange
from plimsoll.api.machinery.request_info import parsed_query
from plimsoll.api.machinery.status import StatusError, bad_request, method_not_allowed, too_many_requests, unauthorized
from plimsoll.api.machinery.users import ANONYMOUS, InvalidCredentialsError, User
from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.api.server.app import App
from plimsoll.errors import PlimsollError
from plimsoll.kube.request import ApiError
from plimsoll.rules.access.rbac import Attributes
from plimsoll.web.hub import Hub
from plimsoll.web.live_nodes import NodeUnreadableError, node_page
from plimsoll.web.site import SECURITY, Headers, headers_of, static_file
from plimsoll.web.views import VIEWS, view

PREFIX = "dashboard"
BODY_BYTES = 256 * 1024
_JSON: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *SECURITY]
_LINES: Headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store"), *SECURITY]
_NEEDED = (
    Attributes("list", "pods"),
    Attributes("list", "nodes"),
    Attributes("list", "events"),
    Attributes("get", "nodes", subresource="stats"),
)
Query = dict[str, str]


class Explainer(Protocol):
    def __call__(self, question: dict[str, Any], /) -> dict[str, Any]:
        """Runs in a thread. Raises PlimsollError."""


class Forecaster(Protocol):
    async def __call__(self, app: App, user: User, question: dict[str, Any], /) -> dict[str, Any]:
        """Raises PlimsollError or ApiError."""


class _Failed(msgspec.Struct, omit_defaults=True):
    error: str


class Dashboard:
    def __init__(self, calls: NodeCalls, sessions: Sessions, explain: Explainer, forecast: Forecaster) -> None:
        self._calls, self._sessions, self._explain, self._forecast = calls, sessions, explain, forecast
        self.hub = Hub(calls)

    async def mount(self, app: App, request: Exchange) -> None:
        path = request.scope["raw_path"].decode("latin-1").removeprefix(f"/{PREFIX}")
        if not path.startswith("/api/"):
            await self._static(request, path)
            return
        name = path.removeprefix("/api/")
        handler = self._handlers().get((request.scope["method"], name.partition("/")[0]))
        if handler is None:
            known = {each for _, each in self._handlers()}
            if name.partition("/")[0] in known:
                raise method_not_allowed()
            await request.respond(404, b'{"error":"no such page"}\n', _JSON)
            return
        if SURPLUS in request.scope:
            raise too_many_requests("too many connections are open: close some, or try again later", retry_after_s=5)
        try:
            await handler(app, request)
        except StatusError:
            raise
        except (PlimsollError, NodeUnreadableError) as error:
            code = error.code if isinstance(error, ApiError) else 502 if isinstance(error, NodeUnreadableError) else 422
            text = error.message if isinstance(error, ApiError) else str(error)
            await request.respond(code, msgspec.json.encode(_Failed(text)), _JSON)

    def _handlers(self) -> dict[tuple[str, str], Callable[[App, Exchange], Awaitable[None]]]:
        return {
            ("POST", "code"): self._code,
            ("POST", "session"): self._begin,
            ("DELETE", "session"): self._end,
            ("GET", "whoami"): self._whoami,
            ("GET", "stream"): self._stream,
            ("GET", "views"): self._view,
            ("GET", "history"): self._history,
            ("GET", "incident"): self._incident,
            ("POST", "explain"): self._explained,
            ("POST", "forecast"): self._forecasted,
        }

    async def _static(self, request: Exchange, path: str) -> None:
        if request.scope["method"] not in ("GET", "HEAD"):
            raise method_not_allowed()
        if not path:  # relative addresses in the page need the slash
            location = [(b"location", f"/{PREFIX}/".encode()), *SECURITY]
            await request.respond(308, b"", location)
            return
        file = static_file(path.removeprefix("/"))
        if file is None:
            await request.respond(404, b"404 page not found\n", [(b"content-type", b"text/plain"), *SECURITY])
        elif request.headers.get(b"if-none-match") == file.etag:
            await request.respond(304, b"", [(b"etag", file.etag), *SECURITY])
        else:
            await request.respond(200, file.body, headers_of(file))

    # --- sessions ---

    async def _code(self, app: App, request: Exchange) -> None:
        user = _known(request)
        scheme, _, token = request.header(b"authorization").partition(" ")
        origin = token.strip() if scheme.lower() == "bearer" and not request.scope.get("state", {}).get("peer") else ""
        await _answer(request, {"code": self._sessions.code(user, origin), "seconds": CODE_S, "user": user.name})

    async def _begin(self, app: App, request: Exchange) -> None:
        code = _object(await request.body(BODY_BYTES)).get("code")
        try:
            token, user = self._sessions.begin(code if isinstance(code, str) else "")
        except InvalidCredentialsError as error:
            await request.respond(401, msgspec.json.encode(_Failed(str(error))), _JSON)
            return
        await _answer(request, {"token": token, "user": user.name, "idleSeconds": IDLE_S})

    async def _end(self, app: App, request: Exchange) -> None:
        _known(request)
        self._sessions.end(request.header(b"authorization").partition(" ")[2].strip())
        await _answer(request, {})

    async def _whoami(self, app: App, request: Exchange) -> None:
        user = _known(request)
        may_resize = is_allowed(user, Attributes("patch", "pods", subresource="resize"), app.cluster)
        profile = app.cluster.profile
        await _answer(
            request,
            {
                "user": user.name,
                "missing": [denial(user, each) for each in _lacking(user, app)],
                "mayResize": may_resize,
                "profile": profile.name,
            },
        )

    # --- data ---

    async def _stream(self, app: App, request: Exchange) -> None:
        user, query = _reader(request, app), _query(request)
        since = query.get("since", "")
        node = query.get("node") or await self._first_node(app)
        lines = self.hub.lines(app, node, query.get("hub", ""), int(since) if since.isdecimal() else -1)
        async with app.fairness.watch(user):
            await app.stream(request, lines, "dashboards", _LINES)

    async def _view(self, app: App, request: Exchange) -> None:
        _reader(request, app)
        query = _query(request)
        name = request.scope["raw_path"].decode("latin-1").rpartition("/")[2]
        if name not in VIEWS:
            raise bad_request(f"no view {name!r}; the views are: {', '.join(VIEWS)}")
        node = query.get("node") or await self._first_node(app)
        await self.hub.refreshed(app, node)
        snapshot = msgspec.json.decode(self.hub.snapshot(node, app))
        await _answer(request, view(name, snapshot, query))

    async def _first_node(self, app: App) -> str:
        await self.hub.refreshed(app, "")
        return self.hub.first_node()

    async def _history(self, app: App, request: Exchange) -> None:
        _reader(request, app)
        query = _query(request)
        node = query.get("node") or await self._first_node(app)
        data = await node_page(self._calls, app.cluster, node, _history_target(query))
        await request.respond(200, data, _JSON)

    async def _incident(self, app: App, request: Exchange) -> None:
        _reader(request, app)
        query = _query(request)
        node = query.get("node") or await self._first_node(app)
        data = await node_page(self._calls, app.cluster, node, _history_target(query))
        from plimsoll.web.incident import incident_page  # with html's table of entities, half a megabyte

        page = incident_page(node, data, app.cluster.clock())
        name = f'attachment; filename="incident-{node}.html"'.encode("latin-1", "replace")
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-disposition", name), *_JSON[1:]]
        await request.respond(200, page, headers)

    # --- questions ---

    async def _explained(self, app: App, request: Exchange) -> None:
        user = _known(request)
        question = _object(await request.body(BODY_BYTES))
        found = await app.cluster.worker.run(user.name, lambda: self._explain(question))
        await _answer(request, found)

    async def _forecasted(self, app: App, request: Exchange) -> None:
        user = _known(request)
        await _answer(request, await self._forecast(app, user, _object(await request.body(BODY_BYTES))))


def _known(request: Exchange) -> User:
    if request.user == ANONYMOUS:
        raise unauthorized()
    return request.user


def _lacking(user: User, app: App) -> list[Attributes]:
    return [each for each in _NEEDED if not is_allowed(user, each, app.cluster)]


def _reader(request: Exchange, app: App) -> User:
    """A user who may see everything that the stream shows. Raises 401, 403."""
    user = _known(request)
    for lacking in _lacking(user, app):
        raise StatusError(403, "Forbidden", f"the dashboard shows all namespaces: {denial(user, lacking)}", {})
    return user


def _query(request: Exchange) -> Query:
    return {name: values[0] for name, values in parsed_query(request.scope["query_string"]).items() if values}


def _history_target(query: Query) -> str:
    numbers = []
    for name in ("from", "to"):
        if text := query.get(name, ""):
            try:
                numbers.append(f"{name}={float(text)!r}")
            except ValueError:
                raise bad_request(f"{name}: {text!r} is not a time in seconds since the epoch") from None
    return f"/history?{'&'.join(numbers)}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise bad_request("the body is not a JSON object")
    return found


async def _answer(request: Exchange, document: Any) -> None:
    await request.respond(200, msgspec.json.encode(document) + b"\n", _JSON)
