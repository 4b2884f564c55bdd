"""Samples of a played node: figures, rates, what goes away, and the summary made of them. test_host_stats.py has a real one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cgroups.stats.usage import Pressures
from plimsoll.codec.kernel.files import PressureLine, PressureStall
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.node.stats.disk_usage import DiskUsage, file_system, tree_usage
from plimsoll.node.stats.process_usage import process_usage
from plimsoll.node.stats.stats import FIRST_RATE_S, RATE_S, ContainerPlace, NodePlace, PodPlace, Stats, _Rates
from plimsoll.node.stats.summary import summary
from plimsoll.rules.eviction.usage import NO_FS_USAGE, ContainerUsage, FsUsage, disk_parts, disk_usage
from tests.unit.node.played_node import MIB, POD, PODS, PlayedNode


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    return PlayedNode(tmp_path)


def test_a_sample_has_every_figure(node: PlayedNode) -> None:
    found = node.stats.sample()
    (pod,) = found.pods
    assert pod.measured
    assert pod.measured.usage.memory
    assert pod.measured.usage.memory.working_set_bytes == 18 * MIB
    assert pod.measured.cpu_nanocores is None  # nothing to compare with yet
    (container,) = pod.containers
    assert container.measured.usage.cpu
    assert container.measured.usage.cpu.usage_us == 1_000_000
    assert found.node.measured.usage.memory
    assert found.node.measured.usage.memory.usage_bytes == 300 * MIB  # the top: anon and file
    assert found.node.pods
    assert (found.node.most_processes, found.node.processes) == (8000, 345)


def test_the_node_is_the_machine_also_where_eviction_counts_only_its_pods(node: PlayedNode) -> None:
    """As a kubelet's summary: `kubectl top nodes` shows the root cgroup."""
    place = msgspec.structs.replace(node.place, node_path=PODS)  # a declared capacity
    stats = Stats(node.cgroups, place, lambda: node.places, clock=lambda: node.now_s, proc=node.proc)
    memory = stats.sample().node.measured.usage.memory
    assert memory is not None and memory.usage_bytes == 300 * MIB


def test_rates_are_those_of_the_time_between(node: PlayedNode) -> None:
    node.stats.sample()
    node.now_s += 20
    node.cgroups.use(f"{POD}/c1", cpu_us=6_000_000)
    (container,) = node.stats.sample().pods[0].containers
    assert container.measured.cpu_nanocores == 250_000_000


@given(st.lists(st.tuples(st.floats(0.1, 40), st.integers(0, 10_000_000)), min_size=1, max_size=20))
def test_a_rate_covers_ten_seconds_where_there_are_ten(steps: list[tuple[float, int]]) -> None:
    rates, at_s, counted_us = _Rates(), 0.0, 0
    readings = [(at_s, counted_us)]
    assert rates.nanocores("x", at_s, counted_us) is None
    for pause_s, used_us in steps:
        at_s, counted_us = at_s + pause_s, counted_us + used_us
        found = rates.nanocores("x", at_s, counted_us)
        possible = [
            (counted_us - then_us) * 1000 / (at_s - then_s)
            for then_s, then_us in readings
            if at_s - then_s >= RATE_S or then_s == 0.0
        ]
        if at_s < FIRST_RATE_S:
            assert found is None
            continue
        assert found is not None
        assert any(found == pytest.approx(each, abs=1) for each in possible)
        readings.append((at_s, counted_us))


def test_a_reset_counter_has_no_rate() -> None:
    rates = _Rates()
    rates.nanocores("x", 0.0, 500)
    assert rates.nanocores("x", 20.0, 100) is None
    assert rates.nanocores("x", 40.0, 200) == 5000


def test_a_young_sample_is_given_again(node: PlayedNode) -> None:
    first = node.stats.sample()
    node.now_s += 1
    assert node.stats.sample(max_age_s=2) is first
    assert node.stats.sample() is not first


def test_what_went_away_is_left_out_and_let_go(node: PlayedNode) -> None:
    node.stats.sample()
    open_readers = len(node.stats._readers._open)
    gone = ContainerPlace("gone", "c9", f"{POD}/c9")
    node.places = [
        PodPlace("u1", "web", "default", POD, containers=(gone,)),
        PodPlace("u2", "new", "default", "/nowhere"),
    ]
    found = node.stats.sample()
    assert [each.containers for each in found.pods] == [(), ()]
    assert found.pods[1].measured is None
    assert len(node.stats._readers._open) == open_readers - 1
    node.stats.close()
    assert not node.stats._readers._open


