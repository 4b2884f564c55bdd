"""The watchdog and proactive reclaim, on a simulated kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.runtime.nri import messages as m
from tests.unit.attach.attach_node import HIGH, MIB, AttachNode


def stalled(node: AttachNode, name: str, total_us: int) -> None:
    line = f"avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}"
    node.kernel.report(node.container_path(name), "memory.pressure", f"some {line}\nfull {line}")


async def parked(node: AttachNode, name: str, seconds: int) -> None:
    """One sample per second of a container that allocates at memory.high and does nothing but wait."""
    path = node.container_path(name)
    for second in range(seconds):
        stalled(node, name, second * 900_000)
        node.kernel.use(path, anon_bytes=int(HIGH) + MIB // 4)
        await node.service.watchdog.sample(node.service.decision, 100.0 + second)


@pytest.mark.parametrize(("action", "raised"), [("raise", True), ("release", True), ("event", False), ("off", False)])
async def test_a_parked_container(tmp_path: Path, action: str, raised: bool) -> None:
    switches = Switches("tiered", watchdog=action)  # type: ignore[arg-type]
    node = AttachNode(tmp_path / "s", policy=AttachPolicy(switches))
    pod, container = await node.pod("a")
    await node.created(pod, container)
    await node.service.round()
    node.kernel.spawn(node.container_path("a"))
    await parked(node, "a", 5)
    high = node.files(node.container_path("a"))["memory.high"]
    # memory.max is not set in this simulation: a raise is by a tenth of memory.high, at least 4 MiB
    wanted = {"raise": int(HIGH) + int(int(HIGH) * 0.1), "release": "max"}.get(action, HIGH)
    assert high == (str(int(wanted) // 4096 * 4096) if action == "raise" else wanted)
    if not raised:
        return
    await node.service.round()  # does not lower it again
    assert node.files(node.container_path("a"))["memory.high"] == high
    update = await node.service.plugin.updated(pod, container, m.LinuxResources())
    assert update is not None and update.linux is not None and update.linux.resources is not None
    assert (
        update.linux.resources.unified["memory.high"]
        == node.service.watchdog.lifted[f"{node.container_path('a')}\tmemory.high"]
    )
    await node.writer.restore(list(node.journal.entries.values()))
    assert node.files(node.container_path("a"))["memory.high"] == "max"


async def test_reclaim_stops_at_the_protection_and_under_pressure(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s", policy=AttachPolicy(Switches("tiered", None, reclaim=True)))
    await node.created(*await node.pod("a"))
    await node.service.round()
    path = node.container_path("a")
    node.kernel.spawn(path)
    node.kernel.use(path, cache_bytes=100 * MIB)
    dog = node.service.watchdog
    dog._began_s = 0.0  # as if it ran for a while: the CPU budget is not used up

    async def usage_after(now_s: float, stall_us: int) -> int:
        stalled(node, "a", stall_us)
        await dog.sample(node.service.decision, now_s, reclaim=True)
        found = node.kernel.read(path, ("memory.current",))
        assert found is not None
        return int(found.files["memory.current"])

    assert await usage_after(10_000.0, 0) == 100 * MIB  # the first look
    after = 100 * MIB - MIB  # 1 %, at least 1 MiB
    assert await usage_after(10_010.0, 0) == after
    assert await usage_after(10_020.0, 50_000) == after  # 0.5 % of the time in stalls
    node.kernel.use(path, cache_bytes=64 * MIB + MIB // 2)
    assert await usage_after(10_030.0, 50_000) == 64 * MIB + MIB // 2  # within a step of its request
    dog._reclaim_cpu_s = 1000.0
    node.kernel.use(path, cache_bytes=100 * MIB)
    assert await usage_after(10_040.0, 50_000) == 100 * MIB  # the budget is used up
