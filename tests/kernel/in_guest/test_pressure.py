"""A node under pressure on cgroup v2, in a guest: the checks of the host, the whole machine, and Memory QoS at work."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.kernel import pressure_checks as checks
from tests.kernel.pressure_world import (
    MIB,
    Document,
    PressureWorld,
    container,
    eater,
    memory,
    pod,
    pressure_world,
)

SCRATCH = Path("/scratch")  # a disk: only its page cache can be reclaimed
QOS: Document = {
    "featureGates": {"MemoryQoS": True},
    "memoryThrottlingFactor": 0.5,
    "evictionHard": {"nodefs.available": "1Mi"},
}
RESOLVED_S = 5.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PressureWorld]:
    with pressure_world(tmp_path_factory.mktemp("pressure") / "world", checks.SETTINGS) as made:
        yield made


@pytest.mark.parametrize("check", checks.MEMORY_CHECKS, ids=lambda check: check.__name__)
def test_check(check: checks.Check, world: PressureWorld) -> None:
    checks.calm(world)
    try:
        check(world)
    finally:
        world.empty()


Start = Callable[..., PressureWorld]


@pytest.fixture
def start() -> Iterator[Start]:
    """A world of the test's own, on the disk."""
    place = SCRATCH / "world"
    with ExitStack() as stack:

        def started(settings: Document, extras: Document | None = None, **how: int) -> PressureWorld:
            return stack.enter_context(pressure_world(place, settings, extras, **how))

        yield started
    shutil.rmtree(place)


def test_the_whole_machine_runs_short(start: Start) -> None:
    """Nothing is declared: the node is the guest itself, and its memory is what the top of the tree says."""
    world = start(
        {"evictionHard": {"memory.available": "150Mi"}, "evictionPressureTransitionPeriod": "3s"}, capacity_mib=0
    )
    world.create(pod("calm", container("c", eater(30), **memory("60Mi"))))
    world.full("calm")
    world.create(pod("hog", container("c", eater(2000, checks.PACE))))
    world.until(lambda: world.is_evicted("hog"), 60)
    decision = world.page("pressure")["decisions"][-1]
    assert decision["signal"] == "memory.available"
    checks.untouched(world, "calm")
    assert not world.kills()
    world.until(lambda: world.condition("MemoryPressure") == "True", 10)
    checks.calm(world)


def test_all_pods_together(start: Start) -> None:
    checks.a_kill_at_the_limit_of_all_pods_is_told_as_such(
        start({"evictionHard": {"nodefs.available": "1Mi"}}, capacity_mib=256)
    )


def test_a_container_is_killed_as_a_whole_where_its_pod_says_so(start: Start) -> None:
    """The annotation against the node's own setting; the other pod keeps to that."""
    world = start(checks.SETTINGS)
    command = ["/usr/bin/python3", "-S", "-I", "-c", checks.CHILD]
    asked = {"annotations": {"plimsoll.dev/oom-group": "true"}}
    world.create(
        pod("whole", container("c", command, **checks.LIMIT), checks.fellow(), metadata=asked, restartPolicy="Never"),
        pod("plain", container("c", command, **checks.LIMIT), checks.fellow(), restartPolicy="Never"),
    )
    ended = world.until(lambda: world.container("whole").get("state", {}).get("terminated"), 40)
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    world.said("plain", "died")
    (event,) = world.until(lambda: world.events("OOMKilling", "whole"))
    assert "the whole container was killed with it" in event["message"]
    (kill,) = [each for each in world.kills() if each.get("pod") == "whole"]
    assert (kill["wholeContainer"], kill["containerLives"]) == (True, False)
    assert "running" in world.container("plain")["state"]


# --- Memory QoS ---

THROTTLED = {"resources": {"requests": {"memory": "16Mi"}, "limits": {"memory": "96Mi"}}}  # high: 56 MiB


def throttled(world: PressureWorld) -> float:
    """A pod that wants more than memory.high; when it got there."""
    world.create(pod("parked", container("c", eater(80), **THROTTLED)))
    world.running("parked")
    path = world.cgroup("parked", "c")
    assert int((path / "memory.high").read_text()) == 56 * MIB
    world.until(lambda: int((path / "memory.current").read_text()) > 56 * MIB, 20)
    return time.monotonic()


