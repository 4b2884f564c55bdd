"""Memory lines as metrics: what the files say, what holds, and when a line is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pages import reserved_bytes
from plimsoll.node.stats.line_metrics import LineMetrics
from plimsoll.rules.profile import profile_named
from tests.unit.node.played_node import MIB, POD, PODS, PlayedNode

BURSTABLE, CONTAINER = "/kubepods/burstable", f"{POD}/c1"
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n"


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    made = PlayedNode(tmp_path)
    made.cgroups.use(BURSTABLE, cpu_us=1)
    for path, lowest, low, high in (
        (PODS, 24, 16, "max"),
        (BURSTABLE, 16, 16, "max"),
        (POD, 16, 16, "max"),
        (CONTAINER, 32, 0, 48 * MIB),
    ):
        made.cgroups.put(path, memory_min=str(lowest * MIB), memory_low=str(low * MIB), memory_high=str(high))
    return made


class Scraped:
    def __init__(self, node: PlayedNode) -> None:
        self.node, self.lines = node, LineMetrics()

    def __call__(self, *distances: tuple[str, str, int, int]) -> dict[tuple[str, ...], float]:
        stats = self.node.stats
        snapshot = stats.sample()
        text = "".join(self.lines.page(snapshot, stats.scraped(snapshot), stats.class_paths(snapshot), distances))
        return {
            (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()) if value)): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


WEB = ("namespace=default", "pod=web", "qos_class=Burstable")


def line(level: str, name: str, kind: str, *labels: str) -> tuple[str, ...]:
    return ("plimsoll_line_bytes", *sorted((f"kind={kind}", f"level={level}", f"line={name}", *labels)))


def test_declared_and_effective_lines(node: PlayedNode) -> None:
    """The container claims 32Mi of memory.min below a pod with 16Mi; its limit is below that of kubepods."""
    found = Scraped(node)()
    assert found[line("container", "min", "declared", "container=app", *WEB)] == 32 * MIB
    assert found[line("container", "min", "effective", "container=app", *WEB)] == 16 * MIB
    assert found[line("container", "high", "effective", "container=app", *WEB)] == 48 * MIB
    assert found[line("container", "max", "declared", "container=app", *WEB)] == 64 * MIB
    # The pod has no limit of its own: that of kubepods holds.
    assert line("pod", "max", "declared", *WEB) not in found
    assert found[line("pod", "max", "effective", *WEB)] == 800 * MIB
    assert found[line("node", "min", "declared")] == 24 * MIB
    assert found[line("class", "low", "declared", "qos_class=Burstable")] == 16 * MIB
    # memory.low is 0, which is no line.
    assert line("container", "low", "declared", "container=app", *WEB) not in found


def test_time_to_the_next_line(node: PlayedNode) -> None:
    """From 8 to 28 MiB in 10 s, 20 MiB below memory.high: another 10 s."""
    scraped = Scraped(node)
    assert not [key for key in scraped() if key[0] == "plimsoll_time_to_line_seconds"]
    node.now_s += 10
    node.cgroups.use(CONTAINER, cpu_us=1, memory_bytes=30 * MIB, limit=str(64 * MIB))  # 2 MiB are inactive file
    key = (
        "plimsoll_time_to_line_seconds",
        "container=app",
        "level=container",
        "line=high",
        "namespace=default",
        "pod=web",
    )
    assert scraped()[key] == 10.0
    node.now_s += 10
    node.cgroups.use(CONTAINER, cpu_us=1, memory_bytes=20 * MIB, limit=str(64 * MIB))
    assert key not in scraped()  # it shrinks


def test_time_to_the_eviction_threshold(node: PlayedNode) -> None:
    """100 MiB nearer in 20 s, 300 MiB away: a minute."""
    scraped = Scraped(node)
    first = scraped(("memory.available", "hard", 400 * MIB, 100 * MIB), ("nodefs.available", "hard", MIB, MIB))
    assert first["plimsoll_threshold_distance_bytes", "kind=hard", "signal=memory.available"] == 400 * MIB
    assert first["plimsoll_threshold_distance_bytes", "kind=hard", "signal=nodefs.available"] == MIB
    node.now_s += 20
    second = scraped(("memory.available", "hard", 300 * MIB, 100 * MIB))
    assert second["plimsoll_time_to_line_seconds", "level=node", "line=eviction"] == 60.0


def test_pressure_of_containers(node: PlayedNode) -> None:
    node.cgroups.put(CONTAINER, memory_pressure=PSI, cpu_pressure=PSI.splitlines()[0] + "\n")
    found = Scraped(node)()
    labels = ("container=app", f"id={CONTAINER}", "image=nginx", "name=c1", "namespace=default", "pod=web")
    assert found["container_pressure_memory_waiting_seconds_total", *labels] == 2.5
    assert found["container_pressure_memory_stalled_seconds_total", *labels] == 0.5
    assert found["container_pressure_cpu_waiting_seconds_total", *labels] == 2.5
    assert ("container_pressure_cpu_stalled_seconds_total", *labels) not in found  # before kernel 5.13


def test_memory_qos_sums_exist_in_the_releases_that_have_them(node: PlayedNode) -> None:
    """kubepods has the sum of both classes, burstable its own (02 §6.1): 24Mi − 16Mi and 16Mi."""
    assert reserved_bytes(node.stats) == (8 * MIB, 16 * MIB)
    for profile, memory_qos, there in (("1.36", True, True), ("1.36", False, False), ("1.27", True, False)):
        meters = NodeMeters("n1", profile_named(profile), memory_qos=memory_qos)
        meters.see_memory_qos(8 * MIB, 16 * MIB)
        assert (f"kubelet_memory_qos_node_memory_min_bytes {8 * MIB}\n" in meters.page()) is there
        assert (f"kubelet_memory_qos_node_memory_low_bytes {16 * MIB}\n" in meters.page()) is there


def test_drift_is_what_was_refused_lately() -> None:
    meters = NodeMeters("n1")
    meters.see_repair("pod", "/p", "memory.max", refused=True, at_s=100.0)
    meters.see_repair("pod", "/p", "cpu.max", refused=True, at_s=150.0)
    meters.see_repair("container", "/p/c", "cpu.max", refused=False, at_s=150.0)
    meters.see_drift(since_s=90.0)
    assert 'plimsoll_drift{level="pod"} 2\n' in meters.page()
    assert 'plimsoll_drift{level="container"} 0\n' in meters.page()
    meters.see_repair("pod", "/p", "cpu.max", refused=False, at_s=160.0)
    meters.see_drift(since_s=120.0)  # memory.max was not refused again
    assert 'plimsoll_drift{level="pod"} 0\n' in meters.page()


def test_decisions_are_measured_also_if_they_fail() -> None:
    meters = NodeMeters("n1")
    with meters.deciding("admission"):
        pass
    with pytest.raises(ValueError, match="no"), meters.deciding("resize"):
        raise ValueError("no")
    assert 'plimsoll_decision_duration_seconds_count{decision="admission"} 1\n' in meters.page()
    assert 'plimsoll_decision_duration_seconds_count{decision="resize"} 1\n' in meters.page()
