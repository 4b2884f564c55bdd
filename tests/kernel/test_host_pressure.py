"""A real node of 512 MiB on this machine's own kernel (cgroup v1), brought under pressure within its own cgroups."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.node.pressure.evictor import DISK_AGE_S
from plimsoll.rules.quantity import QUANTITIES
from tests.kernel import eviction_storm
from tests.kernel import pressure_checks as checks
from tests.kernel.pressure_node import Document, PressureNode, container, eater, memory, pod, pressure_node, stubborn
from tests.unit.console import run

if os.geteuid() != 0 or this_host().version != 1:
    pytest.skip("needs root on a cgroup v1 host", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("pressure")


@pytest.fixture(scope="module")
def shared_node(
    tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[PressureNode]:
    with pressure_node(tmp_path_factory.mktemp("pressure") / "cluster", checks.SETTINGS) as made:
        exercised("kernel", f"Linux {platform.release()}, cgroup v1, eviction and OOM kills")
        yield made


@pytest.fixture
def node(shared_node: PressureNode) -> Iterator[PressureNode]:
    """Empty and calm before, empty after."""
    checks.calm(shared_node)
    yield shared_node
    shared_node.empty()


@pytest.mark.parametrize("check", checks.MEMORY_CHECKS, ids=lambda check: check.__name__)
def test_check(check: checks.Check, node: PressureNode) -> None:
    check(node)


def test_a_replacement_comes(node: PressureNode, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    checks.all_containers_end_and_a_replacement_comes(node, tmp_path)


def test_kills_that_come_too_fast_for_the_kernels_log(node: PressureNode) -> None:
    """It describes ten in five seconds and only counts the others, whose limit is still reported."""
    names = [f"c{number}" for number in range(14)]
    limit = {"resources": {"limits": {"memory": "16Mi", "cpu": "500m"}}}
    node.create(
        pod("swarm", *(container(each, eater(40), **limit) for each in names), checks.fellow(), restartPolicy="Never")
    )
    kills = node.until(lambda: found if len(found := node.kills_of("swarm")) >= len(names) else [])
    assert sorted(each["container"] for each in kills) == sorted(names)
    assert {each["source"] for each in kills} == {"kernel log", "counters"}
    assert {(each["level"], each["limitBytes"]) for each in kills} == {("container", 16 << 20)}


def test_the_forecast_pod_is_evicted(node: PressureNode) -> None:
    """A pod that cannot start has no statistics, and so would rank first; but there is nothing to evict."""
    stuck = pod("stuck", {"name": "c", "image": "nosuch/image:1"})
    node.create(stuck, pod("over", container("c", eater(60), **memory("10Mi"))), checks.gold())
    node.full("over")
    node.full("gold")
    node.until(lambda: "waiting" in node.container("stuck").get("state", {}))
    found = _forecast(node)
    assert [each["name"] for each in found["decision"]["order"]] == ["over", "gold"]
    assert found["notes"] == ["default/stuck is left out: it does not run, or is being terminated"]
    node.create(pod("grows", container("c", eater(260, checks.PACE), **memory("270Mi"))))
    node.until(lambda: node.is_evicted("over"))
    node.until(lambda: node.condition("MemoryPressure") == "True")  # reported a little later


def test_the_forecast_counts_what_was_just_written(node: PressureNode) -> None:
    """The node's summary keeps what is on disk for a minute."""
    data = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = "read -r _ </data/begin; dd if=/dev/zero of=/data/file bs=1M count=5 2>/dev/null; echo done; sleep 1000"
    begin = f"mkfifo /data/begin; {script}"
    node.create(pod("writes", container("c", ["sh", "-c", begin], **data), volumes=[{"name": "data", "emptyDir": {}}]))
    node.running("writes")
    node.page("stats/summary")
    read_s = time.monotonic()
    (fifo,) = node.until(lambda: list(node.state.glob("node/pods/*/volumes/*/data/begin")))
    fifo.write_text("now\n")
    node.until(lambda: "done" in node.log("writes"))
    node.until(lambda: time.monotonic() - read_s > DISK_AGE_S)  # for so long eviction itself does not measure again
    (place,) = _forecast(node, "--signal", "nodefs.available")["decision"]["order"]
    assert place["usage"] >= 5 << 20


def _forecast(node: PressureNode, *words: str) -> Document:
    asked = ("explain", "eviction-order", "--on", "n1", "-o", "json", "--kubeconfig", str(node.kubeconfig), *words)
    return dict(json.loads(run(*asked).out))


# --- nodes that are configured otherwise ---


@pytest.fixture
def otherwise(tmp_path: Path) -> Iterator[Callable[..., PressureNode]]:
    stack = []

    def start(settings: dict[str, object], extras: dict[str, object] | None = None) -> PressureNode:
        made = pressure_node(tmp_path / "cluster", settings, extras)
        stack.append(made)
        return made.__enter__()

    yield start
    for made in stack:
        made.__exit__(None, None, None)


