"""A loop goes on: with the other objects when one cannot be handled, and with that one later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

from plimsoll.api.controllers import controller as loop_module
from plimsoll.api.controllers.controller import Controller
from plimsoll.store.store import Store
from tests.unit.store.bodies import put


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "RETRY_FIRST_S", 0.01)


@pytest.mark.parametrize("error", [KeyError("spec"), TypeError("no len()"), ZeroDivisionError("x")], ids=repr)
async def test_an_object_we_stumble_over(
    tmp_path: Path, soon: None, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    store = await Store.open(tmp_path / "store")
    looks: list[str] = []
    done = asyncio.Event()

    async def look(key: str) -> None:
        looks.append(key)
        if key.endswith("/bad") and looks.count(key) < 3:
            raise error
        if looks.count("/pods/a/bad") == 3 and "/pods/a/good" in looks:
            done.set()

    def itself(key: str, _: bytes) -> Iterable[str]:
        return (key,)

    await store.change("/pods/a/bad", put("x"))
    running = asyncio.create_task(Controller("test", store, {"/pods/": itself}, look).run())
    with caplog.at_level(logging.ERROR):
        await store.change("/pods/a/good", put("x"))
        async with asyncio.timeout(10):
            await done.wait()
    told = [record for record in caplog.records if "/pods/a/bad" in record.getMessage()]
    assert [bool(record.exc_info) for record in told] == [True, False]  # the traceback once
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_whom_an_object_concerns_may_be_unclear(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await Store.open(tmp_path / "store")
    seen = asyncio.Event()

    def concerns(key: str, _: bytes) -> Iterable[str]:
        if key.endswith("/bad"):
            raise KeyError("metadata")
        return (key,)

    async def look(key: str) -> None:
        assert key == "/pods/a/good"
        seen.set()

    running = asyncio.create_task(Controller("test", store, {"/pods/": concerns}, look).run())
    await asyncio.sleep(0)
    await asyncio.gather(*(store.change(f"/pods/a/{name}", put("x")) for name in ("bad", "good")))
    async with asyncio.timeout(10):
        await seen.wait()
    assert "whom /pods/a/bad concerns cannot be told" in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()
