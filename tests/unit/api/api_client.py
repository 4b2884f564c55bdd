"""A whole API server without sockets: requests as ASGI calls, on a real store in a temporary directory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.api.auth.authenticator import Credentials
from plimsoll.api.handlers.accounts import account_handlers
from plimsoll.api.handlers.reviews import REVIEWS
from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.users import AUTHENTICATED, MASTERS, User
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.services import accounts
from plimsoll.rules.profile import profile_named
from plimsoll.store.etcd.location import location
from tests.e2e.etcd_process import store_url

ADMIN = User("admin", frozenset({MASTERS, AUTHENTICATED}))
START_S = 1_794_787_200.0  # 2026-11-16T00:00:00Z
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PODS = "/api/v1/namespaces/default/pods"

Message = MutableMapping[str, Any]


class ApiReply(msgspec.Struct):
    code: int
    headers: dict[str, str]
    body: bytes
    warnings: list[str] = []

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        text: str = self.json["message"]
        return text


class ApiClient:
    def __init__(self, app: App) -> None:
        self.app = app
        self.now_s = START_S
        self.user = ADMIN
        self.token = ""  # a bearer token, used instead of the user
        self.headers: dict[str, str] = {}  # further ones

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        agent: str = "test/1",
    ) -> ApiReply:
        said, parts = ApiReply(0, {}, b""), []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                said.code = message["status"]
                said.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                said.warnings = [value.decode() for name, value in message["headers"] if name == b"warning"]
            else:
                parts.append(message["body"])

        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()

        async def receive() -> Message:
            return {"type": "http.request", "body": data, "more_body": False}

        scope = self._scope(method, path, content_type, accept, agent)
        if data:
            scope["headers"].append((b"content-length", b"%d" % len(data)))
        await self.app(scope, receive, send)
        said.body = b"".join(parts)
        return said

    async def ok(self, *args: Any, **options: Any) -> Any:
        said = await self(*args, **options)
        assert said.code in (200, 201), said.body
        return said.json

    @asynccontextmanager
    async def watching(self, path: str, accept: str = "application/json") -> AsyncIterator[Watched]:
        watched = Watched()
        hang_up = asyncio.Event()

        async def receive() -> Message:
            await hang_up.wait()
            return {"type": "http.disconnect"}

        call = asyncio.ensure_future(self.app(self._scope("GET", path, "", accept, "test"), receive, watched.take))
        try:
            await watched.started(call)
            yield watched
        finally:
            hang_up.set()
            async with asyncio.timeout(60):
                await call

    def _scope(self, method: str, path: str, content_type: str, accept: str, agent: str) -> Message:
        plain, _, query = path.partition("?")
        headers = [(b"accept", accept.encode()), (b"user-agent", agent.encode())]
        headers += [(name.encode(), value.encode()) for name, value in self.headers.items()]
        if self.token:
            headers.append((b"authorization", f"Bearer {self.token}".encode()))
        if content_type:
            headers.append((b"content-type", content_type.encode()))
        return {
            "type": "http",
            "method": method,
            "path": plain,
            "raw_path": plain.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }


class Watched:
    """The lines of one watch as they come."""

    def __init__(self) -> None:
        self.code = 0
        self.ended = False
        self._rest = b""
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._started = asyncio.Event()

    async def started(self, call: asyncio.Future[None]) -> None:
        """Until the response has begun; a shared store is asked for its version before."""
        starting = asyncio.ensure_future(self._started.wait())
        await asyncio.wait((starting, call), timeout=10, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
            self._started.set()
            return
        *whole, self._rest = (self._rest + message["body"]).split(b"\n")
        for line in whole:
            self._lines.put_nowait(line)
        if not message["more_body"]:
            self.ended = True
            self._lines.put_nowait(b"")

    async def event(self) -> Any:
        """The next one; None at the end of the stream."""
        async with asyncio.timeout(60):
            line = await self._lines.get()
        return json.loads(line) if line else None

    async def events(self, count: int) -> list[Any]:
        return [await self.event() for _ in range(count)]

    async def shown(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in await self.events(count)]


@asynccontextmanager
async def api(
    tmp_path: Path, profile: str = "documents", limits: Limits | None = None, **options: Any
) -> AsyncIterator[ApiClient]:
    client: ApiClient

    credentials = Credentials(tmp_path)

    def authenticate(scope: Any, headers: Any) -> User:
        return credentials(scope, headers) if b"authorization" in headers else client.user

    app = App(
        Options(
            tmp_path,
            authenticate,
            profile=profile_named(profile),
            limits=limits or Limits(),
            clock=lambda: client.now_s,
            handlers={**REVIEWS, **account_handlers(credentials)},
            services=[accounts(credentials), *options.pop("services", ())],
            etcd=options.pop("etcd", None) or (location(url) if (url := store_url(tmp_path)) else None),
            **options,
        )
    )
    client = ApiClient(app)
    async with app.running():
        yield client


def pod(name: str = "demo", requests: Any = None, limits: Any = None, **spec: Any) -> dict[str, Any]:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    container = {"name": "c", "image": "nginx:1.27", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
