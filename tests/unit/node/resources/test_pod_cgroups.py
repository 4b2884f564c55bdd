"""Requests of many workers share few transactions, on a simulated kernel; an impossible one does not fail the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.errors import PlimsollError
from plimsoll.node.resources.cgroup_queue import BATCH_MAX
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.workloads import Workloads
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import DEFAULT_PROFILE
from plimsoll.rules.quantity import parse

SETTING = resolved(
    machine_from_capacity({"cpu": parse("8"), "memory": parse("4Gi")}),
    reading(None, DEFAULT_PROFILE, {}).config,
    DEFAULT_PROFILE,
    cgroup_version=2,
    runtime="process",
)


def pod(uid: str, memory: str = "64Mi") -> Pod:
    container = {"name": "c", "resources": {"limits": {"memory": memory, "cpu": "100m"}}}
    return lean_pod(
        {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": [container]}}
    )


class CountingManager(CgroupManager):
    """Counts its transactions."""

    transactions = 0

    async def add(self, *args: object, **options: object) -> object:  # type: ignore[override]
        self.transactions += 1
        return await super().add(*args, **options)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def cgroups(tmp_path: Path) -> AsyncIterator[tuple[PodCgroups, SimulatedKernel, CountingManager]]:
    kernel = SimulatedKernel(2)
    tree = CountingManager(kernel, SETTING, tmp_path)
    made = PodCgroups(tree, kernel, SETTING)
    await made.setup()
    task = asyncio.create_task(made.run())
    try:
        yield made, kernel, tree
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_pod_and_container_are_created_together_and_once(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, kernel, tree):
        paths = await made.ensure(pod("u1"), {"c": "id0"})
        assert dict(paths) == {"": "/kubepods/podu1", "c": "/kubepods/podu1/id0"}
        seen = kernel.read(paths["c"], ("memory.max",))
        assert seen is not None and seen.files["memory.max"] == str(64 << 20)
        await made.ensure(pod("u1"), {"c": "id0"})
        assert tree.transactions == 1


class Listener:
    def __init__(self) -> None:
        self.changes: list[str] = []
        self.news = asyncio.Event()

    def changing(self, uid: str) -> None:
        self.changes.append(uid)

    def changed(self) -> None:
        self.news.set()


async def test_who_waits_for_cgroups_goes_on_before_who_watches_them(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, _, _tree):
        listener, order = Listener(), []
        made.listeners.append(listener)

        async def watch() -> None:
            await listener.news.wait()
            order.append("watches")

        async def wait() -> None:
            await made.ensure(pod("u1"), {"c": "id0"})
            order.append("waits")

        await asyncio.gather(watch(), wait())
        assert order == ["waits", "watches"]


async def test_a_listener_is_notified_before_cgroups_may_be_removed(tmp_path: Path) -> None:
    """A new pod has none."""
    async with cgroups(tmp_path) as (made, _, _tree):
        listener = Listener()
        made.listeners.append(listener)
        await made.ensure(pod("u1"), {"c": "id0"})
        assert listener.changes == []
        await made.ensure(pod("u1"), {"c": "id1"})
        await made.remove("u1")
        assert listener.changes == ["u1", "u1"]


async def test_another_attempt_has_another_cgroup_and_the_old_one_is_removed(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, kernel, _):
        await made.ensure(pod("u1"), {"c": "id0"})
        paths = await made.ensure(pod("u1"), {"c": "id1"})
        assert kernel.children("/kubepods/podu1") == ["id1"]
        assert paths["c"].endswith("/id1")


async def test_waiting_requests_share_a_transaction(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, kernel, tree):
        count = 3 * BATCH_MAX
        await asyncio.gather(*(made.ensure(pod(f"u{number}"), {"c": f"id{number}"}) for number in range(count)))
        assert tree.transactions == 3
        assert len([name for name in kernel.children("/kubepods") if name.startswith("pod")]) == count
        await asyncio.gather(*(made.remove(f"u{number}") for number in range(count)))
        assert made.known() == {}


async def test_an_impossible_pod_does_not_fail_the_others(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, _, _tree):
        requests = [
            made.ensure(pod("u1"), {"c": "id1"}),
            made.ensure(pod("bad/uid"), {"c": "x"}),
            made.ensure(pod("u3"), {}),
        ]
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(results[1], PlimsollError)
        assert set(made.known()) == {"u1", "u3"}


async def test_cgroups_of_an_earlier_agent_are_known_and_kept(tmp_path: Path) -> None:
    kernel = SimulatedKernel(2)
    for _ in range(2):
        tree = CountingManager(kernel, SETTING, tmp_path)
        made = PodCgroups(tree, kernel, SETTING)
        await made.setup()
        task = asyncio.create_task(made.run())
        paths = await made.ensure(pod("u1"), {"c": "id0"})
        inode = kernel.read(paths["c"], ()).inode  # type: ignore[union-attr]
        task.cancel()
        await asyncio.wait([task])
    assert made.known() == {"u1": "default/u1"}
    assert kernel.read(paths["c"], ()).inode == inode  # type: ignore[union-attr]


async def test_a_limit_that_cannot_be_lowered_does_not_stop_an_agent_from_starting(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, kernel, tree):
        paths = await made.ensure(pod("u1"), {"c": "id0"})
        kernel.spawn(paths["c"])
        kernel.use(paths["c"], anon_bytes=48 << 20)
        with pytest.raises(PlimsollError, match="still in use"):
            await made.resize(pod("u1", "32Mi"))
        with pytest.raises(PlimsollError, match="still in use"):
            await tree.setup()
        await PodCgroups(tree, kernel, SETTING).setup()
        seen = kernel.read(paths["c"], ("memory.max",))
        assert seen is not None and seen.files["memory.max"] == str(52 << 20)  # follows the usage, 4 MiB above it


def burstable(cpu: str, memory: str) -> Pod:
    resources = {"requests": {"cpu": cpu}, "limits": {"memory": memory}}
    return lean_pod(
        {"metadata": {"name": "b", "uid": "b"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    )


async def test_a_resize_that_succeeds_at_a_retry_updates_its_class(tmp_path: Path) -> None:
    async with cgroups(tmp_path) as (made, kernel, tree):
        paths = await made.ensure(burstable("900m", "64Mi"), {"c": "id0"})
        kernel.spawn(paths["c"])
        kernel.use(paths["c"], anon_bytes=48 << 20)
        for _ in range(2):
            with pytest.raises(PlimsollError, match="still in use"):
                await made.resize(burstable("150m", "32Mi"))
        kernel.use(paths["c"], anon_bytes=8 << 20)
        await made.resize(burstable("150m", "32Mi"))
        assert tree.status().drift == ()


@pytest.mark.parametrize(("request_bytes", "score"), [("1Gi", 750), ("4Gi", 3)])
def test_scores(request_bytes: str, score: int) -> None:
    burstable = lean_pod(
        {
            "metadata": {"name": "b", "uid": "b"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": request_bytes}}}]},
        }
    )
    assert Workloads(SETTING).scores(burstable) == {"c": score}
