"""The whole agent with a device plugin: a pod gets its devices, keeps them over restarts, and is refused without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from plimsoll.node.agent import PLUGINS, Agent
from plimsoll.node.pages import owners_page
from tests.unit.node.devices.example_plugin import RESOURCE, ExamplePlugin
from tests.unit.node.test_agent import WAIT_S, Document, World, container, phase, pod, shell


@asynccontextmanager
async def with_plugin(world: World, plugin: ExamplePlugin, *, ends: bool = True) -> AsyncIterator[Agent]:
    """The plugin has listed its devices before the agent learns of its pods."""
    before = world.agent

    def agent() -> Agent:
        made = before()
        opened = made.devices.open

        async def open_with_plugin() -> None:
            await opened()
            await plugin.start()
            await plugin.register()
            async with asyncio.timeout(WAIT_S):
                while made.devices.sizes().get(RESOURCE) != (4, 4):  # noqa: ASYNC110 - tests only wait here
                    await asyncio.sleep(0.01)

        made.devices.open = open_with_plugin  # type: ignore[method-assign]
        return made

    world.agent = agent  # type: ignore[method-assign, assignment]
    async with world.running(ends=ends) as made:
        yield made
    world.agent = before  # type: ignore[method-assign]
    await plugin.stop()


def wanting(count: int, script: str) -> Document:
    amounts = {RESOURCE: str(count)}
    return pod(shell("c", script, resources={"limits": amounts, "requests": amounts}), restartPolicy="Never")


async def test_a_container_gets_what_the_plugin_says(tmp_path: Path) -> None:
    script = (
        "echo nothing > /dev/d0 && echo nothing > /dev/d1 && test -c /dev/d1 && ! test -e /dev/d2 && test -s /null/info"
        " && echo $NULL_DEVICES > /dev/termination-log"
    )
    world = World(tmp_path, wanting(2, script))
    plugin = ExamplePlugin(tmp_path / PLUGINS)
    async with with_plugin(world, plugin):
        await world.until(lambda status: status.get("phase") in ("Succeeded", "Failed"))
        ended = container(world.statuses[-1])["state"]["terminated"]
        assert (ended["exitCode"], ended.get("message")) == (0, "d0,d1\n"), (ended, world.events)
    assert plugin.calls == [("Allocate", ("d0", "d1"))]


async def test_a_running_pod_keeps_its_devices(tmp_path: Path) -> None:
    world = World(tmp_path, wanting(2, "sleep 1000"))
    async with with_plugin(world, ExamplePlugin(tmp_path / PLUGINS), ends=False):
        await world.until(phase("Running"))
    async with world.running() as agent:  # neither the agent nor the plugin of before
        await agent.ready.wait()
        parts = await agent.view.pod("u-1")
        assert [each.phase for each in parts.containers] == ["running"]
        assert agent.devices.devices_of("u-1", "c") == {RESOURCE: frozenset({"d0", "d1"})}
        (owner,) = owners_page(agent).owners
        assert (owner.pod, owner.container, owner.owns.words()) == ("web", "c", [f"{RESOURCE} d0 d1"])
        assert world.api.pod is not None
        assert world.api.pod["status"]["phase"] == "Running"


async def test_a_pod_that_wants_too_many_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, wanting(5, "sleep 1000"))
    async with with_plugin(world, ExamplePlugin(tmp_path / PLUGINS)) as agent:
        await world.until(phase("Failed"))
        assert world.statuses[-1]["reason"] == "UnexpectedAdmissionError"
        assert "Requested: 5, Available: 4" in world.statuses[-1]["message"]
        assert agent.devices.records == {}