async def test_files_are_closed_when_idle(node: PlayedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.node.stats.stats.IDLE_S", 0.01)
    node.stats.sample()
    assert node.stats._readers._open
    async with asyncio.timeout(60):
        while node.stats._readers._open:  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
    assert node.stats.sample().pods[0].containers
    node.stats.close()


def test_beyond_the_fds_there_are_files_are_opened_each_time(node: PlayedNode) -> None:
    node.stats._readers._most = 1
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        found = node.stats.sample()
    assert found.pods[0].containers
    assert len(node.stats._readers._open) == 1
    assert len(os.listdir("/proc/self/fd")) <= before + 11


async def test_usage_in_evictions_words(node: PlayedNode) -> None:
    await node.stats.measure_disks()
    usage = node.stats.sample().pod_usage()["u1"]
    assert (usage.memory_bytes, usage.processes) == (18 * MIB, 4)
    logs, data = tree_usage(str(node.logs)), tree_usage(str(node.volume))
    assert logs
    assert data
    assert usage.containers == (ContainerUsage("app", 8 * MIB, FsUsage(0, 0), logs),)
    assert usage.volumes == {"data": data}
    assert usage.ephemeral_storage_bytes == (logs.used_bytes or 0) + (data.used_bytes or 0)


async def test_what_containers_write_to_their_own_files_is_theirs(node: PlayedNode) -> None:
    """04 §1.2, §6.3: in the ranking, in the sum of the pod and in the summary."""
    written = FsUsage(20 * MIB, 12)

    async def ask() -> Mapping[str, FsUsage]:
        return {"c1": written}

    stats = Stats(node.cgroups, node.place, lambda: node.places, clock=lambda: node.now_s, layers=ask, proc=node.proc)
    assert "usedBytes" not in summary(stats.sample())["pods"][0]["containers"][0]["rootfs"], "not measured yet"
    await stats.measure_disks()
    usage = stats.sample().pod_usage()["u1"]
    (container,) = usage.containers
    logs, data = tree_usage(str(node.logs)), tree_usage(str(node.volume))
    assert logs and data
    assert container.rootfs == written
    assert usage.ephemeral_storage_bytes == 20 * MIB + (logs.used_bytes or 0) + (data.used_bytes or 0)
    pod = lean_pod({"metadata": {"name": "web", "uid": "u1"}, "spec": {"containers": [{"name": "app"}]}})
    parts = disk_parts("nodefs.available", "single")
    assert disk_usage(pod, usage, parts)[0] == 20 * MIB + (logs.used_bytes or 0), "the volume is not in this spec"
    assert disk_usage(pod, usage, disk_parts("imagefs.available", "dedicated")) == (20 * MIB, 12)
    (shown,) = summary(stats.sample())["pods"]
    rootfs = shown["containers"][0]["rootfs"]
    assert (rootfs["usedBytes"], rootfs["inodesUsed"]) == (20 * MIB, 12)
    assert shown["ephemeral-storage"]["usedBytes"] == usage.ephemeral_storage_bytes
    assert "usedBytes" not in summary(stats.sample())["node"]["runtime"]["imageFs"], "what images take is not known"


async def test_the_summary_is_a_kubelets(node: PlayedNode) -> None:
    await node.stats.measure_disks()
    node.stats.sample()
    node.now_s += 10
    node.cgroups.use(f"{POD}/c1", cpu_us=2_000_000, limit=str(64 * MIB))
    found = summary(node.stats.sample())
    own, (pod,) = found["node"], found["pods"]
    at = "2023-11-14T22:13:30Z"
    assert (own["nodeName"], own["startTime"]) == ("n1", "2020-09-13T12:26:40Z")
    assert own["cpu"] == {"time": at, "usageNanoCores": 0, "usageCoreNanoSeconds": 5_000_000_000}
    assert own["memory"] == {
        "time": at,
        "availableBytes": (1 << 30) - 298 * MIB,
        "usageBytes": 300 * MIB,
        "workingSetBytes": 298 * MIB,
        "rssBytes": 150 * MIB,
        "pageFaults": 5,
        "majorPageFaults": 1,
    }
    place = msgspec.structs.replace(node.place, withheld_bytes=512 * MIB)  # HugepageAwareEviction (04 §1.1)
    huge = Stats(node.cgroups, place, lambda: node.places, clock=lambda: node.now_s, proc=node.proc)
    assert summary(huge.sample())["node"]["memory"]["availableBytes"] == (1 << 30) - 298 * MIB - 512 * MIB
    assert own["rlimit"] == {"time": at, "maxpid": 8000, "curproc": 345}
    assert set(own["fs"]) == {
        "time",
        "availableBytes",
        "capacityBytes",
        "usedBytes",
        "inodesFree",
        "inodes",
        "inodesUsed",
    }
    assert set(own["runtime"]) == {"imageFs", "containerFs"}
    system = {each["name"]: each for each in own["systemContainers"]}
    assert system["pods"]["memory"]["availableBytes"] == 800 * MIB - 98 * MIB
    assert pod["podRef"] == {"name": "web", "namespace": "default", "uid": "u1"}
    assert pod["process_stats"] == {"process_count": 4}
    assert "availableBytes" not in pod["memory"]  # no limit
    (container,) = pod["containers"]
    assert container["cpu"] == {"time": at, "usageNanoCores": 100_000_000, "usageCoreNanoSeconds": 2_000_000_000}
    assert container["memory"]["availableBytes"] == 56 * MIB
    assert container["rootfs"]["usedBytes"] == 0
    assert container["logs"]["usedBytes"] >= 10_000
    assert pod["volume"][0]["name"] == "data"
    assert pod["ephemeral-storage"]["usedBytes"] == container["logs"]["usedBytes"] + pod["volume"][0]["usedBytes"]


def test_what_was_never_counted_is_no_zero(node: PlayedNode) -> None:
    (pod,) = summary(node.stats.sample())["pods"]
    assert "volume" not in pod
    assert "usedBytes" not in pod["containers"][0]["logs"]


# --- without cgroups ---


def test_a_kernel_in_memory_leaves_processes_to_be_measured(tmp_path: Path) -> None:
    container = ContainerPlace("app", "c1", "/kubepods/podu1/c1", os.getpid())
    pod = PodPlace("u1", "web", "default", "/kubepods/podu1", containers=(container,))
    place = NodePlace("n1", PODS, str(tmp_path), str(tmp_path))
    system = {"kubelet": os.getpid(), "runtime": 0}
    found = Stats(None, place, lambda: [pod], clock=lambda: 0.0, system=lambda: system).sample()
    assert set(found.node.system) == {"kubelet"}
    (sample,) = found.pods
    assert sample.measured
    own, (each,) = sample.measured.usage, sample.containers
    assert each.measured.usage.memory
    assert own.memory
    assert own.memory.working_set_bytes == each.measured.usage.memory.working_set_bytes
    assert own.memory.usage_bytes > MIB
    assert own.cpu
    assert own.cpu.usage_us
    assert found.node.measured.usage.memory
    assert found.node.measured.usage.cpu
    assert found.node.measured.usage.cpu.usage_us


def test_processes_that_are_gone() -> None:
    assert process_usage(0x7FFF_FFFF) is None
    assert process_usage(0x7FFF_FFFF, deep=True) is None


# --- disks ---


def test_a_directory_is_counted_like_du(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "big").write_bytes(b"x" * 50_000)
    os.link(tmp_path / "a" / "big", tmp_path / "again")
    (tmp_path / "link").symlink_to("/")
    found = tree_usage(str(tmp_path))
    assert found
    assert found.inodes == 4  # itself, a, big, link
    entries = (tmp_path, tmp_path / "a", tmp_path / "a" / "big", tmp_path / "link")
    assert found.used_bytes == sum(os.lstat(each).st_blocks * 512 for each in entries)
    assert tree_usage(str(tmp_path / "none")) is None
    assert file_system(str(tmp_path / "none")) is None


async def test_disks_are_counted_once_a_minute_and_forgotten_when_gone(tmp_path: Path) -> None:
    now_s, path = 0.0, str(tmp_path)
    disks = DiskUsage(lambda: now_s)
    assert disks.of(path) == NO_FS_USAGE
    await disks.refresh([path])
    first = disks.of(path)
    os.mkdir(tmp_path / "more")
    now_s = 59.0
    await disks.refresh([path])
    assert disks.of(path) == first
    now_s = 60.0
    await disks.refresh([path])
    assert disks.of(path).inodes == (first.inodes or 0) + 1
    await disks.refresh([])
    assert disks.of(path) == NO_FS_USAGE


def test_stalls_of_the_node(node: PlayedNode) -> None:
    stalled = PressureStall(PressureLine(1.5, 0.5, 0.1, 2_000), None)
    found = summary(node.stats.sample(), Pressures(cpu=stalled, io=stalled))["node"]
    assert found["cpu"]["psi"]["some"] == {"total": 2_000_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.1}
    assert "full" not in found["cpu"]["psi"]
    assert found["cpu"]["usageCoreNanoSeconds"] > 0
    assert "psi" not in found["memory"]
    assert set(found["io"]) == {"time", "psi"}
