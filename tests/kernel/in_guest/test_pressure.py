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
from tests.kernel.pressure_node import (
    MIB,
    Document,
    PressureNode,
    container,
    eater,
    memory,
    pod,
    pressure_node,
)

SCRATCH = Path("/scratch")  # a disk: only its page cache can be reclaimed
QOS: Document = {
    "featureGates": {"MemoryQoS": True},
    "memoryThrottlingFactor": 0.5,
    "evictionHard": {"nodefs.available": "1Mi"},
}
RESOLVED_S = 5.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PressureNode]:
    with pressure_node(tmp_path_factory.mktemp("pressure") / "cluster", checks.SETTINGS) as made:
        yield made


@pytest.mark.parametrize("check", checks.MEMORY_CHECKS, ids=lambda check: check.__name__)
def test_check(check: checks.Check, node: PressureNode) -> None:
    checks.calm(node)
    try:
        check(node)
    finally:
        node.empty()


Start = Callable[..., PressureNode]


@pytest.fixture
def start() -> Iterator[Start]:
    """A node of the test's own, on the disk."""
    place = SCRATCH / "cluster"
    with ExitStack() as stack:

        def started(settings: Document, extras: Document | None = None, **how: int) -> PressureNode:
            return stack.enter_context(pressure_node(place, settings, extras, **how))

        yield started
    shutil.rmtree(place)


def test_the_whole_machine_runs_short(start: Start) -> None:
    """Nothing is declared: the node is the guest itself, and its memory is what the top of the tree says."""
    node = start(
        {"evictionHard": {"memory.available": "150Mi"}, "evictionPressureTransitionPeriod": "3s"}, capacity_mib=0
    )
    node.create(pod("calm", container("c", eater(30), **memory("60Mi"))))
    node.full("calm")
    node.create(pod("hog", container("c", eater(2000, checks.PACE))))
    node.until(lambda: node.is_evicted("hog"))
    decision = node.page("pressure")["decisions"][-1]
    assert decision["signal"] == "memory.available"
    checks.untouched(node, "calm")
    assert not node.kills()
    node.until(lambda: node.condition("MemoryPressure") == "True")
    checks.calm(node)


def test_all_pods_together(start: Start) -> None:
    checks.a_kill_at_the_limit_of_all_pods_is_reported_as_such(
        start({"evictionHard": {"nodefs.available": "1Mi"}}, capacity_mib=256)
    )


def test_a_container_is_killed_as_a_whole_where_its_pod_says_so(start: Start) -> None:
    """The annotation against the node's own setting; the other pod keeps to that."""
    node = start(checks.SETTINGS)
    command = ["/usr/bin/python3", "-S", "-I", "-c", checks.CHILD]
    asked = {"annotations": {"plimsoll.dev/oom-group": "true"}}
    node.create(
        pod("whole", container("c", command, **checks.LIMIT), checks.fellow(), metadata=asked, restartPolicy="Never"),
        pod("plain", container("c", command, **checks.LIMIT), checks.fellow(), restartPolicy="Never"),
    )
    ended = node.until(lambda: node.container("whole").get("state", {}).get("terminated"))
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    node.said("plain", "died")
    (event,) = node.until(lambda: node.events("OOMKilling", "whole"))
    assert "the whole container was killed with it" in event["message"]
    (kill,) = [each for each in node.kills() if each.get("pod") == "whole"]
    assert (kill["wholeContainer"], kill["containerLives"]) == (True, False)
    assert "running" in node.container("plain")["state"]


# --- Memory QoS ---

THROTTLED = {"resources": {"requests": {"memory": "16Mi"}, "limits": {"memory": "96Mi"}}}  # high: 56 MiB


def throttled(node: PressureNode) -> float:
    """A pod that wants more than memory.high; when it got there."""
    node.create(pod("parked", container("c", eater(80), **THROTTLED)))
    node.running("parked")
    path = node.cgroup("parked", "c")
    assert int((path / "memory.high").read_text()) == 56 * MIB
    node.until(lambda: int((path / "memory.current").read_text()) > 56 * MIB)
    return time.monotonic()


