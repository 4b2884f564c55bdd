"""The bundled HTTP server's answers."""

from __future__ import annotations

import pytest

from plimsoll.runtime.supervisor.demo_web import PAGE, answer


@pytest.mark.parametrize(
    ("head", "status", "keep", "body"),
    [
        (b"GET / HTTP/1.1\r\nHost: x", 200, True, PAGE),
        (b"GET /?q=1 HTTP/1.1\r\nConnection: close", 200, False, PAGE),
        (b"GET / HTTP/1.0", 200, False, PAGE),
        (b"HEAD / HTTP/1.1", 200, True, b""),
        (b"GET /nothing HTTP/1.1", 404, True, b"not found\n"),
        (b"POST / HTTP/1.1", 405, False, b"method not allowed\n"),
        (b"nonsense", 400, False, b"bad request\n"),
        (b"GET / HTTP/2.0", 400, False, b"bad request\n"),
    ],
)
def test_answer(head: bytes, status: int, keep: bool, body: bytes) -> None:
    said, stays = answer(head)
    first, _, rest = said.partition(b"\r\n")
    assert first.startswith(b"HTTP/1.1 %d " % status)
    assert stays is keep
    assert rest.partition(b"\r\n\r\n")[2] == body
    if body:
        assert b"Content-Length: %d\r\n" % len(body) in rest
