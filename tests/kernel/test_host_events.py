"""The kernel's own events and task counts on the machine itself: cgroup v1, PSI of the whole machine, pidfds.

All happens in `plimsoll-test-<random>` cgroups of the memory and cpu hierarchies, which are removed at the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
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
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, CgroupMount, Directory
from plimsoll.linux.psi import trigger
from plimsoll.linux.taskstats import Taskstats
from plimsoll.rules.cgroups.view import TaskStates

MIB = 1 << 20
Note = Callable[[str, str], None]

# Takes argv[1] MiB after a line on stdin, says so, gives them back after the next line, and ends after the third.
TAKES = """
import mmap, sys
sys.stdin.readline()
size = int(sys.argv[1]) << 20
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 4096):
    m[at] = 1
print("taken", flush=True)
sys.stdin.readline()
m.close()
print("given back", flush=True)
sys.stdin.readline()
"""


def v1_mount(controller: str) -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup" and controller in options.split(","):
            return Path(fields.split()[4])
    return None


def eventually(true: Callable[[], bool], deadline_s: float = 60.0) -> bool:
    end = time.monotonic() + deadline_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@contextmanager
def cgroup(controller: str) -> Iterator[Path]:
    mount = v1_mount(controller)
    if mount is None:
        pytest.skip(f"no v1 hierarchy with {controller} on this machine")
    if not os.access(mount, os.W_OK) or os.geteuid() != 0:
        pytest.skip("cgroups of this machine can't be written")
    path = mount / f"plimsoll-test-{secrets.token_hex(6)}"
    path.mkdir()
    try:
        yield path
    finally:

        def removed() -> bool:
            try:
                path.rmdir()
            except OSError:
                return False
            return True

        if path.exists():
            assert eventually(removed), f"{path} could not be removed"


@pytest.fixture
def memory() -> Iterator[Path]:
    with cgroup("memory") as path:
        yield path


def opened(path: Path) -> Directory:
    mount = next(parent for parent in path.parents if parent.is_mount())
    return CgroupMount(str(mount), "cgroup").directory(f"/{path.relative_to(mount)}")


@contextmanager
def child(path: Path | None, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the cgroup before it does anything."""
    gate = 'read -r _ && exec "$@"'
    process = subprocess.Popen(
        ["/bin/sh", "-c", gate, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        if path is not None:
            (path / "cgroup.procs").write_text(str(process.pid))
        say(process, "go")
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.close()


def say(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdin
    process.stdin.write(f"{words}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


async def fires(watcher: CgroupWatcher[str], deadline_s: float = 60.0) -> frozenset[str]:
    async with asyncio.timeout(deadline_s):
        return await anext(watcher)


async def silent(watcher: CgroupWatcher[str], for_s: float = 0.2) -> bool:
    try:
        await fires(watcher, for_s)
    except TimeoutError:
        return True
    return False


@pytest.mark.asyncio
async def test_usage_threshold_fires_on_the_way_up_and_down(memory: Path, exercised: Note) -> None:
    with opened(memory) as directory, child(memory, sys.executable, "-S", "-c", TAKES, "48") as process:
        async with CgroupWatcher[str]() as watcher:
            watcher.usage_threshold("web", directory, 32 * MIB)
            assert await fires(watcher) == {"web"}  # once at first: read, now that it is registered
            assert await silent(watcher)
            say(process, "take")
            assert await fires(watcher) == {"web"}
            assert heard(process) == "taken"
            assert int((memory / "memory.usage_in_bytes").read_text()) > 32 * MIB
            assert await silent(watcher), "one crossing, one event"
            say(process, "give back")
            assert await fires(watcher) == {"web"}
            assert heard(process) == "given back"
            assert int((memory / "memory.usage_in_bytes").read_text()) < 32 * MIB
    exercised("kernel", f"Linux {os.uname().release}, cgroup v1: usage thresholds, OOM events, cgroupstats")


@pytest.mark.asyncio
async def test_out_of_memory_fires_when_the_kernel_kills(memory: Path) -> None:
    (memory / "memory.limit_in_bytes").write_text(str(24 * MIB))
    with opened(memory) as directory, child(memory, sys.executable, "-S", "-c", TAKES, "64") as process:
        async with CgroupWatcher[str]() as watcher:
            watcher.out_of_memory("oom", directory)
            assert await fires(watcher) == {"oom"}
            assert await silent(watcher)
            say(process, "take")
            assert await fires(watcher) == {"oom"}
        assert process.wait(60) == -signal.SIGKILL


@pytest.mark.asyncio
async def test_removal_of_the_cgroup_wakes_its_watchers(memory: Path) -> None:
    with opened(memory) as directory:
        async with CgroupWatcher[str]() as watcher:
            watcher.usage_threshold("web", directory, MIB)
            assert await fires(watcher) == {"web"}
            os.rmdir(memory)
            assert await fires(watcher) == {"web"}


@pytest.mark.asyncio
async def test_a_refused_registration_leaves_nothing_open(memory: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with opened(memory) as directory:
        (memory / "child").mkdir()
        try:
            with opened(memory / "child") as gone:
                (memory / "child").rmdir()
                async with CgroupWatcher[str]() as watcher:
                    with pytest.raises(CgroupGoneError):
                        watcher.usage_threshold("web", gone, MIB)
                    with pytest.raises(CgroupGoneError):
                        watcher.file_changes("web", gone, "cgroup.procs")
                    with pytest.raises(CgroupError, match=r"cgroup\.procs no\.such\.file"):
                        watcher.file_changes("here", directory, "cgroup.procs", "no.such.file")
                    assert await silent(watcher, 0.05)
        finally:
            if (memory / "child").exists():
                (memory / "child").rmdir()
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.asyncio
async def test_forgotten_keys_are_silent_and_close_their_files(memory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with opened(memory) as directory:
        async with CgroupWatcher[str]() as watcher:
            for key in ("a", "b"):
                watcher.usage_threshold(key, directory, MIB)
                watcher.file_changes(key, directory, "cgroup.procs")
            watcher.forget("a")
            assert await fires(watcher) == {"b"}
            watcher.forget("b")
            os.rmdir(memory)
            assert await silent(watcher, 0.1)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.asyncio
async def test_a_waiting_reader_sees_the_end_of_the_stream() -> None:
    watcher = CgroupWatcher[str]()

    async def read() -> list[frozenset[str]]:
        return [keys async for keys in watcher]

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    watcher.close()
    async with asyncio.timeout(60):
        assert await reader == []


@pytest.mark.skipif(not os.path.exists("/proc/pressure/cpu"), reason="no pressure stall information in this kernel")
@pytest.mark.asyncio
async def test_global_pressure_trigger_with_the_window_the_kernel_grants(exercised: Note) -> None:
    """Two busy loops on one CPU stall each other; without the capability a short window becomes 2 s, and is reported."""
    cpu = min(os.sched_getaffinity(0))
    busy = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    async with CgroupWatcher[str]() as watcher:
        note = watcher.pressure("node", "cpu", "some", 50_000, 1_000_000)
        assert await fires(watcher) == {"node"}
        with child(None, sys.executable, "-S", "-c", busy), child(None, sys.executable, "-S", "-c", busy):
            assert await fires(watcher, 15) == {"node"}
    privileged = int(status_field("CapEff"), 16) >> 24 & 1
    assert bool(note) == (not privileged)
    if note:
        assert note.startswith("want a window of 1000000 us, have 2000000 us (")
    exercised("kernel", f"Linux {os.uname().release}: global PSI trigger")


def test_a_pressure_window_that_no_kernel_takes_is_refused_with_the_file_named() -> None:
    if not os.path.exists("/proc/pressure/memory"):
        pytest.skip("this kernel has no pressure stall information")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CgroupError, match="/proc/pressure/memory"):
        trigger("memory", "some", 3_000_000, 2_000_000)  # more stall than the window has
    assert len(os.listdir("/proc/self/fd")) == before


def status_field(name: str) -> str:
    return next(
        line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")
    )


def test_the_kernel_counts_sleeping_running_and_stopped_tasks(caplog: pytest.LogCaptureFixture) -> None:
    with (
        cgroup("cpu") as path,
        opened(path) as directory,
        child(path, "sleep", "60"),
        child(path, "sleep", "60"),
        child(path, sys.executable, "-S", "-c", "while True: pass"),
        child(path, "sleep", "60") as stopped,
        TaskCounter(1) as counter,
    ):
        stopped.send_signal(signal.SIGSTOP)
        wanted = TaskStates(sleeping=2, running=1, stopped=1)
        assert eventually(lambda: counter.count(directory) == wanted), counter.count(directory)
        with caplog.at_level(logging.DEBUG, "plimsoll.cgroups.stats.live_tree"):
            counter.count(directory)
        assert caplog.messages == [
            f'Task stats for "{path}": {{NrSleeping:2 NrRunning:1 NrStopped:1 NrUninterruptible:0 NrIoWait:0}}'
        ]


def test_counts_of_a_removed_cgroup_and_of_no_cgroup(tmp_path: Path) -> None:
    with TaskCounter(1) as counter, cgroup("cpu") as path, opened(path) as directory:
        assert counter.count(directory) == TaskStates()
        path.rmdir()
        assert counter.count(directory) is None
    taskstats, fd = Taskstats(), os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            taskstats.counts(fd)
    finally:
        taskstats.close()
        os.close(fd)
