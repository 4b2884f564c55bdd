"""Pages of a node under pressure, read as the commands read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cli.node import oom, pressure
from plimsoll.cli.terminal import Paint
from plimsoll.codec.node_pages import OomPage, PressurePage
from plimsoll.errors import PlimsollError
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.assembly import build_pressure
from plimsoll.node.pressure import manager
from plimsoll.node.pressure.manager import PressureManager, PressureSetup
from plimsoll.node.standalone import OnePodApi
from plimsoll.rules.config.extras import NodeExtras
from plimsoll.rules.config.parse import reading
from plimsoll.rules.eviction.decision import EvictionCandidate, EvictionDecision
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.oom.report import OomKill, Victim
from plimsoll.rules.profile import DEFAULT_PROFILE
from plimsoll.rules.quantity import parse
from tests.unit.node.played_node import PlayedNode
from tests.unit.node.played_runtime import PlayedRuntime

PLAIN = Paint(False)
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "evictionHard": {"memory.available": "100Mi"},
    "evictionSoft": {"memory.available": "1Gi"},
    "evictionSoftGracePeriod": {"memory.available": "90s"},
}
SETTING = resolved(
    machine_from_capacity({"cpu": parse("8"), "memory": parse("1Gi")}),
    reading(CONFIG, DEFAULT_PROFILE, {}).config,
    DEFAULT_PROFILE,
    cgroup_version=2,
    runtime="process",
)
HOG = EvictionCandidate("u1", "shop", "hog", 0, 2 << 30, "0", True, before="lower priority")
NEXT = EvictionCandidate("u2", "shop", "small", 7, 300 << 20, "200Mi", True)
EVICTED = EvictionDecision(
    "memory.available", "memory", "100Mi", "90Mi", True, 1.0, (HOG, NEXT), HOG,
    message="The node was low on resource: memory. ", time_s=1000.0, pods=2, following=NEXT,
)  # fmt: skip
KILL = OomKill(
    1000.0, "kernel log", "container", "u1", "shop", "hog", "app", process="stress", pid=77, container_lives=True,
    limit_bytes=256 << 20, candidates=(Victim(77, "stress", 250 << 20, 1000),),
)  # fmt: skip


class NoSink:
    def event(self, *event: str) -> None: ...
    def condition_changed(self) -> None: ...
    def evicted(self, *eviction: object) -> None: ...


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[PressureManager]:
    played = PlayedNode(tmp_path / "played")
    state = tmp_path / "state"
    state.mkdir()
    (state / "evictions.jsonl").write_bytes(msgspec.json.encode(EVICTED) + b"\n")
    record = {"bootId": "b", "kills": [msgspec.to_builtins(KILL)], "totals": {"container": 1}}
    (state / "oom.json").write_text(json.dumps(record))
    kernel = SimulatedKernel(2)
    agent = Agent(
        SETTING,
        PlayedRuntime(),
        kernel,
        CgroupManager(kernel, SETTING, tmp_path / "cgroups"),
        Client(OnePodApi({"metadata": {"name": "web", "namespace": "default"}}, on_status=print, on_event=print)),
        tmp_path,
        "n1",
    )
    reading_runtime = asyncio.create_task(agent.view.run())
    setup = PressureSetup(SETTING, NodeExtras(), played.cgroups, played.place, state, boot_id="b")
    pressure_manager = build_pressure(agent, played.stats, setup, NoSink())
    yield pressure_manager
    reading_runtime.cancel()
    await asyncio.wait([reading_runtime])
    pressure_manager._oom_watcher.close()
    pressure_manager._signals.close()


async def test_the_pressure_page_as_the_command_shows_it(node: PressureManager) -> None:
    await node._eviction.sync()
    page = msgspec.json.decode(await node.pressure_page(), type=PressurePage)
    (memory, *_) = page.signals
    assert [(each.value, each.grace_s, each.met) for each in memory.thresholds] == [
        ("100Mi", 0, False),
        ("1Gi", 90, True),
    ]
    lines = list(pressure.lines(page, 5, 1090.0, PLAIN))
    graces = [line.split()[-3:] for line in lines[2:4]]
    assert "hard" in graces[0] and graces[1][-3:] == ["90", "s", "met"], lines
    assert lines[-4:] == [
        "evicted",
        "       90s  shop/hog  memory.available",
        "            The node was low on resource: memory.",
        "            memory.available is 90Mi and should be 100Mi: chosen before 1 other pod; priority 0, uses 2Gi, "
        "requests 0; before shop/small (priority 7, uses 300Mi, requests 200Mi) because: lower priority",
    ]


async def test_the_oom_page_as_the_command_shows_it(node: PressureManager) -> None:
    page = msgspec.json.decode(await node.oom_page(), type=OomPage)
    assert page.totals == {"container": 1}
    lines = list(oom.lines(page.kills, 1090.0, PLAIN))
    assert lines[1] == (
        "  Process stress (pid 77) in container app was killed by the kernel: out of memory at the container's memory "
        "limit (256Mi); the container continues"
    )
    assert lines[-1].split() == ["77", "stress", "250.0", "MiB", "1000"]


@pytest.mark.parametrize(("page", "kind"), [("pressure_page", PressurePage), ("oom_page", OomPage)])
async def test_whatever_the_agent_sends_the_command_keeps(
    page: str, kind: type[msgspec.Struct], node: PressureManager
) -> None:
    await node._eviction.sync()
    sent = await getattr(node, page)()
    assert json.loads(msgspec.json.encode(msgspec.json.decode(sent, type=kind))) == json.loads(sent)


@pytest.mark.parametrize("name", ["_eviction", "_oom_watcher", "_watchdog"])
@pytest.mark.parametrize("error", [PlimsollError("gone"), OSError("no descriptors")], ids=["ours", "the kernel's"])
async def test_no_loop_ends_the_others(
    error: Exception, name: str, node: PressureManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, others = asyncio.Queue[int](), []

    async def fails(*_: object) -> None:
        tries.put_nowait(1)
        raise error

    async def goes_on(*_: object) -> None:
        others.append(1)
        await asyncio.Event().wait()

    for each in ("_eviction", "_oom_watcher", "_watchdog"):
        monkeypatch.setattr(getattr(node, each), "run", fails if each == name else goes_on)
    monkeypatch.setattr(manager, "RETRY_S", 0.0)
    node._ready.set()
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(10):
        for _ in range(3):
            await tries.get()
    assert not running.done() and len(others) == 2
    running.cancel()
    await asyncio.wait([running])
