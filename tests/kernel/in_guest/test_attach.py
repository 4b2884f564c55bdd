"""`plimsoll attach` on cgroup v2, in a guest: the values are in the kernel at every level, stay there, and protect."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.attach.detach import SilentPlugin
from plimsoll.attach.journal import GUARD_LOCK
from plimsoll.audit.attached import STATE_DIR
from plimsoll.linux.files.file_lock import take
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import CriResources
from plimsoll.runtime.nri import messages as m
from plimsoll.runtime.nri.plugin import NriSession
from tests.kernel.attach_bench import AttachBench, NriContainerd, Pod, containerd_release, ending
from tests.kernel.attach_bursts import check_lower_limits
from tests.kernel.attach_kills import KillBench, check_double_kills, check_guarded_kills, check_kills
from tests.kernel.containerd import cgroup_parent, running
from tests.kernel.containerd_checks import MIB
from tests.kernel.guest import GUEST_VARIABLE, JOB_VARIABLE

SYSTEMD = "systemd" in os.environ[GUEST_VARIABLE]
HANDLER = os.environ.get("PLIMSOLL_CRI_HANDLER", "")
ROOT = "/plimsolltest"
BURSTABLE = {"requests": {"memory": "48Mi"}, "limits": {"memory": "128Mi"}}
GUARANTEED = {"limits": {"cpu": "100m", "memory": "64Mi"}}
GIVEN = CriResources(cpu_shares=2, memory_limit_bytes=128 * MIB, oom_score_adj=900)
# 48Mi + (128Mi − 48Mi) · 0.9 = 120Mi; the kubelet's formula, 02 §6.1
HIGH = str(120 * MIB)
POLICY = {"memoryQoS": "tiered", "memoryThrottlingFactor": 0.9, "oomGroup": "container", "memoryReserve": "64Mi"}
# What the container itself finds when it begins, and then a pause.
SHOWS = ("sh", "-c", "cat /sys/fs/cgroup/memory.low /sys/fs/cgroup/memory.high; echo ready; sleep 1000")
# Page cache in the container's own file system, which is on the disk.
CACHES = ("sh", "-c", "dd if=/dev/zero of=/f bs=1M count=40; sync; echo ready; sleep 1000")
# More than there is room for, each page twice, so that it is not the first to be reclaimed.
_STREAM = "dd if=/dev/zero of=/g bs=1M count=120; sync; cat /g /g /g >/dev/null; echo ready; sleep 1000"
STREAMS = ("sh", "-c", _STREAM)


@pytest.fixture(scope="module")
def daemon() -> Iterator[NriContainerd]:
    started = NriContainerd(Path(tempfile.mkdtemp(prefix="nri-", dir="/scratch")), systemd=SYSTEMD, network=False)
    with running(started):
        yield started


@pytest.fixture
async def bench(daemon: NriContainerd, tmp_path: Path) -> AsyncIterator[AttachBench]:
    runtime = CriRuntime(daemon.socket, handler=HANDLER)
    await runtime.open()
    with ending(AttachBench(daemon, runtime, ROOT, tmp_path, systemd=SYSTEMD)) as made:
        yield made
    await asyncio.to_thread(made.detach)  # what it leaves at kubepods and the classes would protect the next pods
    left = await runtime.seen()
    for container in left.containers:
        await runtime.stop_container(container.id, 0)
        await runtime.remove_container(container.id)
    for sandbox in left.sandboxes:
        await runtime.remove_sandbox(sandbox.id)
    await runtime.close()


def measured(text: str) -> None:
    """For the report of the guest."""
    with open(Path(os.environ[JOB_VARIABLE], "measured"), "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


async def first_lines(bench: AttachBench, pod: Pod) -> list[str]:
    assert pod.container is not None
    await bench.logged(pod.container, "ready")
    return [line.split(" F ")[1] for line in bench.runtime.log_file(pod.container).read_text().splitlines()]


def memory(bench: AttachBench, path: str) -> dict[str, str]:
    return {file: bench.read(path, f"memory.{file}") for file in ("min", "low", "high", "oom.group")}


async def test_every_level_holds_and_detach_restores(bench: AttachBench) -> None:
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    burstable, guaranteed = bench.pod("burstable", BURSTABLE), bench.pod("guaranteed", GUARANTEED)
    await bench.start(burstable, SHOWS, GIVEN)
    assert (await first_lines(bench, burstable))[:2] == [str(48 * MIB), HIGH]  # before the first instruction
    await bench.start(guaranteed, SHOWS, CriResources(cpu_shares=102, memory_limit_bytes=64 * MIB))
    safe = str(64 * MIB * 90 // 100 // 4096 * 4096)  # memory.min leaves room for page cache
    levels = {
        burstable.container_path: {"low": str(48 * MIB), "high": HIGH, "oom.group": "1", "min": "0"},
        burstable.cgroup: {"low": str(48 * MIB), "min": "0", "high": "max", "oom.group": "0"},
        bench.level("burstable"): {"low": str(48 * MIB), "min": "0", "high": "max", "oom.group": "0"},
        guaranteed.container_path: {"min": safe, "low": "0", "high": "max", "oom.group": "1"},
        guaranteed.cgroup: {"min": safe, "low": "0", "high": "max", "oom.group": "0"},
        bench.level(): {"min": safe, "low": str(48 * MIB), "high": "max", "oom.group": "0"},
    }

    def differing() -> dict[str, Any]:
        found = {path: memory(bench, path) for path in levels}
        return {path: (found[path], wanted) for path, wanted in levels.items() if found[path] != wanted}

    await bench.settled(lambda: not differing())

    # A kubelet's resize, with the memory.high that a kubelet without Memory QoS sends.
    assert burstable.container is not None
    update = CriResources(cpu_shares=4, memory_limit_bytes=160 * MIB, unified={"memory.high": "max"})
    await bench.runtime.update_container(burstable.container.id, update)
    assert bench.read(burstable.container_path, "memory.max") == str(160 * MIB)
    assert bench.read(burstable.container_path, "memory.high") == HIGH
    assert bench.read(burstable.container_path, "memory.low") == str(48 * MIB)

    if SYSTEMD:  # values of the levels above are properties of their units
        for command in ("daemon-reload", "daemon-reexec"):
            await asyncio.to_thread(subprocess.run, ["systemctl", command], check=True, timeout=120)
            kept = {path: wanted for path, wanted in levels.items() if not path.endswith(".scope")}
            assert {path: memory(bench, path) for path in kept} == kept, command
        await bench.settled(lambda: not differing())

    # A person writes a value: it is written again, and counted.
    (bench.directory(burstable.cgroup, "memory.low") / "memory.low").write_text("0")
    bench.show(bench.pod("other", {}))  # any event makes it look
    await bench.settled(lambda: not differing())
    await bench.settled(lambda: sum(bench.status()["reasserts"].values()) >= 1)  # published after the writes

    # attach and containerd are killed and come back.
    bench.end(signal.SIGKILL)
    bench.daemon.stop(signal.SIGKILL)
    await asyncio.to_thread(bench.daemon.start)
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    await bench.settled(lambda: not differing())

    bench.end(signal.SIGKILL)
    done = await asyncio.to_thread(bench.detach)
    assert {each["outcome"] for each in done} <= {"restored", "already"}, done
    before = {"min": "0", "low": "0", "high": "max", "oom.group": "0"}
    assert {path: memory(bench, path) for path in levels} == dict.fromkeys(levels, before), bench.said()
    # … and a later resize does not bring them back: the runtime has forgotten them too.
    await bench.runtime.update_container(burstable.container.id, CriResources(memory_limit_bytes=144 * MIB))
    left = memory(bench, burstable.container_path)
    measured(f"after detach and an update by the kubelet, containerd {containerd_release()}: {left}")
    assert left == before


async def test_a_value_that_only_the_runtime_remembers_is_restored(bench: AttachBench) -> None:
    """Two attaches that do not meet the runtime write other values; then the kubelet updates the container. Another
    container starts only after detach."""
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    pod = bench.pod("remembered", BURSTABLE)
    containers = pod.document["spec"]["containers"]
    containers.append({**containers[0], "name": "late"})
    bench.show(pod)
    await bench.start(pod, SHOWS, GIVEN)
    assert pod.container is not None and pod.spec is not None
    assert bench.read(pod.container_path, "memory.high") == HIGH
    await bench.settled(lambda: bench.read(pod.cgroup, "memory.low") == str(2 * 48 * MIB))
    spec = await bench.container("late", SHOWS, resources=GIVEN)
    late = await bench.runtime.make_container(pod.spec, pod.sandbox_id, spec)
    bench.end(signal.SIGKILL)
    running = {"name": "main", "containerID": f"containerd://{pod.container.id}", "state": {"running": {}}}
    pod.document["status"] = {"containerStatuses": [running]}
    bench.show(pod)
    for factor in (0.5, 0.3):
        changed = POLICY | {"memoryThrottlingFactor": factor}
        nowhere = ("--nri-socket", str(bench.work / "nowhere"))
        await asyncio.to_thread(bench.attach, "enforce", changed, *nowhere, wait=False)
        # 48Mi + (128Mi − 48Mi) · factor
        high = str((48 * MIB + int(80 * MIB * factor)) // 4096 * 4096)
        await bench.settled(lambda high=high: bench.read(pod.container_path, "memory.high") == high)
        bench.end(signal.SIGKILL)
    await bench.runtime.update_container(pod.container.id, CriResources(memory_limit_bytes=144 * MIB))
    assert bench.read(pod.container_path, "memory.high") == HIGH
    done = await asyncio.to_thread(bench.detach)
    assert {each["outcome"] for each in done} <= {"restored", "already", "gone"}, done
    before = {"min": "0", "low": "0", "high": "max", "oom.group": "0"}
    await bench.runtime.start_container(late)
    late_path = f"{pod.cgroup}/{pod.scope(late)}"
    levels = (pod.container_path, late_path, pod.cgroup, bench.level("burstable"), bench.level())
    assert {path: memory(bench, path) for path in levels} == dict.fromkeys(levels, before), bench.said()
    for container_id in (pod.container.id, late):
        await bench.runtime.update_container(container_id, CriResources(memory_limit_bytes=160 * MIB))
    assert {path: memory(bench, path) for path in levels} == dict.fromkeys(levels, before), bench.said()


async def test_whether_the_runtime_applies_unified_on_update(bench: AttachBench) -> None:
    """The measured answer of this containerd."""
    pod = bench.pod("plain", BURSTABLE)
    await bench.start(pod, SHOWS, GIVEN)
    assert pod.container is not None
    session = NriSession(bench.daemon.nri_socket, "asks", "90", SilentPlugin())
    running_session = asyncio.create_task(session.once())
    assert await session.ready(60)
    failed = await session.update([m.unified_update(pod.container.id, {"memory.high": str(100 * MIB)})])
    applied = bench.read(pod.container_path, "memory.high") == str(100 * MIB)
    running_session.cancel()
    await asyncio.gather(running_session, return_exceptions=True)
    measured(f"unsolicited update with unified, containerd {containerd_release()}: {applied=} {failed=}")
    assert applied and not failed


async def test_a_lower_cpu_limit_is_accepted_beside_attach_and_after_it(bench: AttachBench) -> None:
    took_s = await check_lower_limits(bench, 2)
    measured(f"bursts gone {took_s:.2f} s after SIGKILL")


class Owner(SilentPlugin):
    """Another plugin, which sets memory.high."""

    async def created(self, pod: m.PodSandbox, container: m.Container) -> m.ContainerAdjustment | None:  # type: ignore[override]
        unified = m.LinuxResources(unified={"memory.high": str(100 * MIB)})
        return m.ContainerAdjustment(m.LinuxContainerAdjustment(unified))


async def test_a_file_of_another_plugin_is_left_to_it_and_the_container_starts(bench: AttachBench) -> None:
    """Two plugins that set the same file would fail the container."""
    other = NriSession(bench.daemon.nri_socket, "owner", "50", Owner())
    running_session = asyncio.create_task(other.once())
    assert await other.ready(60)
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    pod = bench.pod("owned", BURSTABLE)
    await bench.start(pod, SHOWS, GIVEN)
    assert (await first_lines(bench, pod))[:2] == [str(48 * MIB), str(100 * MIB)]
    assert pod.container is not None
    await bench.runtime.update_container(pod.container.id, CriResources(memory_limit_bytes=144 * MIB))
    assert bench.read(pod.container_path, "memory.high") == str(100 * MIB)
    running_session.cancel()
    await asyncio.gather(running_session, return_exceptions=True)


def limit(bench: AttachBench, value: str) -> None:
    """memory.max above kubepods, as a property where systemd would reset the file."""
    if SYSTEMD:
        bounded = "infinity" if value == "max" else value
        words = ["systemctl", "set-property", "--runtime", f"{ROOT.strip('/')}.slice", f"MemoryMax={bounded}"]
        subprocess.run(words, check=True, timeout=120)
        assert bench.read(f"{ROOT}.slice", "memory.max") == value
    else:
        (bench.directory(ROOT, "memory.max") / "memory.max").write_text(value)


async def kept_cache(bench: AttachBench, name: str) -> int:
    """The page cache of a Burstable pod within its request, after another pod has read much more than there is room."""
    for path in (bench.level(), bench.level("burstable")):  # systemd mounts cgroups with memory_recursiveprot
        if bench.directory(path, "memory.low").exists() and name == "without":
            assert (bench.read(path, "memory.min"), bench.read(path, "memory.low")) == ("0", "0"), path
    keeper, stream = bench.pod(f"keeps-{name}", BURSTABLE), bench.pod(f"streams-{name}", {})
    await bench.start(keeper, CACHES, GIVEN)
    await first_lines(bench, keeper)
    await asyncio.to_thread(limit, bench, str(80 * MIB))
    try:
        await bench.start(stream, STREAMS, CriResources(cpu_shares=2))
        await first_lines(bench, stream)
        stat = bench.read(keeper.container_path, "memory.stat")
    finally:
        await asyncio.to_thread(limit, bench, "max")
    for pod in (keeper, stream):
        assert pod.container is not None
        await bench.runtime.stop_container(pod.container.id, 0)
        await bench.runtime.remove_container(pod.container.id)
        await bench.runtime.remove_sandbox(pod.sandbox_id)
        (bench.manifests / f"{pod.uid}.json").unlink()
    return int(re.findall(r"^file (\d+)", stat, re.M)[0])


async def test_protected_page_cache_is_kept_with_attach_and_lost_without(bench: AttachBench) -> None:
    without = await kept_cache(bench, "without")
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    with_attach = await kept_cache(bench, "with")
    measured(
        f"page cache of 40 MiB after the stream: without {without / MIB:.1f} MiB, with {with_attach / MIB:.1f} MiB"
    )
    assert with_attach >= 36 * MIB
    assert without <= 20 * MIB


async def test_killed_at_a_write_it_leaves_old_or_new_values_and_detach_restores_them(tmp_path: Path) -> None:
    """Memory files of every level, in the kernel; `./dev prove attach` has more pods."""
    if SYSTEMD:
        pytest.skip("the tree of this test has no units")
    with cgroup_parent() as root:
        kills = KillBench(root, 2, tmp_path)
        await kills.make()
        found = await check_kills(kills, range(1, 16))
        measured(f"killed {found} times at writes to a tree of 2 pods, restored each time")
        pairs = await check_double_kills(kills, (1, 3, 5, 9))
        measured(f"killed {pairs} times twice in a row, restored each time")
        guarded = await check_guarded_kills(kills, range(1, 24, 4))
        measured(f"killed {guarded} times beside a guard, no burst left each time")


UNIT = "plimsoll-attach.service"


def systemctl(*words: str) -> str:
    done = subprocess.run(["systemctl", "--no-pager", *words], capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


def started_unit(tmp_path: Path, words: str) -> int:
    """The pid of attach as a unit. The pods are those of `tmp_path/pods`."""
    if not SYSTEMD:
        pytest.skip("needs systemd")
    (tmp_path / "kubelet.json").write_text(json.dumps({"cgroupDriver": "systemd"}))
    (tmp_path / "pods").mkdir(exist_ok=True)
    words += f" --pods {tmp_path}/pods --config {tmp_path}/kubelet.json --profile 1.36"
    program = Path(sys.executable).with_name("plimsoll")
    text = (Path(__file__).resolve().parents[3] / "deploy/systemd" / UNIT).read_text()
    text = text.replace("/usr/local/bin/plimsoll", str(program)).replace("--mode observe", words)
    # The files of this test are in /tmp, and the guest has no journal.
    text = text.replace("PrivateTmp=yes", f"PrivateTmp=no\nStandardError=append:{tmp_path}/log")
    text = text.replace("[Unit]", "[Unit]\nDefaultDependencies=no")  # the guest has few units
    Path("/run/systemd/system", UNIT).write_text(text)
    systemctl("daemon-reload")
    (STATE_DIR / "status.json").unlink(missing_ok=True)
    began = systemctl("start", UNIT)
    unit_settled(tmp_path, (STATE_DIR / "status.json").exists, began)
    return main_pid()


def unit_settled(tmp_path: Path, condition: Callable[[], bool], began: str = "") -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        said = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
        assert time.monotonic() < deadline_s, f"{began}{systemctl('status', UNIT)}{said}"
        time.sleep(0.1)


def main_pid() -> int:
    return int(systemctl("show", UNIT, "-p", "MainPID", "--value"))


def test_the_unit_starts_in_its_sandbox(tmp_path: Path) -> None:
    pid = started_unit(tmp_path, "--mode observe")
    found = Path(f"/proc/{pid}/status").read_text()
    bounding = int(re.findall(r"CapBnd:\t(\w+)", found)[0], 16)
    assert bounding == 1 << 24 | 1 << 1  # CAP_SYS_RESOURCE and CAP_DAC_OVERRIDE
    assert "Seccomp:\t2" in found and "NoNewPrivs:\t1" in found
    assert json.loads((STATE_DIR / "status.json").read_bytes())["mode"] == "observe"
    systemctl("stop", UNIT)
    assert systemctl("is-active", UNIT).strip() == "inactive"


def test_the_unit_is_killed_and_its_guard_may_finish(tmp_path: Path) -> None:
    """systemd sends SIGTERM to what is left of the unit, and starts attach again only when that has ended."""
    if not SYSTEMD:
        pytest.skip("needs systemd")
    pod = "kubepods-burstable-podu1.slice"
    words = ["systemd-run", "--no-block", "--slice", pod, "-p", "DefaultDependencies=no", "sleep", "1000"]
    subprocess.run(words, check=True, timeout=120)
    subprocess.run(["systemctl", "set-property", "--runtime", pod, "CPUQuota=50%"], check=True, timeout=120)
    burst = Path("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice", pod, "cpu.max.burst")
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}
    spec = {"containers": [{"name": "main", "image": "i", "resources": resources}]}
    document = {"kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u1"}, "spec": spec}
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/p.json").write_text(json.dumps(document))
    (tmp_path / "policy.json").write_text(json.dumps({"cpuBurstPercent": 80}))
    try:
        pid = started_unit(tmp_path, f"--mode enforce --policy {tmp_path}/policy.json")
        unit_settled(tmp_path, lambda: burst.read_text() == "40000\n")
        os.kill(pid, signal.SIGKILL)
        lock = take(STATE_DIR / GUARD_LOCK, 60)
        assert burst.read_text() == "0\n", (tmp_path / "log").read_text()
        os.close(lock)
        unit_settled(tmp_path, lambda: main_pid() not in (0, pid) and burst.read_text() == "40000\n")
    finally:
        systemctl("stop", UNIT)
    assert burst.read_text() == "0\n"
