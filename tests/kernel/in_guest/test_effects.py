"""What the engine's values do on cgroup v2, in a guest: what is killed, slowed down, protected, limited.

Each test makes pods on a node of its own and asserts the effect together with the kernel's counter that proves it.
Where a file makes the difference, the same happens once with it and once without.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.engine.executor import StepError
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.linux.processes import oom_score_adj
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from tests.kernel.effects import (
    KILLED,
    MIB,
    a_busy_loop_is_throttled,
    cold_file,
    new_node,
    pod,
    requests_split_a_cpu,
    silence,
    the_offender_is_killed,
)

SCRATCH = Path("/scratch")  # a disk: only its page cache can be reclaimed, the root's is all memory
QOS = {"featureGates": {"MemoryQoS": True}}
NO_QOS = {"featureGates": {"MemoryQoS": False}}
LIMIT = {"limits": {"memory": "40Mi"}}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """An empty directory on the disk."""
    folder = SCRATCH / tmp_path.name
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("profile", "group"), [("documents", False), ("1.36", True)], ids=["one-process", "oom-group"])
def test_a_memory_limit_kills_exactly_the_offender(profile: str, group: bool, tmp_path: Path) -> None:
    web, other = pod("web", app=LIMIT, side=LIMIT), pod("other", app=LIMIT)
    with new_node(tmp_path, profile=profile) as node:
        node.add(web, other)
        fellow = the_offender_is_killed(node, web, other)
        counted = node.events(web, "app")
        if group:
            assert fellow.exit_code() == KILLED
            assert counted.oom_group_kill == 1
            assert counted.oom_kill in (2, 3)  # the first victim is one of the group, and may be counted with it again
        else:
            assert fellow.lives()
            assert (counted.oom_group_kill, counted.oom_kill) == (0, 1)
        assert node.events(web).oom_kill == counted.oom_kill  # the pod counts what its containers have


def test_memory_high_slows_down_and_does_not_kill(tmp_path: Path) -> None:
    """high = 4 + (36 − 4) · 0.5 = 20 MiB; the same 28 MiB are taken with it and without."""
    web = pod("web", app={"requests": {"memory": "4Mi"}, "limits": {"memory": "36Mi"}})
    with new_node(tmp_path, config={**NO_QOS, "memoryThrottlingFactor": 0.5}) as node:
        node.add(web)
        hog = node.start(web, "app")
        assert hog.lives()
        started = time.monotonic()
        assert hog.do("take", 28) == "28"
        took_s = time.monotonic() - started
        assert node.events(web, "app").high == 0
    with new_node(tmp_path, config={**QOS, "memoryThrottlingFactor": 0.5}) as node:
        node.add(web)
        assert int(node.text(node.path(web, "app"), "memory.high")) == 20 * MIB
        hog = node.start(web, "app")
        assert hog.lives()
        end = time.monotonic() + 2 * took_s + 1
        hog.send("take", 28)
        taken = 0
        while (line := hog.line(end - time.monotonic())) is not None:
            taken = int(line)
        assert 10 < taken < 28
        assert hog.ended() is None
        assert node.memory(web, "app").usage_bytes < 28 * MIB
        events = node.events(web, "app")
        assert (events.high or 0) > 10
        assert (events.max, events.oom_kill) == (0, 0)


@pytest.mark.parametrize("protected", [True, False], ids=["with-min", "without"])
def test_memory_min_keeps_page_cache_under_a_siblings_pressure(protected: bool, tmp_path: Path, scratch: Path) -> None:
    """96 MiB for all pods: twice 32 of page cache, of which one pod's is covered by its request, then 48 taken."""
    keeper, plain, hog = pod("keeper", app={"requests": {"memory": "48Mi"}}), pod("plain", app={}), pod("hog", app={})
    with new_node(tmp_path, memory_mib=96, config=QOS if protected else NO_QOS) as node:
        node.add(keeper, plain, hog)
        taker = node.start(hog, "app")
        readers = [node.start(each, "app") for each in (keeper, plain)]
        for reader in readers:
            reader.do("read", cold_file(scratch, 32))
        assert all((node.memory(each, "app").file_bytes or 0) >= 32 * MIB for each in (keeper, plain))
        assert taker.do("take", 48) == "48"
        kept, lost = (node.memory(each, "app").file_bytes or 0 for each in (keeper, plain))
        if protected:
            assert kept >= 31 * MIB
            assert lost <= 16 * MIB
        else:
            assert kept <= 28 * MIB
        assert all(each.lives() for each in readers)
        assert [node.kills(each, "app") for each in (keeper, plain, hog)] == [0, 0, 0]


