"""The v1 driver on this machine's own kernel, below one cgroup of ours."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import Hierarchies, open_cgroupfs
from plimsoll.cgroups.drivers.v1 import UNIFIED, CgroupsV1
from plimsoll.cgroups.stats.usage import host_pressure, usage
from plimsoll.linux.cgroup_files import CgroupGoneError, CgroupMount
from plimsoll.linux.processes import cgroups_of
from tests.kernel.driver_checks import (
    CHECKS,
    HOG,
    MI,
    Cgroupfs,
    a_fork_bomb_is_killed,
    eventually,
    frozen_processes_do_not_run,
    python,
    refused,
    remove_tree,
    run_make,
    run_remove,
    run_write,
    started,
)


@pytest.fixture(scope="module")
def driver(host_v1: Hierarchies, exercised: Callable[[str, str], None]) -> Iterator[CgroupsV1]:
    opened = open_cgroupfs(host_v1)
    assert isinstance(opened, CgroupsV1)
    yield opened
    exercised("kernel", f"Linux {os.uname().release}, host, cgroup v1, cgroupfs")
    opened.close()


@pytest.fixture
def root(driver: CgroupsV1) -> Iterator[str]:
    path = f"/plimsoll-test-{secrets.token_hex(6)}"
    asyncio.run(driver.make(path))
    yield path
    remove_tree(driver, path)
    assert all(not mount.has(path) for mount in driver.hierarchies.values())


# It makes thousands of processes, which another test counts.
BOMB = pytest.param(a_fork_bomb_is_killed, marks=pytest.mark.xdist_group("pressure"))


@pytest.mark.parametrize(
    "check", [BOMB if each is a_fork_bomb_is_killed else each for each in CHECKS], ids=lambda check: check.__name__
)
def test_driver(check: Callable[[Cgroupfs, str], None], driver: CgroupsV1, root: str) -> None:
    check(driver, root)


def test_a_cgroup_is_in_every_hierarchy(driver: CgroupsV1, root: str) -> None:
    for controller, mount in driver.hierarchies.items():
        assert mount.has(root), controller
    with driver.hierarchies["cpuset"].directory(root) as ours, driver.hierarchies["cpuset"].directory("/") as top:
        for file in ("cpuset.cpus", "cpuset.mems"):
            assert ours.read(file) == top.read(file) != ""


def test_a_limit_above_the_usage_needs_no_thread(driver: CgroupsV1, root: str) -> None:
    """Nothing is reclaimed for it: the coroutine ends without a pause."""
    for value in (str(64 * MI), "-1"):
        with pytest.raises(StopIteration):
            driver.write(root, "memory.limit_in_bytes", value).send(None)


def test_a_process_is_in_every_hierarchy(driver: CgroupsV1, root: str) -> None:
    with started(driver, root, "exec sleep 60") as process:
        lines = {name: line.path for line in cgroups_of(process.pid) or () for name in line.controllers or (UNIFIED,)}
        assert {lines[name] for name in driver.hierarchies if name in lines} == {root}


def test_a_half_made_cgroup_is_completed(driver: CgroupsV1, root: str) -> None:
    """As a crash or a runtime leaves it: there in one hierarchy only. It does not count as there (02 §3)."""
    path = f"{root}/pod1"
    driver.hierarchies["pids"].make(path)
    assert driver.read(path, []) is None
    assert driver.children(root) == ["pod1"], "but it can be found and removed"
    run_make(driver, path)
    assert driver.read(path, []) is not None
    run_remove(driver, path)
    driver.hierarchies["devices"].make(path)
    run_remove(driver, path)
    assert driver.children(root) == []


def test_the_hierarchies_that_lack_a_cgroup_are_named(driver: CgroupsV1, root: str) -> None:
    path = f"{root}/reserved"
    assert driver.incomplete(path) == [], "it is nowhere"
    run_make(driver, path)
    assert driver.incomplete(path) == []
    for name in ("pids", "cpuset"):
        driver.hierarchies[name].remove(path)
    assert sorted(driver.incomplete(path)) == [
        f"{driver.hierarchies[name].mount_point}{path}" for name in ("cpuset", "pids")
    ]
    run_remove(driver, path)


def test_making_is_all_or_nothing(driver: CgroupsV1, root: str) -> None:
    """A parent without CPUs (made by hand in a cpuset) cannot be inherited from: then nothing stays, anywhere."""
    parent = f"{root}/bare"
    run_make(driver, parent)
    driver.hierarchies["cpuset"].remove(parent)
    driver.hierarchies["cpuset"].make(parent)
    error = refused(errno.ENOSPC, lambda: run_make(driver, f"{parent}/pod1"))
    assert "the parent has none: set them there, or choose another cgroup root" in str(error)
    assert driver.children(parent) == []


def test_moving_is_all_or_nothing(driver: CgroupsV1, root: str) -> None:
    path = f"{root}/bare"
    run_make(driver, path)
    driver.hierarchies["cpuset"].remove(path)
    driver.hierarchies["cpuset"].make(path)
    with started(driver, root, "exec sleep 60") as process:
        before = cgroups_of(process.pid)
        error = refused(errno.ENOSPC, lambda: asyncio.run(driver.move(path, process.pid)))
        assert error.path.endswith(f"{path}/cgroup.procs")
        assert cgroups_of(process.pid) == before
        assert driver.members(path) == []


def test_an_optional_hierarchy_that_cannot_be_written(driver: CgroupsV1, root: str, tmp_path: Path) -> None:
    """The unified hierarchy read-only, as in many containers: it is left out, and the reason kept; pids is not optional."""
    mounted: list[str] = []
    places = {}
    try:
        for name in (UNIFIED, "pids"):
            place = tmp_path / name
            place.mkdir()
            subprocess.run(["mount", "--bind", driver.hierarchies[name].mount_point, str(place)], check=True)
            mounted.append(str(place))
            subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
            places[name] = str(place)
        mounts = {name: mount.mount_point for name, mount in driver.hierarchies.items() if name != UNIFIED}
        partly = CgroupsV1(mounts, places[UNIFIED])
        run_make(partly, f"{root}/pod1")
        assert partly.refused[UNIFIED].errno == errno.EROFS
        with started(partly, f"{root}/pod1", "exec sleep 60") as process:
            assert partly.members(f"{root}/pod1") == [process.pid]
        run_remove(partly, f"{root}/pod1")
        partly.close()
        refusing = CgroupsV1({**mounts, "pids": places["pids"]}, None)
        assert refused(errno.EROFS, lambda: run_make(refusing, f"{root}/pod1")).path.endswith(f"{root}/pod1")
        assert driver.children(root) == []
        refusing.close()
    finally:
        for point in mounted:
            subprocess.run(["umount", point], check=True)


def test_a_childs_quota_above_its_parents(driver: CgroupsV1, root: str) -> None:
    run_make(driver, f"{root}/pod1")
    run_write(driver, root, "cpu.cfs_quota_us", "20000")
    error = refused(errno.EINVAL, lambda: run_write(driver, f"{root}/pod1", "cpu.cfs_quota_us", "30000"))
    assert "above the parent's" in str(error)


def test_a_limit_below_usage_says_how_much_is_used(driver: CgroupsV1, root: str) -> None:
    """02 §5: the library's words. Nothing is killed."""
    with started(driver, root, python(HOG), str(24 * MI)) as process:

        def used() -> int:
            found = usage(driver, root, ["memory"])
            assert found
            assert found.memory
            return found.memory.usage_bytes

        eventually(lambda: used() > 24 * MI, "it has its memory")
        error = refused(errno.EBUSY, lambda: run_write(driver, root, "memory.limit_in_bytes", str(4 * MI)))
        assert f"unable to set memory limit to {4 * MI} (current usage: " in str(error)
        assert process.poll() is None


