"""One exchange whose client leaves while it is answered."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery.exchange import Exchange
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.server import Listener, serving
from tests.unit.api.api_client import ADMIN


class Leaving(App):
    """The connection is closing already when the answer is sent, and its end is not known yet."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Exchange(scope, receive, send)
        assert request.wire is not None
        request.wire._cycle.transport.close()
        await request.start(200, [])
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})


async def test_a_client_that_is_leaving_gets_no_answer_and_none_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Leaving(Options(tmp_path, lambda *_: ADMIN))
    async with asyncio.timeout(30), serving(app, Listener("127.0.0.1", 0)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