@pytest.mark.parametrize("protected", [True, False], ids=["with-min", "without"])
def test_memory_min_makes_the_kernel_kill_another_process(protected: bool, tmp_path: Path, scratch: Path) -> None:
    """A protected container takes what it has requested. What others could give is used up: one of them is killed.

    112 MiB for all pods: 32 of page cache, 48 taken by a pod that requests nothing; then the owner of the cache takes
    another 40. Without memory.min its own cache makes room, with it another process has to.
    """
    keeper, other = pod("keeper", app={"requests": {"memory": "88Mi"}}), pod("other", app={})
    with new_node(tmp_path, memory_mib=112, config=QOS if protected else NO_QOS) as node:
        node.add(keeper, other)
        owner, victim = node.start(keeper, "app"), node.start(other, "app")
        owner.do("read", cold_file(scratch, 32))
        assert victim.do("take", 48) == "48"
        assert owner.do("take", 40) == "40"
        left = node.memory(keeper, "app").file_bytes or 0
        assert node.kills(keeper, "app") == 0
        if protected:
            assert victim.exit_code() == KILLED
            assert node.kills(other, "app") == 1
            assert left >= 31 * MIB
        else:
            assert victim.lives()
            assert node.kills(other, "app") == 0
            assert left <= 24 * MIB


def test_a_cpu_limit_holds_a_busy_loop(tmp_path: Path) -> None:
    busy = pod("busy", app={"limits": {"cpu": "200m"}})
    with new_node(tmp_path) as node:
        node.add(busy)
        a_busy_loop_is_throttled(node, busy)


def test_cpu_requests_split_a_cpu(tmp_path: Path) -> None:
    with new_node(tmp_path) as node:
        assert requests_split_a_cpu(node, 0) > 0.8


def test_a_limit_of_processes_stops_a_fork_bomb(tmp_path: Path) -> None:
    bomb, other = pod("bomb", app={}), pod("other", app={})
    with new_node(tmp_path, config={"podPidsLimit": 20}) as node:
        node.add(bomb, other)
        worker, neighbour = node.start(bomb, "app"), node.start(other, "app")
        assert worker.do("fork", 200) == "19 Resource temporarily unavailable"
        assert sum(node.counts(node.path(bomb, name), "pids.events")["max"] for name in ("", "app")) == 1
        assert neighbour.do("fork", 10) == "10 all"
        assert worker.do("fork", 10) == "10 all"


def test_a_guaranteed_containers_score_is_negative(tmp_path: Path) -> None:
    sure = pod("sure", app={"limits": {"cpu": "1", "memory": "64Mi"}})
    with new_node(tmp_path) as node:
        node.add(sure)
        worker = node.start(sure, "app")
        assert node.scores[worker.pid].done
        assert oom_score_adj(worker.pid) == -997
        assert worker.lives()


BEFORE, AFTER = {"limits": {"memory": "64Mi"}}, {"limits": {"memory": "24Mi"}}
# 50 ms for the container and then for its pod, perhaps without a beat in between.
FROZEN_S = 2 * 0.05


def test_a_limit_comes_down_by_reclaiming_page_cache(tmp_path: Path, scratch: Path) -> None:
    web = pod("web", app=BEFORE)
    with new_node(tmp_path) as node:
        node.add(web)
        reader, beating, control = node.start(web, "app"), node.start(web, "app"), node.outside()
        reader.do("read", cold_file(scratch, 40))
        assert node.memory(web, "app").usage_bytes > 40 * MIB
        with silence(beating, control) as silent_s:
            node.resize(pod("web", app=AFTER))
        assert silent_s() <= FROZEN_S
        for name in ("", "app"):
            assert int(node.text(node.path(web, name), "memory.max")) == 24 * MIB
            assert node.text(node.path(web, name), "memory.high") == "max"
            assert node.text(node.path(web, name), "cgroup.freeze") == "0"
        assert 16 * MIB < node.memory(web, "app").usage_bytes <= 24 * MIB  # no more was reclaimed than it needs
        assert node.events(web).oom_kill == 0
        assert reader.lives()


def test_a_limit_below_the_usage_follows_the_usage(tmp_path: Path) -> None:
    web = pod("web", app=BEFORE)
    with new_node(tmp_path, shrink_policy=ShrinkPolicy(deadline_s=1.5)) as node:
        node.add(web)
        hog, beating, control = node.start(web, "app"), node.start(web, "app"), node.outside()
        hog.do("take", 32)
        with silence(beating, control) as silent_s, pytest.raises(StepError) as refused:
            node.resize(pod("web", app=AFTER))
        assert silent_s() <= FROZEN_S
        assert isinstance(refused.value.cause, ShrinkError)
        assert "are still in use after" in str(refused.value)
        assert "not less than 24.0 MiB" in str(refused.value)
        used = node.memory(web, "app").usage_bytes
        assert used < int(node.text(node.path(web, "app"), "memory.max")) < 48 * MIB
        assert (
            int(node.text(node.path(web, ""), "memory.max")) == 64 * MIB
        )  # follows when its containers have their limits
        for name in ("", "app"):
            assert node.text(node.path(web, name), "memory.high") == "max"
            assert node.text(node.path(web, name), "cgroup.freeze") == "0"
        assert node.events(web).oom_kill == 0
        assert hog.lives()
        hog.do("give")
        node.resize(pod("web", app=AFTER))  # now there is room
        assert int(node.text(node.path(web, ""), "memory.max")) == 24 * MIB
        assert hog.lives()
