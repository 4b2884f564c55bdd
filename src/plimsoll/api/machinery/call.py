"""One request on its way through the handlers, and what they answer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.users import User
from plimsoll.rules.model.json_object import JsonObject

# Called with the object that a request is about, where only the object tells whether the user may (a node's own pods).
# Raises ApiError.
Guard = Callable[[JsonObject], None]


def _anything(_: JsonObject) -> None:
    """Who may do this may do it to any object."""


class ApiCall(msgspec.Struct):
    info: RequestInfo
    user: User
    body: bytes = b""
    content_type: str = ""
    user_agent: str = ""
    warnings: list[str] = []
    guard: Guard = _anything


class Response(msgspec.Struct, frozen=True):
    """`body` is a stored object, to be printed in the form that the client wants; if `is_ready` it is sent as is."""

    code: int
    body: bytes
    is_ready: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()
