"""`plimsoll attach` beside a real containerd with NRI, on the machine itself (cgroup v1, cgroupfs)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.linux.processes import oom_score_adj
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import CriResources
from tests.kernel.attach_bench import AttachBench, NriContainerd, ending, skip_reason
from tests.kernel.attach_bursts import check_lower_limits, children
from tests.kernel.attach_kills import KillBench, check_double_kills, check_guarded_kills, check_kills, pod_document
from tests.kernel.containerd import cgroup_parent, containerd_release, crun_problem, running
from tests.kernel.containerd_checks import MIB, SOON_S

BURST = "cpu.cfs_burst_us"
LIMITED = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
GIVEN = CriResources(
    cpu_shares=102, cpu_quota_us=50000, cpu_period_us=100000, memory_limit_bytes=64 * MIB, oom_score_adj=500
)
SLEEPS = ("sleep", "1000")


@pytest.fixture(scope="module")
def daemon(exercised: Callable[[str, str], None]) -> Iterator[NriContainerd]:
    reason = skip_reason()
    if reason:
        pytest.skip(reason)
    if this_host().version != 1:
        pytest.skip("attach on cgroup v1: this host has v2")
    started = NriContainerd(Path(tempfile.mkdtemp(prefix="plimsoll-nri-")), systemd=False, network=False)
    with running(started):
        yield started
    exercised("runtime", f"attach, containerd with NRI, Linux {os.uname().release}, host, cgroup v1, cgroupfs")


@pytest.fixture
async def bench(daemon: NriContainerd, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AttachBench]:
    handler = getattr(request, "param", "")
    if handler == "crun" and (reason := crun_problem()):
        pytest.skip(f"attach with crun: {reason}")
    runtime = CriRuntime(f"unix://{daemon.socket}", handler=handler)
    await runtime.open()
    with cgroup_parent() as root, ending(AttachBench(daemon, runtime, root, tmp_path)) as made:
        yield made
        left = await runtime.seen()
        for container in left.containers:
            await runtime.stop_container(container.id, 0)
            await runtime.remove_container(container.id)
        for sandbox in left.sandboxes:
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()


@pytest.mark.parametrize("bench", ["runc", pytest.param("crun", marks=pytest.mark.long)], indirect=True)
async def test_values_at_create_on_update_after_restarts_and_after_detach(bench: AttachBench) -> None:
    """One story, because each step needs the node of the one before."""
    policy = {"cpuBurstPercent": 20, "repairOomScoreAdj": True}
    await asyncio.to_thread(bench.attach, "enforce", policy)
    first = bench.pod("first", LIMITED)
    await bench.start(first, SLEEPS, GIVEN)
    # A kubelet passes 1000 − 1000 · 32Mi / capacity; this one passed 500, and it was corrected before the start.
    capacity = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = 1000 - 1000 * 32 * MIB // capacity
    assert first.container is not None
    # The NRI of containerd 1.7 has no score: there it is corrected right after the start.
    at_create = containerd_release() >= (2, 0)
    assert not at_create or oom_score_adj(first.container.pid) == wanted
    await bench.settled(lambda: oom_score_adj(first.container.pid) == wanted)  # type: ignore[union-attr]
    await bench.settled(lambda: bench.read(first.container_path, BURST) == "10000")
    assert bench.read(first.cgroup, BURST) in ("0", "10000")  # a pod's cgroup has its quota from the kubelet

    # A resize by the kubelet does not undo it.
    await bench.runtime.update_container(first.container.id, CriResources(cpu_shares=204, memory_limit_bytes=96 * MIB))
    assert bench.read(first.container_path, "memory.limit_in_bytes") == str(96 * MIB)
    assert bench.read(first.container_path, BURST) == "10000"

    # containerd is restarted: the session comes back, and the next container is adjusted.
    bench.daemon.stop()
    await bench.settled(lambda: not bench.status()["connected"])
    await asyncio.to_thread(bench.daemon.start)
    await bench.settled(lambda: bench.status()["connected"])
    second = bench.pod("second", LIMITED)
    await bench.start(second, SLEEPS, GIVEN)
    assert second.container is not None
    assert not at_create or oom_score_adj(second.container.pid) == wanted

    # attach is killed: pods start and resize as without it; the next attach continues.
    bench.end(signal.SIGKILL)
    third = bench.pod("third", LIMITED)
    await bench.start(third, SLEEPS, GIVEN)
    assert third.container is not None
    assert oom_score_adj(third.container.pid) == 500
    await bench.runtime.update_container(third.container.id, CriResources(cpu_shares=204))
    await asyncio.to_thread(bench.attach, "enforce", policy)
    await bench.settled(lambda: bench.read(third.container_path, BURST) == "10000")
    await bench.settled(lambda: oom_score_adj(third.container.pid) == wanted)  # type: ignore[union-attr]
    assert bench.read(first.container_path, BURST) == "10000"

    # detach restores what was there before; the scores that were corrected at create have no earlier value.
    assert bench.end() == 0
    done = await asyncio.to_thread(bench.detach)
    assert {each["outcome"] for each in done} <= {"restored", "already"}
    for pod in (first, second, third):
        assert bench.read(pod.container_path, BURST) == "0"
    kept = [wanted if at_create else 500, 500]
    assert [oom_score_adj(each.container.pid) for each in (first, third)] == kept  # type: ignore[union-attr]

    # … and so does the end of the process, if the policy says so.
    await asyncio.to_thread(bench.attach, "enforce", {**policy, "restoreOnExit": True})
    await bench.settled(lambda: bench.read(third.container_path, BURST) == "10000")
    assert bench.end() == 0
    assert bench.read(third.container_path, BURST) == "0"


async def test_a_lower_cpu_limit_is_accepted_beside_attach_and_after_it(
    bench: AttachBench, exercised: Callable[[str, str], None]
) -> None:
    took_s = await check_lower_limits(bench, 1)
    exercised("attach", f"host, cgroup v1: bursts gone {took_s:.2f} s after SIGKILL")


async def test_in_a_container_the_guard_outlives_attach(tmp_path: Path) -> None:
    """In a PID namespace whose first process is the one of the DaemonSet, with the journal of a container before."""
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("attach on cgroup v1: needs root and a host with v1")
    with cgroup_parent() as root:
        bench = KillBench(root, 2, tmp_path)
        await bench.make()
        before = bench.tree()
        wanted = await bench.wanted()
        await asyncio.to_thread(write_files, tmp_path, root)
        for _ in range(2):
            await asyncio.to_thread(killed_in_a_container, tmp_path, lambda: bench.tree() == wanted)
            assert bench.tree() == before


def killed_in_a_container(directory: Path, attached_to: Callable[[], bool]) -> None:
    words = ["--mode", "enforce", "--policy", "policy.json", "--pods", "pods.json", "--config", "kubelet.json"]
    words += ["--profile", "1.36", "--state-dir", "state", "--nri-socket", "nowhere"]
    module = [sys.executable, "-m"]
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *module, "plimsoll.attach.first_process"]
    with open(directory / "log", "ab") as log:
        command += [*module, "plimsoll", "attach", *words]
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        settled(attached_to, process, directory / "log")
        (first,) = children(process.pid)
        (attached,) = children(first)
        assert len(children(attached)) == 1
        os.kill(attached, signal.SIGKILL)
        assert process.wait(SOON_S) == 128 + signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def settled(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + SOON_S
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.02)


def write_files(directory: Path, root: str) -> None:
    files = {
        "pods.json": {"kind": "List", "items": [pod_document(index) for index in range(2)]},
        "kubelet.json": {"cgroupRoot": root, "cgroupDriver": "cgroupfs", "failCgroupV1": False},
        "policy.json": {"cpuBurstPercent": 20, "memoryQoS": "hard"},
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))


async def test_killed_at_a_write_it_leaves_old_or_new_values_and_detach_restores_them(tmp_path: Path) -> None:
    """Without containerd, on a tree without processes. `./dev prove attach` does it at every write of 50 pods."""
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("attach on cgroup v1: needs root and a host with v1")
    with cgroup_parent() as root:
        bench = KillBench(root, 3, tmp_path)
        await bench.make()
        assert await check_kills(bench, range(1, 8)) >= 14
        assert await check_double_kills(bench, (1, 3, 5)) >= 30
        assert await check_guarded_kills(bench, range(1, 9)) == 8


async def test_observe_once_shows_what_would_be_written_and_changes_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("attach on cgroup v1: needs root and a host with v1")
    with cgroup_parent() as root:
        bench = KillBench(root, 2, tmp_path)
        await bench.make()
        before = bench.tree()
        await asyncio.to_thread(write_files, tmp_path, root)
        words = ["--pods", "pods.json", "--config", "kubelet.json", "--policy", "policy.json", "--profile", "1.36"]
        arguments = [sys.executable, "-m", "plimsoll", "attach", "--mode", "observe", "--once", *words, "-o", "json"]
        said = await asyncio.to_thread(subprocess.run, arguments, cwd=tmp_path, capture_output=True, check=True)
        status = json.loads(said.stdout)
        assert bench.tree() == before
    pending = {(each["level"], each["file"], each["found"], each["wanted"]) for each in status["pending"]}
    assert pending == {("pod", BURST, "0", "10000"), ("container", BURST, "0", "10000")}
    assert len(status["pending"]) == 4
    assert "memoryQoS is ignored: cgroup v1" in status["problems"][0]
