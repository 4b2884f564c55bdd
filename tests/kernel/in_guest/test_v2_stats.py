"""Measuring a node on cgroup v2, in a guest: the top without memory.current, throttling, OOM kills, what goes away."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.node.stats.prometheus import cadvisor_page
from plimsoll.node.stats.stats import ContainerPlace, NodePlace, PodPlace, Stats
from tests.kernel.in_guest.test_v2_tree import BUSY, HOG, MIB, ROOT, put, started

PODS = "/plimsoll-stats"
POD = f"{PODS}/pod1"
APP = f"{POD}/app"


@pytest.fixture
def stats(tmp_path: Path) -> Iterator[Stats]:
    put("/", "cgroup.subtree_control", "+memory +cpu +pids")
    for path in (PODS, POD):
        Path(f"{ROOT}{path}").mkdir()
        put(path, "cgroup.subtree_control", "+memory +cpu +pids")
    Path(f"{ROOT}{APP}").mkdir()
    put(APP, "memory.max", 32 * MIB)
    put(APP, "cpu.max", "20000 100000")
    pod = PodPlace("u1", "web", "default", POD, containers=(ContainerPlace("app", "app", APP),))
    place = NodePlace("n1", PODS, str(tmp_path), str(tmp_path))
    made = Stats(open_cgroupfs(this_host()), place, lambda: [pod], clock=time.time)
    try:
        yield made
    finally:
        made.close()
        for path in (APP, POD, PODS):
            if Path(f"{ROOT}{path}").exists():
                Path(f"{ROOT}{path}").rmdir()


def test_everything_is_measured(stats: Stats) -> None:
    hog = started(APP, sys.executable, "-S", "-c", HOG)
    assert hog.wait(60) != 0
    busy = started(APP, sys.executable, "-S", "-c", BUSY)
    try:
        found = stats.sample()
        deadline = time.monotonic() + 60
        while found.pods[0].containers[0].measured.cpu_nanocores is None and time.monotonic() < deadline:
            time.sleep(0.1)
            found = stats.sample()
    finally:
        busy.kill()
        busy.wait()
    node = found.node.measured.usage
    assert node.memory
    assert node.memory.usage_bytes > MIB  # anon and file of the top
    assert node.cpu
    assert node.cpu.usage_us
    (container,) = found.pods[0].containers
    usage = container.measured.usage
    assert usage.memory
    assert usage.memory.limit_bytes == 32 * MIB
    assert usage.events_local
    assert (usage.events_local.oom_kill or 0) >= 1
    assert usage.cpu
    assert (usage.cpu.throttled_periods or 0) > 0
    assert container.measured.cpu_nanocores
    assert 20_000_000 < container.measured.cpu_nanocores < 400_000_000  # of the 200 that it is given
    assert found.pod_usage()["u1"].processes
    read = stats.scraped(found)
    limit = read[APP].cpu_limit
    assert limit and (limit.quota_us, limit.period_us) == (20000, 100000)
    text = "".join(cadvisor_page(found, read))
    assert f'container_spec_cpu_quota{{container="app",id="{APP}"' in text


def test_a_cgroup_that_goes_is_left_out(stats: Stats) -> None:
    assert stats.sample().pods[0].containers
    Path(f"{ROOT}{APP}").rmdir()
    assert stats.sample().pods[0].containers == ()
    Path(f"{ROOT}{APP}").mkdir()  # another one by the same name
    assert stats.sample().pods[0].containers
