"""What the engine's values do on cgroup v1, on the machine itself: what is killed, limited, refused.

The pods of every test have 256 MiB together, the limit of their kubepods. See in_guest/test_effects.py for v2.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import Hierarchies, this_host
from plimsoll.cgroups.engine.executor import StepError
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.processes import oom_score_adj
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from tests.kernel.effects import (
    MIB,
    a_busy_loop_is_throttled,
    cold_file,
    new_node,
    pod,
    requests_split_a_cpu,
    the_offender_is_killed,
)
from tests.unit.console import run

LIMIT = {"limits": {"memory": "40Mi"}}
BEFORE, AFTER = {"limits": {"memory": "64Mi"}}, {"limits": {"memory": "24Mi"}}
BYTES = "memory.limit_in_bytes"
NOT_HERE = 77
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def host(host_v1: Hierarchies, exercised: Callable[[str, str], None]) -> Iterator[None]:
    yield
    exercised("kernel", f"Linux {os.uname().release}, host, cgroup v1, cgroupfs: effects")


def test_a_memory_limit_kills_exactly_the_offender(tmp_path: Path) -> None:
    web, other = pod("web", app=LIMIT, side=LIMIT), pod("other", app=LIMIT)
    with new_node(tmp_path) as node:
        node.add(web, other)
        fellow = the_offender_is_killed(node, web, other)
        assert node.kills(web, "app") == 1
        assert fellow.lives()


def test_a_cpu_limit_holds_a_busy_loop(tmp_path: Path) -> None:
    busy = pod("busy", app={"limits": {"cpu": "200m"}})
    with new_node(tmp_path) as node:
        node.add(busy)
        # Above everything else on this machine, so that only the quota limits it.
        asyncio.run(node.driver.write(node.root, "cpu.shares", "65536"))
        a_busy_loop_is_throttled(node, busy)


def test_cpu_requests_split_a_cpu(tmp_path: Path) -> None:
    with new_node(tmp_path) as node:
        requests_split_a_cpu(node, max(os.sched_getaffinity(0)))


def test_a_container_goes_and_its_pod_has_less_than_it_had(tmp_path: Path) -> None:
    """v1's kernel counts a removed cgroup's quota for tens of milliseconds yet, and refuses its parent a lower one."""
    large, small = ({"limits": {"cpu": cpu}} for cpu in ("600m", "100m"))
    with new_node(tmp_path) as node:
        for before, after in ((large, small), (small, small)):
            node.add(pod("two", one=before, other=before), containers={"one": "a", "other": "b"})
            node.add(pod("two", one=after, other=after), containers={"one": "c"})
            assert node.text(node.path(pod("two"), ""), "cpu.cfs_quota_us") == "20000"


def test_a_limit_of_processes_stops_a_fork_bomb(tmp_path: Path) -> None:
    bomb, other = pod("bomb", app={}), pod("other", app={})
    with new_node(tmp_path, config={"podPidsLimit": 20}) as node:
        node.add(bomb, other)
        worker, neighbour = node.start(bomb, "app"), node.start(other, "app")
        assert worker.do("fork", 200) == "19 Resource temporarily unavailable"
        # Kernels differ in whom they count it for: the cgroup that has the limit, or the one that forked.
        assert sum(node.counts(node.path(bomb, name), "pids.events")["max"] for name in ("", "app")) == 1
        assert neighbour.do("fork", 10) == "10 all"
        assert worker.do("fork", 10) == "10 all"


def test_huge_pages_are_limited(tmp_path: Path) -> None:
    """In a mount namespace of its own: only there is the controller mounted, and it is unmounted with the namespace."""
    with reserved_pages(8):
        if "hugetlb" in this_host().v1:
            huge_pages(tmp_path)
            return
        place = tmp_path / "hugetlb"
        place.mkdir()
        code = f"from pathlib import Path\nimport {__name__} as test\ntest.huge_pages(Path({str(tmp_path)!r}))"
        mount = f'mount -t cgroup -o hugetlb none "{place}" || exit {NOT_HERE}; exec "$@"'
        ran = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", sys.executable, "-c", code],
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    if ran.returncode == NOT_HERE:
        pytest.skip(f"hugetlb: the v1 controller cannot be had here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr


@contextmanager
def reserved_pages(count: int) -> Iterator[None]:
    pool = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    if not pool.exists():
        pytest.skip("hugetlb: this kernel has no huge pages of 2 MiB")
    before = int(pool.read_text())
    try:
        pool.write_text(str(before + count))
        if (found := int(pool.read_text())) < before + count:
            pytest.skip(f"hugetlb: only {found - before} of {count} huge pages could be had")
        yield
    except PermissionError as error:
        pytest.skip(f"hugetlb: {error}")
    finally:
        pool.write_text(str(before))


def huge_pages(state: Path) -> None:
    """Two pages are the limit, the third is refused: a bus error, as the process has the mapping already."""
    large = pod("large", app={"limits": {"hugepages-2Mi": "4Mi", "memory": "32Mi"}})
    with new_node(state, hugepages="16Mi") as node:
        node.add(large)
        worker = node.start(large, "app")
        assert worker.do("huge", 4) == "4"
        assert int(node.text(node.path(large, "app"), "hugetlb.2MB.usage_in_bytes")) == 4 * MIB
        worker.send("huge", 2)
        assert worker.exit_code() == -signal.SIGBUS
        refused = [int(node.text(node.path(large, name), "hugetlb.2MB.failcnt")) for name in ("", "app")]
        assert sum(refused) == 1, refused


def test_a_negative_score_without_the_capability_is_reported(tmp_path: Path) -> None:
    if has_capability("SYS_RESOURCE"):
        pytest.skip("oom_score_adj: this process has CAP_SYS_RESOURCE, nothing is refused (a guest's test sees -997)")
    had = oom_score_adj(os.getpid())
    sure = pod("sure", app={"limits": {"cpu": "1", "memory": "64Mi"}})
    with new_node(tmp_path) as node:
        node.add(sure)
        worker = node.start(sure, "app")
        score = node.scores[worker.pid]
        assert (score.want, score.have, score.reason) == (-997, had, "lowering it needs CAP_SYS_RESOURCE")
        assert worker.lives()
        root = node.root + "-run"
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "kind: Pod\napiVersion: v1\nmetadata: {name: sure}\n"
        "spec: {containers: [{name: app, image: x, resources: {limits: {cpu: 100m, memory: 64Mi}}}]}\n"
    )
    options = ("--cgroup-root", root, "--driver", "cgroupfs", "--state-dir", str(tmp_path / "state"))
    ran = run("cgroup", "run", str(manifest), *options, "--", "true")
    assert run("node", "teardown", *options).code == 0
    assert ran.code == 0
    assert f"oom_score_adj: want -997, have {had} (lowering it needs CAP_SYS_RESOURCE)" in ran.err.splitlines()


def test_a_limit_comes_down_by_reclaiming_page_cache(tmp_path: Path) -> None:
    web = pod("web", app=BEFORE)
    with new_node(tmp_path) as node, tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        node.add(web)
        reader = node.start(web, "app")
        reader.do("read", cold_file(Path(disk), 40))
        assert node.memory(web, "app").usage_bytes > 40 * MIB
        node.resize(pod("web", app=AFTER))
        for name in ("", "app"):
            assert int(node.text(node.path(web, name), BYTES)) == 24 * MIB
        assert 16 * MIB < node.memory(web, "app").usage_bytes <= 24 * MIB  # no more was reclaimed than it needs
        assert node.kills(web, "app") == 0
        assert reader.lives()


def test_a_limit_below_the_usage_follows_the_usage(tmp_path: Path) -> None:
    """The kernel refuses it (EBUSY); that means not yet, until the time is up."""
    web = pod("web", app=BEFORE)
    with new_node(tmp_path, shrink_policy=ShrinkPolicy(deadline_s=1.0)) as node:
        node.add(web)
        hog = node.start(web, "app")
        hog.do("take", 32)
        with pytest.raises(StepError) as refused:
            node.resize(pod("web", app=AFTER))
        assert isinstance(refused.value.cause, ShrinkError)
        waited = re.search(r"are still in use after (\d+\.\d)", str(refused.value))
        assert waited and float(waited[1]) >= 1.0
        assert "not less than 24.0 MiB; the limit is " in str(refused.value)
        used = node.memory(web, "app").usage_bytes
        assert used < int(node.text(node.path(web, "app"), BYTES)) < 48 * MIB
        assert int(node.text(node.path(web, ""), BYTES)) == 64 * MIB  # follows when its containers have their limits
        assert node.kills(web, "app") == 0
        assert hog.lives()


def test_a_limit_is_lowered_as_soon_as_memory_is_freed(tmp_path: Path) -> None:
    """Refused at first, the resize goes on; the container frees its memory meanwhile."""
    web = pod("web", app=BEFORE)
    with new_node(tmp_path) as node:
        node.add(web)
        hog = node.start(web, "app")
        hog.do("take", 32)
        started = time.monotonic()
        hog.send("give", 1)
        node.resize(pod("web", app=AFTER))
        assert time.monotonic() - started >= 1
        for name in ("", "app"):
            assert int(node.text(node.path(web, name), BYTES)) == 24 * MIB
        assert node.kills(web, "app") == 0
        hog.until("done")
        assert hog.lives()
