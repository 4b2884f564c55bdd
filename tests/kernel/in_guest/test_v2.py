"""The v2 cgroupfs driver, inside a guest whose cgroups are all ours."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from plimsoll.cgroups.drivers import v2
from plimsoll.cgroups.drivers.detect import (
    CgroupsUnusableError,
    check_required,
    default_root,
    open_cgroupfs,
    this_host,
    writable,
)
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.cgroups.stats.usage import usage
from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, Directory, KeptFile
from plimsoll.linux.processes import ScoreAdjustment, set_oom_score_adj
from tests.kernel.driver_checks import (
    CHECKS,
    HOG,
    MI,
    Cgroupfs,
    a_fork_bomb_is_killed,
    python,
    read_file,
    refused,
    remove_tree,
    run_make,
    run_remove,
    run_write,
    started,
)

SUBTREE = "cgroup.subtree_control"
UNPRIVILEGED = 65534


@pytest.fixture(scope="module")
def driver() -> Iterator[CgroupsV2]:
    try:
        found = this_host()
    except CgroupsUnusableError as problem:
        pytest.skip(f"cgroup v2: {problem}")
    if found.version != 2 or found.read_only or os.geteuid() != 0:
        pytest.skip(f"cgroup v2: no writable cgroup2 root here (cgroup v{found.version}, user {os.geteuid()})")
    check_required(found)
    opened = open_cgroupfs(found)
    assert isinstance(opened, CgroupsV2)
    yield opened
    opened.close()


@pytest.fixture
def root(driver: CgroupsV2) -> Iterator[str]:
    path = f"/plimsoll-test-{secrets.token_hex(6)}"
    run_make(driver, path)
    yield path
    remove_tree(driver, path)
    assert not driver.mount.has(path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_driver(check: Callable[[Cgroupfs, str], None], driver: CgroupsV2, root: str) -> None:
    check(driver, root)


def test_the_root_of_a_node_is_the_top() -> None:
    found = this_host()
    assert default_root(found, writable(found)) == "/"


def test_controllers_are_handed_down(driver: CgroupsV2, root: str) -> None:
    """02 §2.4: every ancestor of a new cgroup hands down all that the top has; the new one, nothing yet."""
    run_make(driver, f"{root}/pod1")
    run_make(driver, f"{root}/pod1/c1")
    top = driver.controllers()
    assert {"cpu", "memory", "pids"} <= set(top)
    for path in ("/", root, f"{root}/pod1"):
        assert set(read_file(driver, path, SUBTREE).split()) == set(top)
    assert read_file(driver, f"{root}/pod1/c1", SUBTREE) == ""
    assert set(read_file(driver, f"{root}/pod1/c1", "cgroup.controllers").split()) == set(top)


def test_a_make_that_fails_takes_its_controllers_back(driver: CgroupsV2, root: str) -> None:
    """No cgroup may have more than cgroup.max.descendants below it: mkdir is refused after the controllers came on."""
    run_make(driver, f"{root}/pod1")
    run_write(driver, root, "cgroup.max.descendants", "1")
    refused(errno.EAGAIN, lambda: run_make(driver, f"{root}/pod1/c1"))
    assert read_file(driver, f"{root}/pod1", SUBTREE) == ""
    assert driver.children(f"{root}/pod1") == []


def test_a_parent_with_processes_of_its_own(driver: CgroupsV2, root: str) -> None:
    """It cannot hand down memory. cpu and pids it could, but its children would then take no process."""
    with started(driver, root, "exec sleep 60"):
        error = refused(errno.EBUSY, lambda: run_make(driver, f"{root}/pod1"))
        assert "it has processes of its own: move them into a cgroup below it first" in str(error)
        assert read_file(driver, root, SUBTREE) == ""
        assert read_file(driver, root, "cgroup.type") == "domain"
        assert driver.children(root) == []
    run_make(driver, f"{root}/pod1")


def test_what_an_ancestor_refuses_is_remembered(driver: CgroupsV2, root: str) -> None:
    """A user's node below a cgroup of root's that hands down pids only: the cgroup is there, `has` says what it lacks."""
    mine = f"{root}/mine"
    run_make(driver, mine)
    run_write(driver, root, SUBTREE, "-memory")
    os.chown(driver.mount.shown(mine), UNPRIVILEGED, UNPRIVILEGED)
    os.chown(f"{driver.mount.shown(mine)}/{SUBTREE}", UNPRIVILEGED, UNPRIVILEGED)
    code = PARTLY.format(uid=UNPRIVILEGED, path=f"{mine}/pod1")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reason, refusal = done.stdout.splitlines()
    assert reason == f"open {driver.mount.shown(root)}/{SUBTREE}: EACCES (Permission denied)"
    assert refusal.startswith(f"CgroupError open {driver.mount.shown(mine)}/pod1/memory.max '4096': ENOENT (open ")
    run_make(driver, f"{root}/other")
    run_write(driver, f"{mine}/pod1", "pids.max", "7")


def test_nothing_is_made_below_a_threaded_cgroup(driver: CgroupsV2, root: str) -> None:
    run_make(driver, f"{root}/threads")
    with driver.directory(root) as directory:
        directory.write(SUBTREE, " ".join(f"-{name}" for name in directory.read(SUBTREE).split()))
    run_write(driver, f"{root}/threads", "cgroup.type", "threaded")
    error = refused(errno.EOPNOTSUPP, lambda: run_make(driver, f"{root}/threads/pod1"))
    assert "cgroup.type is threaded" in str(error)
    assert driver.children(f"{root}/threads") == []
    run_remove(driver, f"{root}/threads")


def test_killing_where_there_is_no_cgroup_kill(driver: CgroupsV2, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on kernels before 5.14."""
    asked: list[str] = []

    def absent(directory: Directory) -> bool:
        asked.append(directory.path)
        return False

    monkeypatch.setattr(v2, "write_kill", absent)
    a_fork_bomb_is_killed(driver, root)
    assert asked


