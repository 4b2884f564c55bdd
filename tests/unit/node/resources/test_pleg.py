"""A request that finds no read in progress reads by itself; requests during a read share the next one."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.rules.model.observed import ObservedSandbox
from plimsoll.runtime.interface import ContainerRuntime, RuntimeSnapshot


class Sandboxes:
    """A runtime with one more sandbox in each answer; with `gate`, it answers when that is set."""

    def __init__(self, gate: asyncio.Event | None = None) -> None:
        self.gate, self.answers = gate, 0

    async def seen(self) -> RuntimeSnapshot:
        self.answers += 1
        found = tuple(ObservedSandbox(id=str(number), pod_uid=f"u{number}") for number in range(self.answers))
        if self.gate is not None:
            await self.gate.wait()
        return RuntimeSnapshot(found, ())


def view_of(runtime: Sandboxes) -> RuntimeView:
    return RuntimeView(cast("ContainerRuntime", runtime))


def test_a_runtime_that_is_known_here_answers_without_a_pause() -> None:
    view = view_of(Sandboxes())
    with pytest.raises(StopIteration) as answered:
        view.all().__await__().send(None)
    assert answered.value.value.keys() == view.last.keys() == {"u0"}


async def test_requests_during_a_read_share_the_next_one() -> None:
    runtime = Sandboxes(asyncio.Event())
    view = view_of(runtime)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(view.run())
        first = group.create_task(view.all())
        await asyncio.sleep(0)
        later = [group.create_task(view.all()) for _ in range(3)]
        await asyncio.sleep(0)
        assert runtime.gate is not None
        runtime.gate.set()
        assert set(await first) == {"u0"}
        assert [set(await each) for each in later] == [{"u0", "u1"}] * 3
        running.cancel()
    assert runtime.answers == 2


async def test_what_has_not_changed_stays_the_same_object() -> None:
    view = view_of(Sandboxes())
    before = (await view.all())["u0"]
    assert (await view.all())["u0"] is before