def test_all_pods_together(otherwise: Callable[..., PressureNode]) -> None:
    node = otherwise({"evictionHard": {"nodefs.available": "1Mi"}})
    checks.a_kill_at_the_limit_of_all_pods_is_reported_as_such(node)
    assert node.condition("MemoryPressure") == "False"


def test_a_soft_threshold_waits_for_its_grace(otherwise: Callable[..., PressureNode]) -> None:
    grace_s = 20  # long enough for a busy machine to start a pod and see the condition meanwhile
    node = otherwise(
        {
            "evictionHard": {"memory.available": "20Mi"},
            "evictionSoft": {"memory.available": "200Mi"},
            "evictionSoftGracePeriod": {"memory.available": f"{grace_s}s"},
            "evictionMinimumReclaim": {"memory.available": "150Mi"},
            "evictionMaxPodGracePeriod": 5,
            "evictionPressureTransitionPeriod": "1s",
        }
    )
    # Above the threshold for less than its grace period: no pod is evicted, but the condition is set at once.
    node.create(pod("brief", container("c", eater(330), **memory("10Mi")), terminationGracePeriodSeconds=1))
    full_s = node.full("brief")
    node.until(lambda: node.condition("MemoryPressure") == "True")
    assert not node.is_evicted("brief")
    assert time.monotonic() - full_s < grace_s
    node.ask("DELETE", "/api/v1/namespaces/default/pods/brief?gracePeriodSeconds=1")
    node.until(lambda: not node.pod("brief"))
    node.until(lambda: node.condition("MemoryPressure") == "False")
    assert not node.page("pressure")["decisions"]
    # Longer: the larger one is evicted. That leaves less than threshold and minimum reclaim together, so a second follows.
    node.create(*(pod(name, container("c", eater(mib), **memory("10Mi"))) for name, mib in (("a", 110), ("b", 220))))
    up_s, full_s = (max(node.said(name, what) for name in "ab") for what in ("up", "full"))  # crossed in between
    node.until(lambda: node.is_evicted("b"))
    term_s = node.said("b", "term")
    assert term_s - up_s >= grace_s and term_s - full_s < grace_s + 15
    assert not node.is_evicted("a")
    decision = node.page("pressure")["decisions"][-1]
    assert (decision["hard"], decision["graceS"]) == (False, 2.0)  # the pod's own, below what the node allows


def test_a_node_reports_its_signals(otherwise: Callable[..., PressureNode]) -> None:
    """What is available now, and what only the node knows: process numbers, and our own grace setting."""
    node = otherwise(
        {"evictionHard": {"memory.available": "100Mi", "pid.available": "50%"}}, {"evictionHardGraceSeconds": 7}
    )
    node.until(lambda: node.page("pressure")["signals"])
    node.create(pod("web", container("c", eater(60)), terminationGracePeriodSeconds=30))
    node.full("web")
    signals = {each["signal"]: each for each in node.page("pressure")["signals"]}
    assert QUANTITIES[signals["memory.available"]["available"]].value < (512 - 60) << 20
    found = _forecast(node, "--signal", "pid.available", "--available", "100")
    assert found["met"] is True
    assert found["decision"]["threshold"] == signals["pid.available"]["thresholds"][0]["value"]
    assert found["decision"]["graceS"] == 7


def test_minimum_reclaim_asks_for_more(otherwise: Callable[..., PressureNode]) -> None:
    node = otherwise(
        {
            "evictionHard": {"memory.available": "100Mi"},
            "evictionMinimumReclaim": {"memory.available": "200Mi"},
            "evictionPressureTransitionPeriod": "1s",
        }
    )
    node.create(*(pod(name, container("c", eater(mib), **memory("5Mi"))) for name, mib in (("a", 90), ("b", 120))))
    node.full("a")
    node.full("b")
    node.create(pod("c", container("c", eater(230, 100), **memory("5Mi"))))
    node.until(lambda: node.is_evicted("c"))
    node.until(lambda: node.is_evicted("b"))  # 512 − 230 is enough for the threshold, not for 300
    checks.untouched(node, "a")


def test_at_once_without_grace(otherwise: Callable[..., PressureNode]) -> None:
    """A pod that ignores TERM has two seconds by Kubernetes' rules and none by ours: it gets no SIGTERM."""
    node = otherwise(checks.SETTINGS, {"evictionHardGraceSeconds": 0})
    node.create(pod("hog", container("c", stubborn(500, 100), **memory("10Mi")), terminationGracePeriodSeconds=30))
    node.until(lambda: node.is_evicted("hog"))
    state = node.container("hog")["state"]["terminated"]
    assert state["exitCode"] == 137
    assert node.page("pressure")["decisions"][-1]["graceS"] == 0.0
    said = node.log("hog")
    assert said.startswith("up ")
    assert "term" not in said


