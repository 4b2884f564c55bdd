"""Requests of the control plane's own parts, passed to the application without a socket.

Controllers and the scheduler use the same client as every other program (`kube.client`); here their requests become
ASGI calls in the same process. The scope has their user under `USER`, which no connection can set.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from plimsoll.api.machinery.users import AUTHENTICATED, MASTERS, User
from plimsoll.kube.request import ApiResponse, Request

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
USER = "plimsoll.user"


def control_plane_user(name: str) -> User:
    """A part of the control plane: it may do everything, and the audit log has its name."""
    return User(name, frozenset({MASTERS, AUTHENTICATED}))


class InProcess:
    """A transport for `kube.client.Client`."""

    def __init__(self, app: AsgiApp, user: User) -> None:
        self._app, self._user = app, user

    async def send(self, request: Request) -> ApiResponse:
        status, parts = 0, []

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(self._scope(request), _body(request), send)
        return ApiResponse(status, b"".join(parts))

    async def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        """As `kube.http`: first the status, then each line."""
        messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=64)
        call = asyncio.ensure_future(self._app(self._scope(request), _body(request), messages.put))
        rest, status = b"", 0
        try:
            while True:
                message = await _next(messages, call)
                if message is None:
                    return
                if message["type"] == "http.response.start":
                    status = message["status"]
                    if status < 400:
                        yield ApiResponse(status, b"")
                    continue
                *whole, rest = (rest + message.get("body", b"")).split(b"\n")
                if status >= 400:
                    whole, rest = [], b"\n".join([*whole, rest])
                for line in filter(None, whole):
                    yield line
                if not message.get("more_body"):
                    if status >= 400:
                        yield ApiResponse(status, rest)
                    return
        finally:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call

    def _scope(self, request: Request) -> dict[str, Any]:
        path, _, query = request.path.partition("?")
        headers = [(b"accept", request.accept.encode()), (b"user-agent", self._user.name.encode())]
        if request.content_type:
            headers.append((b"content-type", request.content_type.encode()))
        if request.body:
            headers.append((b"content-length", str(len(request.body)).encode()))
        return {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "scheme": "https",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("in-process", 0),
            USER: self._user,
        }


def _body(request: Request) -> Callable[[], Awaitable[Message]]:
    given = False

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": request.body, "more_body": False}
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never  # the client disconnects only by cancelling

    return receive


async def _next(messages: asyncio.Queue[Message], call: asyncio.Future[None]) -> Message | None:
    """The next message; None when the application has ended without one; its exception is raised."""
    getting = asyncio.ensure_future(messages.get())
    try:
        await asyncio.wait((getting, call), return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        if not messages.empty():
            return messages.get_nowait()
        call.result()
        return None
    finally:
        getting.cancel()
