"""The kernel's events on cgroup v2, in a guest: memory.events, cgroup.events, removal; task states from /proc."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.cgroups.stats.live_tree import TaskCounter
from plimsoll.cgroups.stats.notifications import CgroupWatcher
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.linux.cgroup_files import CgroupGoneError, CgroupMount, Directory
from plimsoll.rules.cgroups.view import TaskStates

MIB = 1 << 20
ROOT = Path("/sys/fs/cgroup")
HOG = "m = bytearray(int(__import__('sys').argv[1]) << 20)\nfor at in range(0, len(m), 4096): m[at] = 1"


@pytest.fixture
def group() -> Iterator[Directory]:
    (ROOT / "cgroup.subtree_control").write_text("+memory +pids")
    path = ROOT / f"plimsoll-test-{secrets.token_hex(6)}"
    path.mkdir()
    with CgroupMount(str(ROOT), "cgroup2").directory(f"/{path.name}") as directory:
        yield directory
    if path.exists():
        path.rmdir()


@contextmanager
def child(directory: Directory, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is in the cgroup before it does anything."""
    process = subprocess.Popen(["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", *command], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        directory.write("cgroup.procs", str(process.pid))
        process.stdin.write(b"go\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


async def sees(watcher: CgroupWatcher[str], true: Callable[[], bool], deadline_s: float = 60.0) -> set[str]:
    """Check again at each event, and only then, until it is so; returns the keys of the events."""
    keys: set[str] = set()
    async with asyncio.timeout(deadline_s):
        while not true():
            keys |= await anext(watcher)
    return keys


def eventually(true: Callable[[], bool], deadline_s: float = 60.0) -> bool:
    end = time.monotonic() + deadline_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.asyncio
async def test_memory_events_report_an_oom_kill(group: Directory) -> None:
    group.write("memory.max", str(16 * MIB))
    async with CgroupWatcher[str]() as watcher:
        watcher.file_changes("web", group, "memory.events")
        assert await anext(watcher) == {"web"}
        with child(group, sys.executable, "-S", "-c", HOG, "64") as process:
            seen = await sees(watcher, lambda: flat_keyed(group.read("memory.events"))["oom_kill"] == 1)
            assert seen == {"web"}
            assert process.wait(60) == -signal.SIGKILL


@pytest.mark.asyncio
async def test_cgroup_events_report_populated_empty_and_removed(group: Directory) -> None:
    def populated() -> int:
        return flat_keyed(group.read("cgroup.events"))["populated"]

    async with CgroupWatcher[str]() as watcher:
        watcher.file_changes("web", group, "cgroup.events")
        assert await anext(watcher) == {"web"}
        with child(group, "sleep", "60"):
            await sees(watcher, lambda: populated() == 1)
        await sees(watcher, lambda: populated() == 0)
        Path(group.path).rmdir()  # noqa: ASYNC240  the kernel's answer is immediate
        assert await sees(watcher, lambda: not group.alive()) <= {"web"}
        with pytest.raises(CgroupGoneError):
            watcher.file_changes("web", group, "cgroup.events")


@pytest.mark.asyncio
async def test_writes_of_other_processes_fire_and_the_kernels_own_events_do_not(group: Directory) -> None:
    async with CgroupWatcher[str]() as watcher:
        watcher.file_changes("events", group, "memory.events", "cgroup.events")
        watcher.writes("values", group)
        assert await anext(watcher) == {"events", "values"}
        with child(group, "sleep", "60"):  # moves a process, and populates the cgroup
            async with asyncio.timeout(60):
                assert await anext(watcher) == {"events"}
        subprocess.run(["/bin/sh", "-c", f"echo 64M > {group.path}/memory.max"], check=True)  # noqa: ASYNC221
        async with asyncio.timeout(60):
            while "values" not in await anext(watcher):
                pass  # the child's end is an event too


@pytest.mark.asyncio
async def test_removal_alone_wakes_only_the_removed_one(group: Directory) -> None:
    group.write("cgroup.subtree_control", "+memory")
    names = [f"c{index}" for index in range(3)]
    for name in names:
        Path(group.path, name).mkdir()  # noqa: ASYNC240
    mount = CgroupMount(str(ROOT), "cgroup2")
    children = {name: mount.directory(f"/{Path(group.path).name}/{name}") for name in names}
    async with CgroupWatcher[str]() as watcher:
        for name, directory in children.items():
            watcher.file_changes(name, directory, "memory.events", "cgroup.events")
        assert await anext(watcher) == set(names)
        Path(group.path, "c1").rmdir()  # noqa: ASYNC240
        async with asyncio.timeout(60):
            assert await anext(watcher) == {"c1"}
        watcher.forget("c0")
        Path(group.path, "c0").rmdir()  # noqa: ASYNC240
        Path(group.path, "c2").rmdir()  # noqa: ASYNC240
        async with asyncio.timeout(60):
            assert await anext(watcher) == {"c2"}
    for directory in children.values():
        directory.close()


def test_task_states_from_proc(group: Directory, caplog: pytest.LogCaptureFixture) -> None:
    threads = "import threading, time\nfor _ in range(2): threading.Thread(target=time.sleep, args=(60,)).start()"
    with (
        child(group, "sleep", "60"),
        child(group, sys.executable, "-S", "-c", threads),  # three tasks: the first one waits for the others
        child(group, sys.executable, "-S", "-c", "while True: pass"),
        child(group, "sleep", "60") as stopped,
        TaskCounter(2) as counter,
    ):
        stopped.send_signal(signal.SIGSTOP)
        wanted = TaskStates(sleeping=4, running=1, stopped=1)
        assert eventually(lambda: counter.count(group) == wanted), counter.count(group)
        with caplog.at_level(logging.DEBUG, "plimsoll.cgroups.stats.live_tree"):
            counter.count(group)
        assert caplog.messages == [
            f'Task stats for "{group.path}": {{NrSleeping:4 NrRunning:1 NrStopped:1 NrUninterruptible:0 NrIoWait:0}}'
        ]
    Path(group.path).rmdir()
    with TaskCounter(2) as counter:
        assert counter.count(group) is None
