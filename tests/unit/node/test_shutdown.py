"""Graceful node shutdown, with a real bus on which a small logind answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import InvalidConfigsError
from plimsoll.node.shutdown import LOGIND, MANAGER, PATH, NodeShutdown
from plimsoll.rules.config.kubelet import PriorityPeriod
from plimsoll.rules.config.parse import reading
from plimsoll.rules.lifecycle.shutdown import (
    CRITICAL_PRIORITY,
    REJECTED_REASON,
    ShutdownPeriods,
    delay_warning,
    shutdown_groups,
    shutdown_periods,
    shutdown_verdict,
)
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.profile import profile_named
from tests.unit.node.pods.one_pod_node import UID, PodNode, container
from tests.unit.node.test_agent import eventually

PROFILE_1_36 = profile_named("1.36")
PERIODS: ShutdownPeriods = (PriorityPeriod(0, 20), PriorityPeriod(CRITICAL_PRIORITY, 10))


def pod(name: str, priority: int = 0, grace_s: int = 30) -> RunPod:
    spec = {"priority": priority, "terminationGracePeriodSeconds": grace_s}
    return run_pod({"metadata": {"name": name}, "spec": spec})


def test_critical_pods_end_last_and_no_pod_gets_more_than_its_own_time() -> None:
    pods = [pod("critical", 2_000_000_000), pod("plain"), pod("brief", 5, grace_s=3)]
    groups = shutdown_groups(pods, PERIODS)
    assert [(each.grace_s, [one.metadata.name for one in each.pods]) for each in groups] == [
        (20, ["plain", "brief"]),
        (10, ["critical"]),
    ]
    assert [shutdown_verdict(one, groups[0]).grace_s for one in groups[0].pods] == [20, 3]
    assert shutdown_groups([], PERIODS) == ()


def configured(**settings: Any) -> ShutdownPeriods:
    return shutdown_periods(reading(settings, PROFILE_1_36).config)


def test_pods_end_by_priority() -> None:
    """https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#pod-priority-graceful-node-shutdown"""
    rows = [(100_000, 10), (10_000, 180), (1_000, 120), (0, 60)]
    entries = [{"priority": priority, "shutdownGracePeriodSeconds": grace_s} for priority, grace_s in rows]
    periods = configured(shutdownGracePeriodByPodPriority=entries)
    pods = [
        pod("a", 100_000, 600), pod("higher", 200_000), pod("b", 10_000, 600), pod("below-a", 99_999),
        pod("c", 999), pod("negative", -5, 7),
    ]  # fmt: skip
    groups = shutdown_groups(pods, periods)
    assert [(each.grace_s, [one.metadata.name for one in each.pods]) for each in groups] == [
        (60, ["c", "negative"]),
        (180, ["b", "below-a"]),
        (10, ["a", "higher"]),
    ]
    assert [shutdown_verdict(one, groups[0]).grace_s for one in groups[0].pods] == [30, 7]
    assert shutdown_verdict(pods[0], groups[2]).grace_s == 10
    assert "InhibitDelayMaxSec=370" in delay_warning(5.0, periods)


def test_the_settings() -> None:
    assert configured() == ()
    assert configured(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s") == PERIODS
    entries = [{"priority": 5, "shutdownGracePeriodSeconds": 10}]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"shutdownGracePeriodByPodPriority": entries, "shutdownGracePeriod": "1m"}, "cannot be used together"),
        ({"shutdownGracePeriodByPodPriority": [{"priority": "x"}]}, "[0].priority: must be a 32-bit integer"),
        ({"shutdownGracePeriodByPodPriority": [{"prio": 1}]}, "[0].prio: unknown setting"),
        ({"shutdownGracePeriodByPodPriority": [{"shutdownGracePeriodSeconds": -1}]}, "must not be negative"),
        ({"shutdownGracePeriod": "500ms"}, "must be zero or at least 1s"),
        ({"shutdownGracePeriod": "5s", "shutdownGracePeriodCriticalPods": "9s"}, "must be at most shutdownGracePeriod"),
        ({"shutdownGracePeriod": "5s", "featureGates": {"GracefulNodeShutdown": False}}, "GracefulNodeShutdown"),
    ]
    for settings, words in refused:
        with pytest.raises(InvalidConfigsError) as error:
            configured(**settings)
        assert words in str(error.value), settings