def test_memory_high_alone_leaves_a_process_parked_and_the_watchdog_resolves_it(start: Start) -> None:
    node = start(QOS, {"throttleWatchdog": "off"})
    reached_s = throttled(node)
    while time.monotonic() - reached_s < 3 * RESOLVED_S:
        assert "full" not in node.log("parked"), f"memory.high had no effect: {time.monotonic() - reached_s:.1f} s"
        time.sleep(0.5)
    node.empty()
    node.kill_node()
    node.configure(QOS, {"throttleWatchdog": "release"})
    node.start_again()
    reached_s = throttled(node)
    path = node.cgroup("parked", "c")
    node.until(lambda: (path / "memory.high").read_text().strip() == "max")
    released_s = time.monotonic()
    full_s = node.full("parked")
    print(
        f"watchdog: released {released_s - reached_s:.1f} s, full {full_s - reached_s:.1f} s after memory.high was reached"
    )
    assert released_s - reached_s <= RESOLVED_S
    (event,) = node.until(lambda: node.events("MemoryThrottled", "parked"))
    assert "memory.high is removed" in event["message"]
    # It is not repaired: not by the next pod, not by the next agent.
    node.create(pod("other", container("c", eater(1))))
    node.running("other")
    node.kill_node()
    node.start_again()
    assert (path / "memory.high").read_text().strip() == "max"
    checks.untouched(node, "parked")


@pytest.mark.parametrize(
    ("policy", "says"), [("raise", "; memory.high is raised to "), ("reclaim", " bytes are reclaimed")]
)
def test_the_watchdog_raises_the_mark_step_by_step_or_asks_for_memory(policy: str, says: str, start: Start) -> None:
    node = start(QOS, {"throttleWatchdog": policy})
    reached_s = throttled(node)
    path = node.cgroup("parked", "c")
    (event, *_) = node.until(lambda: node.events("MemoryThrottled", "parked"))
    took_s = time.monotonic() - reached_s
    high = int((path / "memory.high").read_text())
    print(f"watchdog, {policy}: {took_s:.1f} s after memory.high was reached it is {high}")
    assert took_s <= RESOLVED_S
    assert says in event["message"]
    if policy == "raise":
        assert high >= 60 * MIB
        node.until(lambda: int((path / "memory.high").read_text()) > high)  # that was not enough
    else:
        assert high == 56 * MIB
    checks.untouched(node, "parked")


def test_who_declines_memory_qos_has_none_and_the_gate_off_restores_all(start: Start) -> None:
    node = start(QOS)
    declines = {"annotations": {"plimsoll.dev/memory-qos": "off"}}
    node.create(
        pod("has", container("c", eater(5), **THROTTLED)),
        pod("declines", container("c", eater(5), **THROTTLED), metadata=declines),
    )
    node.running("has", "declines")
    has, none = node.cgroup("has", "c"), node.cgroup("declines", "c")
    assert ((has / "memory.high").read_text().strip(), (has / "memory.min").read_text().strip()) == (
        str(56 * MIB),
        str(16 * MIB),
    )
    assert ((none / "memory.high").read_text().strip(), (none / "memory.min").read_text().strip()) == ("max", "0")
    assert int((node.kubepods / "memory.min").read_text()) == 16 * MIB
    node.kill_node()
    node.configure({**QOS, "featureGates": {"MemoryQoS": False}}, {})
    node.start_again()
    for path in (has, has.parent, node.kubepods, node.kubepods / "burstable"):
        assert (path / "memory.min").read_text().strip() == "0", path
        assert (path / "memory.low").read_text().strip() == "0", path
        assert (path / "memory.high").read_text().strip() == "max", path


WRITES = "dd if=/dev/zero of=/data/file bs=1M count=64 2>/dev/null && sync && echo written; sleep 1000"


def _is_decided(node: PressureNode, name: str) -> bool:
    return "written" in node.log(name) or bool(_kills_of(node, name))


def _kills_of(node: PressureNode, name: str) -> list[Document]:
    return [each for each in node.kills() if each.get("pod") == name]


def test_a_guaranteed_pod_writes_twice_its_memory(start: Start) -> None:
    """With room for page cache below its limit it does; without, all it has is protected, and the writer is killed."""
    guaranteed = {"resources": {"limits": {"memory": "32Mi", "cpu": "1"}}}
    data = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volume = {"volumes": [{"name": "data", "emptyDir": {}}]}
    node = start(QOS, {"pageCacheSafeMin": True})
    for safe in (True, False):
        if not safe:
            node.empty()
            node.kill_node()
            node.configure(QOS, {})
            node.start_again()
        name = "safe" if safe else "plain"
        node.create(pod(name, container("c", ["sh", "-c", WRITES], **guaranteed, **data), **volume))
        node.running(name)
        path = node.cgroup(name, "c")
        minimum, most = (int((path / f"memory.{file}").read_text()) for file in ("min", "max"))
        node.until(partial(_is_decided, node, name))
        killed = len(_kills_of(node, name))
        print(f"pageCacheSafeMin {safe}: memory.min {minimum}, memory.max {most}, killed {killed}")
        if safe:
            assert minimum == 32 * MIB * 9 // 10 // 4096 * 4096
            assert "written" in node.log(name)
            checks.untouched(node, name)
        else:
            assert minimum == most
            assert killed >= 1
            assert "written" not in node.log(name)