def test_only_what_is_below_counts_in_the_local_events(driver: CgroupsV2, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    run_write(driver, path, "memory.max", str(16 * MI))
    with started(driver, path, python(HOG), str(64 * MI)) as process:
        assert process.wait(60) == -9
    above, own = usage(driver, root, ["events"]), usage(driver, path, ["events"])
    assert above
    assert above.events
    assert above.events_local
    assert own
    assert own.events_local
    assert (above.events.oom_kill, above.events_local.oom_kill, own.events_local.oom_kill) == (1, 0, 1)


def test_a_kept_file_of_a_removed_cgroup(driver: CgroupsV2, root: str) -> None:
    run_make(driver, f"{root}/pod1")
    with driver.directory(f"{root}/pod1") as directory:
        kept = KeptFile(directory, "memory.current")
        assert kept.read() == b"0\n"
        run_remove(driver, f"{root}/pod1")
        run_make(driver, f"{root}/pod1")
        with pytest.raises(CgroupGoneError):
            kept.read()
        assert not directory.alive()
        with pytest.raises(CgroupGoneError):
            directory.read("memory.current")
        with pytest.raises(CgroupGoneError):
            directory.write("pids.max", "1")
    kept.close()


def test_scores_below_zero_with_the_capability() -> None:
    if not has_capability("SYS_RESOURCE"):
        pytest.skip("cgroup v2 guest: no CAP_SYS_RESOURCE")
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            for want in (-998, -997, 0, 1000):
                assert set_oom_score_adj(process.pid, want) == ScoreAdjustment(want, want)
        finally:
            process.kill()


PARTLY = """
import asyncio, concurrent.futures.thread, os
from plimsoll.cgroups.drivers.v2 import CgroupsV2
os.setgid({uid}); os.setuid({uid})
driver = CgroupsV2()
asyncio.run(driver.make("{path}"))
print(driver.has("memory.max"))
try:
    asyncio.run(driver.write("{path}", "memory.max", "4096"))
except Exception as error:
    print(type(error).__name__, error)
"""
DELEGATED = """
import asyncio, concurrent.futures.thread, os
from plimsoll.cgroups.drivers.detect import default_root, this_host, writable
from plimsoll.cgroups.drivers.detect import open_cgroupfs
os.setgid({uid}); os.setuid({uid})
found = this_host()
root = default_root(found, writable(found))
driver = open_cgroupfs(found)
async def main():
    await driver.move(root + "/agent", os.getpid())
    await driver.make(root + "/kubepods")
    await driver.make(root + "/kubepods/pod1")
    await driver.write(root + "/kubepods/pod1", "memory.max", "8388608")
    await driver.move(root + "/kubepods/pod1", os.getpid())
    print(root, driver.read(root + "/kubepods/pod1", ["memory.max"]).files, driver.members(root + "/kubepods/pod1") == [os.getpid()])
    try:
        await driver.make("/elsewhere")
    except Exception as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""


def test_a_users_delegated_subtree(driver: CgroupsV2, root: str) -> None:
    """Delegation as systemd does it: the directory and three of its files belong to the user, nothing above does."""
    mine = f"{root}/user@1000.service"
    run_make(driver, mine)
    run_make(driver, f"{mine}/agent")
    with driver.directory(mine) as directory, driver.directory(f"{mine}/agent") as agent:
        for place in (directory.path, agent.path):
            for file in ("", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"):
                os.chown(place + file, UNPRIVILEGED, UNPRIVILEGED)
    code = DELEGATED.format(uid=UNPRIVILEGED)
    argv = ["/bin/sh", "-c", 'read go; exec "$@"', "sh", sys.executable, "-c", code]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # As after a login: the user's process is already somewhere in the subtree.
        asyncio.run(driver.move(f"{mine}/agent", process.pid))
        out, complaint = process.communicate("go\n", timeout=60)
    assert process.returncode == 0, complaint
    first, second = out.splitlines()
    assert first == f"{mine} {{'memory.max': '8388608'}} True"
    assert second.startswith("CgroupError make /sys/fs/cgroup/elsewhere: E")
    with contextlib.suppress(CgroupError):
        run_remove(driver, "/elsewhere")
    assert "elsewhere" not in driver.children("/")