def test_memory_high_alone_leaves_a_process_parked_and_the_watchdog_resolves_it(start: Start) -> None:
    world = start(QOS, {"throttleWatchdog": "off"})
    reached_s = throttled(world)
    while time.monotonic() - reached_s < 3 * RESOLVED_S:
        assert "full" not in world.log("parked"), f"memory.high held nobody: {time.monotonic() - reached_s:.1f} s"
        time.sleep(0.5)
    world.empty()
    world.kill_node()
    world.configure(QOS, {"throttleWatchdog": "release"})
    world.start_again()
    reached_s = throttled(world)
    path = world.cgroup("parked", "c")
    world.until(lambda: (path / "memory.high").read_text().strip() == "max", 10)
    released_s = time.monotonic()
    full_s = world.full("parked")
    print(
        f"watchdog: released {released_s - reached_s:.1f} s, full {full_s - reached_s:.1f} s after memory.high was reached"
    )
    assert released_s - reached_s <= RESOLVED_S
    (event,) = world.until(lambda: world.events("MemoryThrottled", "parked"))
    assert "memory.high is removed" in event["message"]
    # Nobody repairs it: not the next pod, not the next agent.
    world.create(pod("other", container("c", eater(1))))
    world.running("other")
    world.kill_node()
    world.start_again()
    assert (path / "memory.high").read_text().strip() == "max"
    checks.untouched(world, "parked")


@pytest.mark.parametrize(
    ("policy", "says"), [("raise", "; memory.high is raised to "), ("reclaim", " bytes are reclaimed")]
)
def test_the_watchdog_raises_the_mark_step_by_step_or_asks_for_memory(policy: str, says: str, start: Start) -> None:
    world = start(QOS, {"throttleWatchdog": policy})
    reached_s = throttled(world)
    path = world.cgroup("parked", "c")
    (event, *_) = world.until(lambda: world.events("MemoryThrottled", "parked"), 10)
    took_s = time.monotonic() - reached_s
    high = int((path / "memory.high").read_text())
    print(f"watchdog, {policy}: {took_s:.1f} s after memory.high was reached it is {high}")
    assert took_s <= RESOLVED_S
    assert says in event["message"]
    if policy == "raise":
        assert high >= 60 * MIB
        world.until(lambda: int((path / "memory.high").read_text()) > high, 10)  # that was not enough
    else:
        assert high == 56 * MIB
    checks.untouched(world, "parked")


def test_who_declines_memory_qos_has_none_and_the_gate_off_restores_all(start: Start) -> None:
    world = start(QOS)
    declines = {"annotations": {"plimsoll.dev/memory-qos": "off"}}
    world.create(
        pod("has", container("c", eater(5), **THROTTLED)),
        pod("declines", container("c", eater(5), **THROTTLED), metadata=declines),
    )
    world.running("has", "declines")
    has, none = world.cgroup("has", "c"), world.cgroup("declines", "c")
    assert ((has / "memory.high").read_text().strip(), (has / "memory.min").read_text().strip()) == (
        str(56 * MIB),
        str(16 * MIB),
    )
    assert ((none / "memory.high").read_text().strip(), (none / "memory.min").read_text().strip()) == ("max", "0")
    assert int((world.kubepods / "memory.min").read_text()) == 16 * MIB
    world.kill_node()
    world.configure({**QOS, "featureGates": {"MemoryQoS": False}}, {})
    world.start_again()
    for path in (has, has.parent, world.kubepods, world.kubepods / "burstable"):
        assert (path / "memory.min").read_text().strip() == "0", path
        assert (path / "memory.low").read_text().strip() == "0", path
        assert (path / "memory.high").read_text().strip() == "max", path


WRITES = "dd if=/dev/zero of=/data/file bs=1M count=64 2>/dev/null && sync && echo written; sleep 1000"


def _is_decided(world: PressureWorld, name: str) -> bool:
    return "written" in world.log(name) or bool(_kills_of(world, name))


def _kills_of(world: PressureWorld, name: str) -> list[Document]:
    return [each for each in world.kills() if each.get("pod") == name]


def test_a_guaranteed_pod_writes_twice_its_memory(start: Start) -> None:
    """With room for page cache below its limit it does; without, all it has is protected, and the writer is killed."""
    guaranteed = {"resources": {"limits": {"memory": "32Mi", "cpu": "1"}}}
    data = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volume = {"volumes": [{"name": "data", "emptyDir": {}}]}
    world = start(QOS, {"pageCacheSafeMin": True})
    for safe in (True, False):
        if not safe:
            world.empty()
            world.kill_node()
            world.configure(QOS, {})
            world.start_again()
        name = "safe" if safe else "plain"
        world.create(pod(name, container("c", ["sh", "-c", WRITES], **guaranteed, **data), **volume))
        world.running(name)
        path = world.cgroup(name, "c")
        minimum, most = (int((path / f"memory.{file}").read_text()) for file in ("min", "max"))
        world.until(partial(_is_decided, world, name), 60)
        killed = len(_kills_of(world, name))
        print(f"pageCacheSafeMin {safe}: memory.min {minimum}, memory.max {most}, killed {killed}")
        if safe:
            assert minimum == 32 * MIB * 9 // 10 // 4096 * 4096
            assert "written" in world.log(name)
            checks.untouched(world, name)
        else:
            assert minimum == most
            assert killed >= 1
            assert "written" not in world.log(name)
