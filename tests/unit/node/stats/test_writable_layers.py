"""Writable layers: read rarely, never waited for long, errors logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from plimsoll.node.stats import disk_usage
from plimsoll.node.stats.disk_usage import LAYERS_MAX_AGE_S, NOTHING_USED, WritableLayers
from plimsoll.rules.eviction.usage import NO_FS_USAGE, FsUsage
from plimsoll.runtime.interface import RuntimeCallError

WRITTEN = FsUsage(20 << 20, 7)


class Runtime:
    def __init__(self) -> None:
        self.now_s, self.asked = 100.0, 0
        self.error: RuntimeCallError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.layers = WritableLayers(self.ask, lambda: self.now_s)

    async def ask(self) -> Mapping[str, FsUsage]:
        self.asked += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return {"c1": WRITTEN}


async def test_where_nothing_is_written_to_disk_that_is_known_without_asking() -> None:
    layers = WritableLayers(None, lambda: 0.0)
    await layers.refresh(0.0)
    assert layers.of("c1") == NOTHING_USED


async def test_figures_are_kept_for_as_long_as_they_may_be() -> None:
    runtime = Runtime()
    assert runtime.layers.of("c1") == NO_FS_USAGE, "not known yet, which is no zero"
    await runtime.layers.refresh(60.0)
    assert (runtime.layers.of("c1"), runtime.layers.of("other")) == (WRITTEN, NO_FS_USAGE)
    runtime.now_s += 4.0
    await runtime.layers.refresh(5.0)
    assert runtime.asked == 1
    runtime.now_s += 1.0
    await runtime.layers.refresh(5.0)
    assert runtime.asked == 2
    runtime.now_s += LAYERS_MAX_AGE_S
    await runtime.layers.refresh(60.0)
    assert runtime.asked == 3, "the runtime has measured again"


async def test_a_slow_runtime_does_not_block_and_counts_once_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_usage, "ANSWER_S", 0.01)
    runtime = Runtime()
    runtime.answers.clear()
    async with asyncio.timeout(60):
        await runtime.layers.refresh(0.0)
        await runtime.layers.refresh(0.0)
    assert (runtime.asked, runtime.layers.of("c1")) == (1, NO_FS_USAGE), "one question at a time"
    runtime.answers.set()
    await runtime.layers.refresh(0.0)
    assert runtime.layers.of("c1") == WRITTEN


async def test_a_runtime_error_is_logged_once_and_layers_count_as_empty(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime()
    await runtime.layers.refresh(0.0)
    runtime.error = RuntimeCallError("ListContainerStats", "unknown method")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await runtime.layers.refresh(0.0)
    assert (runtime.layers.of("c1").used_bytes, len(caplog.records)) == (None, 1)
    assert "counted as empty: ListContainerStats: unknown method" in caplog.text
    runtime.error = None
    await runtime.layers.refresh(0.0)
    assert runtime.layers.of("c1") == WRITTEN