def test_a_short_delay_of_logind_is_a_warning() -> None:
    assert "InhibitDelayMaxSec=30" in delay_warning(5.0, PERIODS)
    assert delay_warning(30.0, PERIODS) == ""


class Logind:
    """Its locks, and the signal that it sends."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus, self.locks = bus, list[int]()
        bus.add_message_handler(self._answer)

    def _answer(self, call: Message) -> Message | None:
        if call.message_type is not MessageType.METHOD_CALL or call.path != PATH:
            return None
        if call.member == "Inhibit":
            assert call.body == ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"]
            ours, theirs = os.pipe()
            self.locks.append(ours)
            answer = Message.new_method_return(call, "h", [0], [theirs])
            asyncio.get_running_loop().call_later(0.2, os.close, theirs)  # sent by then
            return answer
        return Message.new_method_return(call, "v", [Variant("t", 5_000_000)])

    async def announce(self, *, begins: bool) -> None:
        await self._bus.send(Message.new_signal(PATH, MANAGER, "PrepareForShutdown", "b", [begins]))

    async def released(self, lock: int) -> None:
        """All copies of the other end are closed."""
        await asyncio.wait_for(asyncio.to_thread(os.read, lock, 1), 30)


@contextlib.asynccontextmanager
async def logind(directory: Path) -> AsyncIterator[tuple[str, Logind]]:
    program = shutil.which("dbus-daemon")
    if program is None:
        pytest.skip("needs dbus-daemon, from the Debian package dbus-daemon")
    address = f"unix:path={directory}/bus"
    options = ("--session", "--nofork", "--nopidfile", f"--address={address}", "--print-address=1")
    daemon = await asyncio.create_subprocess_exec(program, *options, stdout=asyncio.subprocess.PIPE)
    assert daemon.stdout is not None
    await daemon.stdout.readline()
    bus = await MessageBus(bus_address=address, bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
    try:
        await bus.request_name(LOGIND)
        yield address, Logind(bus)
    finally:
        bus.disconnect()
        daemon.terminate()
        await daemon.wait()


async def test_pods_end_before_the_machine_and_a_cancelled_shutdown_is_forgotten(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), terminationGracePeriodSeconds=5)
    events: list[tuple[str, ...]] = []
    changes: list[bool] = []
    async with logind(tmp_path) as (address, manager), node.running():
        await node.until_running()

        def event(*parts: str) -> None:
            events.append(parts)

        shutdown = NodeShutdown(PERIODS, node.agent.pods, event, lambda: changes.append(shutdown.is_active), address)
        node.agent.is_shutting_down = lambda: shutdown.is_active
        task = asyncio.create_task(shutdown.run())
        try:
            await asyncio.wait_for(shutdown.ready.wait(), 30)
            blocked = node.runtime.blocked[f"stop {UID}.a.0 5"] = asyncio.Event()
            await manager.announce(begins=True)
            await eventually(lambda: f"stop {UID}.a.0 5" in node.runtime.calls)
            assert shutdown.is_active and shutdown.ready.is_set(), "the lock is held while a pod ends"
            refused: Any = node.agent._refusals(node.worker.pod)
            assert [each.reason for each in refused] == [REJECTED_REASON]
            blocked.set()
            await manager.released(manager.locks[0])
            assert (node.status["phase"], node.status["reason"]) == ("Failed", "Terminated")
            assert node.status["message"] == "Pod was terminated in response to imminent node shutdown."
            await manager.announce(begins=False)
            await eventually(lambda: len(manager.locks) == 2 and not shutdown.is_active and len(events) >= 3)
        finally:
            task.cancel()
            await asyncio.wait([task])
    assert changes == [True, False]
    assert [parts[1] for parts in events] == ["ShutdownDelayTooShort", "NodeShutdown", "ShutdownDelayTooShort"]