def test_memsw_and_limit_in_the_wrong_order(driver: CgroupsV1, root: str) -> None:
    if driver.has("memory.memsw.limit_in_bytes"):
        pytest.skip("host cgroup v1: no memory.memsw.limit_in_bytes")
    assert "lower that first" in str(
        refused(errno.EINVAL, lambda: run_write(driver, root, "memory.memsw.limit_in_bytes", str(64 * MI)))
    )
    run_write(driver, root, "memory.limit_in_bytes", str(64 * MI))
    run_write(driver, root, "memory.memsw.limit_in_bytes", str(64 * MI))
    assert "raise that first" in str(
        refused(errno.EINVAL, lambda: run_write(driver, root, "memory.limit_in_bytes", str(128 * MI)))
    )


def test_what_v1_lacks_is_said(driver: CgroupsV1, root: str) -> None:
    assert driver.has("memory.min") == "this kernel's cgroups have no memory.min"
    assert driver.has("nonsense.max") == "controller nonsense is not mounted on this cgroup v1 host"
    assert driver.has("memory.limit_in_bytes") is None
    assert driver.has("pids.max") is None


def test_pressure_of_a_cgroup_on_a_hybrid_host(driver: CgroupsV1, root: str) -> None:
    if driver.has("memory.pressure") is not None:
        pytest.skip(f"host cgroup v1: {driver.has('memory.pressure')}")
    found = usage(driver, root)
    assert found
    assert found.pressure
    assert found.pressure.memory
    assert found.pressure.memory.some
    assert host_pressure() is not None


@pytest.mark.parametrize("check", [BOMB, frozen_processes_do_not_run], ids=lambda check: check.__name__)
def test_without_a_unified_hierarchy(check: Callable[[Cgroupfs, str], None], driver: CgroupsV1, root: str) -> None:
    """A host with v1 only (document 004): no cgroup.kill, so the freezer and pidfds do it."""
    alone = CgroupsV1({name: mount.mount_point for name, mount in driver.hierarchies.items() if name != UNIFIED})
    try:
        check(alone, root)
    finally:
        alone.close()


def test_a_cgroup_that_went_away(driver: CgroupsV1, root: str) -> None:
    run_make(driver, f"{root}/pod1")
    with driver.directory(f"{root}/pod1", "memory.stat") as directory:
        run_remove(driver, f"{root}/pod1")
        assert not directory.alive()
        with pytest.raises(CgroupGoneError):
            directory.read("memory.stat")


class Killed(BaseException):
    """In the place of a kill −9: nothing comes after it."""


def test_a_kill_while_a_cgroup_is_made_or_removed_leaves_none_that_seems_complete(
    driver: CgroupsV1, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every single hierarchy. Else the next cgroup below it could not be made in those where it is missing."""
    path = f"{root}/pod1"
    whole = len(set(driver.hierarchies.values()))
    for name in ("make", "remove"):
        for count in range(1, whole):
            with monkeypatch.context() as patched:
                left, plain = [count], getattr(CgroupMount, name)

                def until_killed(mount: CgroupMount, at: str, left: list[int] = left, plain: Any = plain) -> None:
                    if not left[0]:
                        raise Killed
                    left[0] -= 1
                    plain(mount, at)

                if name == "remove":
                    run_make(driver, path)
                patched.setattr(CgroupMount, name, until_killed)
                with pytest.raises(Killed):
                    (run_make if name == "make" else run_remove)(driver, path)
            assert driver.read(path, ()) is None, (name, count)
            run_make(driver, path)
            run_make(driver, f"{path}/container")
            run_remove(driver, f"{path}/container")
            run_remove(driver, path)
            assert not [each for each in driver.hierarchies.values() if each.has(path)]
