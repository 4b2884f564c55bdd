"""A controller continues: with the other objects when one cannot be handled, and with that one later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

from plimsoll.api.controllers import controller as controller_module
from plimsoll.api.controllers.controller import Controller, own_key
from plimsoll.store.store import Store
from tests.unit.store.bodies import put


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "RETRY_FIRST_S", 0.01)


@pytest.mark.parametrize("error", [KeyError("spec"), TypeError("no len()"), ZeroDivisionError("x")], ids=repr)
async def test_an_object_that_cannot_be_reconciled_is_requeued(
    tmp_path: Path, soon: None, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    store = await Store.open(tmp_path / "store")
    reconciled: list[str] = []
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        reconciled.append(key)
        if key.endswith("/bad") and reconciled.count(key) < 3:
            raise error
        if reconciled.count("/pods/a/bad") == 3 and "/pods/a/good" in reconciled:
            done.set()

    await store.change("/pods/a/bad", put("x"))
    running = asyncio.create_task(Controller("test", store, {"/pods/": own_key}, reconcile).run())
    with caplog.at_level(logging.ERROR):
        await store.change("/pods/a/good", put("x"))
        async with asyncio.timeout(10):
            await done.wait()
    reported = [record for record in caplog.records if "/pods/a/bad" in record.getMessage()]
    assert [bool(record.exc_info) for record in reported] == [True, False]  # the traceback once
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_a_change_whose_keys_cannot_be_determined_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await Store.open(tmp_path / "store")
    seen = asyncio.Event()

    def concerns(key: str, _: bytes) -> Iterable[str]:
        if key.endswith("/bad"):
            raise KeyError("metadata")
        return (key,)

    async def reconcile(key: str) -> None:
        assert key == "/pods/a/good"
        seen.set()

    running = asyncio.create_task(Controller("test", store, {"/pods/": concerns}, reconcile).run())
    await asyncio.sleep(0)
    await asyncio.gather(*(store.change(f"/pods/a/{name}", put("x")) for name in ("bad", "good")))
    async with asyncio.timeout(10):
        await seen.wait()
    assert "cannot determine which objects /pods/a/bad concerns" in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_a_key_that_is_requeued_at_once_leaves_time_for_others(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    count, twice = 0, asyncio.Event()

    async def reconcile(_key: str) -> float:
        nonlocal count
        count += 1
        if count == 2:
            twice.set()
        return 0.0 if count < 1000 else 60.0

    await store.change("/pods/a/x", put("x"))
    running = asyncio.create_task(Controller("test", store, {"/pods/": own_key}, reconcile).run())
    await twice.wait()
    assert count < 5, "the event loop is left after each key"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()
