"""One request to a handler, and its response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import accumulate

import msgspec

from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.rounds import Pace, Rounds
from plimsoll.api.machinery.selectors import Selection
from plimsoll.api.machinery.users import User


class ApiCall(msgspec.Struct):
    info: RequestInfo
    user: User
    body: bytes = b""
    content_type: str = ""
    user_agent: str = ""
    warnings: list[str] = []
    annotations: dict[str, str] = {}  # of the audit event
    selection: Selection = Selection("")
    may_create: bool = False  # of a PUT or PATCH: whether its user may also create the object
    pace: Pace = msgspec.field(default_factory=lambda: Pace(Rounds()))


class Response(msgspec.Struct, frozen=True):
    """`body` is a stored object, to be printed in the form that the client accepts, or with `is_ready` final.

    With `pieces` the answer is made while it is sent, in the form that the client accepts; `body` is empty.
    """

    code: int
    body: bytes
    is_ready: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()
    pieces: AsyncIterator[bytes] | None = None


_MOST_LETTERS, _LETTERS_OF_ONE = 4096, 256  # as kube-apiserver: clients refuse long heads


def warning_headers(warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """One header for each warning: one line of printable text. Long ones are cut if all of them are too long."""
    headers = []
    texts = list(dict.fromkeys(warnings))
    if sum(map(len, texts)) > _MOST_LETTERS:
        cut = [text[:_LETTERS_OF_ONE] for text in texts]
        ends = accumulate(map(len, cut))
        texts = [text for text, end in zip(cut, ends, strict=True) if end - len(text) < _MOST_LETTERS]
    for text in texts:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        shown = "".join(letter if letter.isprintable() else "?" for letter in quoted)
        headers.append((b"warning", f'299 - "{shown}"'.encode()))
    return headers
