"""A few of the attacks of `./dev prove attack`, for some seconds each: memory is bounded, the administrator is served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e.api_process import ApiProcess
from tests.e2e.attacks_api import Target, attack

PODS, SECONDS = 400, 3.0
# The machine of a test may be busy with others; a server that is held up answers after ten seconds or not at all.
WORST_MS, GROWTH_MB = 5_000.0, 100.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, int]]:
    directory = tmp_path_factory.mktemp("attacks")
    process = ApiProcess(directory / "state", directory / "api.log", "--no-scheduler")
    try:
        process.ready()
        Target.furnish(process.state, directory)
        target = Target(process.url, directory)
        asyncio.run(target.fill(PODS))
        yield target, process.process.pid
    finally:
        process.kill()


@pytest.mark.parametrize("name", ["unread LISTs", "wide JSON", "alias bomb", "pipelining"])
async def test_an_attack_of_a_viewer(server: tuple[Target, int], name: str) -> None:
    target, pid = server
    before = await attack(target, pid, "(no attack)", 0.5, PODS)
    found = await attack(target, pid, name, SECONDS, PODS)
    assert found.gets > 5
    assert found.worst_ms < WORST_MS
    assert found.rss_mb < before.rss_mb + GROWTH_MB