def test_an_agent_that_was_killed_during_an_eviction_waits_for_its_victim(
    otherwise: Callable[..., PressureNode],
) -> None:
    """The victim takes its whole grace period, and no other pod is evicted for the memory that it still has."""
    node = otherwise(checks.SETTINGS, {"evictionHardGraceSeconds": 20})  # for two starts of an agent
    node.create(*(pod(name, container("c", eater(20), **memory("40Mi"))) for name in ("calm", "quiet")))
    node.full("calm")
    node.full("quiet")
    node.create(pod("hog", container("c", stubborn(390), **memory("5Mi")), terminationGracePeriodSeconds=30))
    for _ in range(2):
        node.said("hog", "term")
        node.kill_node()
        node.start_again()
        assert (node.cgroup("hog", "c") / "cgroup.procs").read_text(), "it was gone before it could be waited for"
    node.until(lambda: node.is_evicted("hog"))
    node.until(lambda: node.condition("MemoryPressure") == "False")
    checks.untouched(node, "calm", "quiet")
    assert [each["victim"]["name"] for each in node.page("pressure")["decisions"]] == ["hog"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own where the node's state will be."""
    place = tmp_path / "cluster" / "node"
    place.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,nr_inodes=4000,mode=700", "small", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


FILLS = {
    "bytes": "dd if=/dev/zero of=/data/file bs=1M count=70 2>/dev/null; sleep 1000",
    "inodes": "i=0; while [ $i -lt 3500 ]; do : > /data/$i; i=$((i+1)); done; sleep 1000",
}


@pytest.mark.parametrize("what", ["bytes", pytest.param("inodes", marks=pytest.mark.long)])
def test_disk_pressure(what: str, small_disk: Path, tmp_path: Path) -> None:
    settings = {
        "evictionHard": {"nodefs.available": "40%", "nodefs.inodesFree": "30%"},
        "evictionPressureTransitionPeriod": "8s",
    }
    made = PressureNode(tmp_path / "cluster", settings, {}, "documents")
    try:
        made.start()
        data = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        volume = {"volumes": [{"name": "data", "emptyDir": {}}]}
        made.create(pod("calm", container("c", ["sleep", "1000"], **data), **volume))
        made.running("calm")
        made.create(pod("filler", container("c", ["sh", "-c", FILLS[what]], **data), **volume))
        made.until(lambda: made.is_evicted("filler"))
        resource = "ephemeral-storage" if what == "bytes" else "inodes"
        assert made.status("filler")["message"].startswith(
            f"The node was low on resource: {resource}. Threshold quantity: "
        )
        assert made.until(lambda: "node.kubernetes.io/disk-pressure:NoSchedule" in made.taints())
        checks.untouched(made, "calm")
        made.until(lambda: made.condition("DiskPressure") == "False")
        made.create(pod("later", container("c", ["sleep", "1000"])))
        made.running("later")
    finally:
        made.close()


def test_process_pressure(otherwise: Callable[..., PressureNode]) -> None:
    """The machine's process numbers: as many threads as bring what is left below a threshold just under it."""
    most = min(int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
    used = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    node = otherwise(
        {"evictionHard": {"pid.available": str(most - used - 700)}, "evictionPressureTransitionPeriod": "2s"}
    )
    threads = (
        "import threading, time\nthreading.stack_size(65536)\n"
        "for _ in range(1400): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\ntime.sleep(1000)"
    )
    node.create(pod("calm", container("c", ["sleep", "1000"])))
    node.running("calm")
    node.create(pod("many", container("c", ["/usr/bin/python3", "-S", "-I", "-c", threads])))
    node.until(lambda: node.is_evicted("many"))
    assert node.status("many")["message"].startswith("The node was low on resource: pids. Threshold quantity: ")
    checks.untouched(node, "calm")
    node.until(lambda: node.condition("PIDPressure") == "False")


def test_a_volume_above_its_own_limit(otherwise: Callable[..., PressureNode]) -> None:
    node = otherwise(checks.SETTINGS)
    data = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = "dd if=/dev/zero of=/data/file bs=1M count=20 2>/dev/null; sleep 1000"
    volume = {"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "10Mi"}}]}
    node.create(pod("greedy", container("c", ["sh", "-c", script], **data), **volume))
    node.until(lambda: node.is_evicted("greedy"))
    said = node.status("greedy")
    assert said["message"] == 'Usage of EmptyDir volume "data" exceeds the limit "10Mi". '
    assert not [each for each in said["conditions"] if each["type"] == "DisruptionTarget"]


def test_nothing_is_lost_when_the_agent_is_killed_during_evictions(tmp_path: Path) -> None:
    """A few of them; `./dev prove evictions` makes a hundred."""
    counts, faults = eviction_storm.run(tmp_path, seed=7, evictions=5)
    assert not faults, "\n".join(faults)
    assert counts["evictions"] == 5
    assert counts["kills"] >= 2
    assert counts["kills_beside_a_victim"] >= 1
    assert counts["visitors"] > 5
