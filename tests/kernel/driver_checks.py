"""What every cgroupfs driver must do, as functions: test_host_v1.py runs them on this machine, test_v2.py in a guest.

Each gets a driver and the path of an empty cgroup that it may fill; the caller removes everything afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.cgroups.stats.usage import UsageReader, usage
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError
from plimsoll.rules.model.kernel import CgroupVersion

Cgroupfs = CgroupsV1 | CgroupsV2
MI = 1 << 20
HOG = "import sys, time; b = bytearray(int(sys.argv[1])); b[::4096] = b'x' * len(b[::4096]); time.sleep(60)"
BUSY = "while True: pass"


def eventually(condition: Callable[[], bool], what: str, deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def started(driver: Cgroupfs, path: str, script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell script whose first line waits until its process is in the cgroup; ended with all that it started."""
    argv = ["/bin/sh", "-c", f"read go; {script}", "sh", *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            asyncio.run(driver.move(path, process.pid))
            assert process.stdin
            process.stdin.write(b"go\n")
            process.stdin.close()
            yield process
        finally:
            with contextlib.suppress(CgroupGoneError):
                asyncio.run(driver.kill(path))
            process.kill()


def python(code: str) -> str:
    return f'exec {sys.executable} -I -S -c "{code}" "$@"'


def remove_tree(driver: Cgroupfs, path: str) -> None:
    for name in driver.children(path):
        remove_tree(driver, f"{path}/{name}")
    with contextlib.suppress(CgroupGoneError):
        asyncio.run(driver.kill(path))
    with contextlib.suppress(CgroupGoneError):
        asyncio.run(driver.remove(path))


def refused(number: int, call: Callable[[], object]) -> CgroupError:
    with pytest.raises(CgroupError) as caught:
        call()
    assert caught.value.errno == number, caught.value
    return caught.value


def run_make(driver: Cgroupfs, path: str) -> None:
    asyncio.run(driver.make(path))


def run_remove(driver: Cgroupfs, path: str) -> None:
    asyncio.run(driver.remove(path))


def run_move(driver: Cgroupfs, path: str) -> None:
    asyncio.run(driver.move(path, os.getpid()))


def run_kill(driver: Cgroupfs, path: str) -> None:
    asyncio.run(driver.kill(path))


def run_write(driver: Cgroupfs, path: str, file: str, value: str) -> None:
    asyncio.run(driver.write(path, file, value))


def read_file(driver: Cgroupfs, path: str, file: str) -> str:
    seen = driver.read(path, [file])
    assert seen is not None
    return seen.files[file]


def life_of_a_cgroup(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    assert driver.read(path, []) is None
    assert driver.texts(path, ["pids.max"]) is None
    assert isinstance(refused(errno.ENOENT, lambda: run_make(driver, f"{path}/child")), CgroupGoneError)
    run_make(driver, path)
    refused(errno.EEXIST, lambda: run_make(driver, path))
    run_make(driver, f"{path}/b")
    run_make(driver, f"{path}/a")
    assert driver.children(path) == ["a", "b"]
    assert driver.members(path, deep=True) == []
    first = driver.read(f"{path}/a", ["no.such_file", "pids.max"])
    assert first is not None
    assert dict(first.files) == {"pids.max": "max"} == driver.texts(f"{path}/a", ["no.such_file", "pids.max"])
    refused(errno.EBUSY, lambda: run_remove(driver, path))
    assert driver.children(path) == ["a", "b"], "a refused remove has removed nothing, in no hierarchy"
    run_remove(driver, f"{path}/a")
    run_make(driver, f"{path}/a")
    again = driver.read(f"{path}/a", [])
    assert again is not None
    assert again.inode != first.inode, "the name is the same, the cgroup is another"
    for name in ("a", "b"):
        run_remove(driver, f"{path}/{name}")
    run_remove(driver, path)
    assert isinstance(refused(errno.ENOENT, lambda: run_remove(driver, path)), CgroupGoneError)
    assert driver.children(path) == []
    assert driver.members(path) == []


# file, written, then shown
WRITES: dict[CgroupVersion, list[tuple[str, str, str]]] = {
    1: [
        ("cpu.shares", "512", "512"),
        ("cpu.shares", "1", "2"),
        ("cpu.cfs_period_us", "50000", "50000"),
        ("cpu.cfs_quota_us", "25000", "25000"),
        ("cpu.cfs_quota_us", "-1", "-1"),
        ("memory.limit_in_bytes", "104857601", "104857600"),
        ("memory.memsw.limit_in_bytes", "104857601", "104857600"),
        ("memory.memsw.limit_in_bytes", "-1", "9223372036854771712"),
        ("memory.limit_in_bytes", "-1", "9223372036854771712"),
        ("pids.max", "100", "100"),
        ("pids.max", "max", "max"),
        ("cpuset.cpus", "0,0", "0"),
    ],
    2: [
        ("cpu.weight", "39", "39"),
        ("cpu.max", "50000 100000", "50000 100000"),
        ("cpu.max", "max", "max 100000"),
        ("memory.max", "104857601", "104857600"),
        ("memory.high", "104857601", "104857600"),
        ("memory.min", "4097", "4096"),
        ("memory.low", "8191", "4096"),
        ("memory.max", "max", "max"),
        ("memory.swap.max", "0", "0"),
        ("memory.oom.group", "1", "1"),
        ("pids.max", "100", "100"),
        ("cpuset.cpus", "0,0", "0"),
        ("cpuset.cpus", "", ""),
    ],
}


def values_are_written_and_read_back(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    written = 0
    for file, value, shown in WRITES[driver.version]:
        if driver.has(file) is not None:
            assert (seen := driver.read(path, [file]))
            assert file not in seen.files, "a file that is said to be missing is missing"
            refused(errno.ENOENT, partial(run_write, driver, path, file, value))
            continue
        run_write(driver, path, file, value)
        assert read_file(driver, path, file) == shown
        written += 1
    assert written >= 9


# file, value, errno of the kernel; `refuse` for what is not even tried
BAD: dict[CgroupVersion, list[tuple[str, str, int]]] = {
    1: [
        ("cpu.cfs_period_us", "1", errno.EINVAL),
        ("cpu.cfs_quota_us", "1", errno.EINVAL),
        ("pids.max", "-1", errno.EINVAL),
    ],
    2: [("cpu.weight", "0", errno.ERANGE), ("cpu.max", "1 100000", errno.EINVAL), ("pids.max", "-1", errno.EINVAL)],
}


def bad_values_change_nothing(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    for file, value, number in BAD[driver.version]:
        before = read_file(driver, path, file)
        error = refused(number, partial(run_write, driver, path, file, value))
        assert (error.op, error.data) == ("write", value)
        assert error.path.endswith(f"{path}/{file}")
        for text in ("1 x", "1\n", "$(reboot)", ""):
            error = refused(errno.EINVAL, partial(run_write, driver, path, file, text))
            assert error.op == "refuse"
        assert read_file(driver, path, file) == before
    refused(errno.ENOENT, lambda: run_write(driver, path, "memory.nonsense", "1"))
    assert isinstance(
        refused(errno.ENOENT, lambda: run_write(driver, f"{root}/none", "pids.max", "1")), CgroupGoneError
    )


HOSTILE = ["../../x", "..", ".", "", "a\nb", "a\0b", "n" * 300, "a/../../../x"]


def hostile_names_are_refused(driver: Cgroupfs, root: str) -> None:
    before = other_cgroups_in_the_root(driver)
    for name in HOSTILE:
        path = f"{root}/{name}"
        calls: list[Callable[[], object]] = [
            partial(run_make, driver, path),
            partial(run_remove, driver, path),
            partial(driver.read, path, ["pids.max"]),
            partial(driver.children, path),
            partial(run_move, driver, path),
            partial(run_kill, driver, path),
            partial(run_write, driver, path, "pids.max", "1"),
        ]
        for call in calls:
            with pytest.raises(CgroupError) as caught:
                call()
            assert caught.value.op == "refuse", caught.value
    for file in ("../pids.max", "a/pids.max", "pids.max\0", ""):
        with pytest.raises(CgroupError):
            run_write(driver, root, file, "1")
    assert driver.children(root) == []
    assert other_cgroups_in_the_root(driver) == before


def other_cgroups_in_the_root(driver: Cgroupfs) -> list[str]:
    """Without those of tests that run at the same time."""
    return [name for name in driver.children("/") if not name.startswith("plimsoll-test-")]


def the_root_is_not_changed(driver: Cgroupfs, root: str) -> None:
    for call in (
        lambda: asyncio.run(driver.kill("/")),
        lambda: asyncio.run(driver.freeze("/", frozen=True)),
        lambda: run_remove(driver, "/"),
    ):
        assert "root" in str(refused(errno.EINVAL, call))
    assert driver.read(root, []) is not None


def processes_are_moved(driver: Cgroupfs, root: str) -> None:
    pod, container = f"{root}/pod1", f"{root}/pod1/c1"
    run_make(driver, pod)
    run_make(driver, container)
    with started(driver, container, "exec sleep 60") as process:
        assert driver.members(container) == [process.pid]
        assert driver.members(pod) == []
        assert driver.members(pod, deep=True) == [process.pid]
        refused(errno.EBUSY, lambda: run_remove(driver, container))
    refused(errno.ESRCH, lambda: asyncio.run(driver.move(container, process.pid)))
    assert driver.members(pod, deep=True) == []


def frozen_processes_do_not_run(driver: Cgroupfs, root: str) -> None:
    pod, container = f"{root}/pod1", f"{root}/pod1/c1"
    run_make(driver, pod)
    run_make(driver, container)

    def cpu_us() -> int:
        found = usage(driver, container, ["cpu"])
        assert found
        assert found.cpu
        assert found.cpu.usage_us is not None
        return found.cpu.usage_us

    with started(driver, container, "while :; do :; done"):
        start = cpu_us()
        eventually(lambda: cpu_us() > start, "it runs")
        asyncio.run(driver.freeze(pod, frozen=True))
        still = cpu_us()
        time.sleep(0.2)  # the time in which nothing must happen
        assert cpu_us() == still
        asyncio.run(driver.freeze(pod, frozen=False))
        eventually(lambda: cpu_us() > still, "it runs again")
        asyncio.run(driver.freeze(pod, frozen=True))
        asyncio.run(driver.kill(pod))  # a frozen one can be killed too
        assert driver.members(pod, deep=True) == []


def a_fork_bomb_is_killed(driver: Cgroupfs, root: str) -> None:
    pod, container = f"{root}/pod1", f"{root}/pod1/c1"
    run_make(driver, pod)
    run_make(driver, container)
    run_write(driver, pod, "pids.max", "3000")  # an ended process counts until init has reaped it
    # Forty chains in which each process starts the next one and ends: a list of pids is out of date at once. They would
    # end by themselves, some time, should this driver fail.
    bomb = "f() { [ $1 -gt 0 ] && f $(($1 - 1)) & }; for i in $(seq 40); do f 20000; done; exec sleep 60"
    with started(driver, container, bomb) as process:
        eventually(lambda: len(driver.members(pod, deep=True)) > 10, "it has spread")
        first = set(driver.members(pod, deep=True))
        eventually(lambda: len(first & set(driver.members(pod, deep=True))) < 5, "its pids are others by now")
        begin = time.monotonic()
        asyncio.run(driver.kill(pod))
        assert time.monotonic() - begin < 30  # before the bomb would end by itself
        assert driver.members(pod, deep=True) == []
        process.wait(60)
        assert process.returncode == -9
    run_remove(driver, container)
    run_remove(driver, pod)


def _anon_bytes(reader: UsageReader) -> int:
    memory = reader.read().memory
    assert memory
    assert memory.anon_bytes is not None
    return memory.anon_bytes


def usage_is_reported(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    limit_file = "memory.max" if driver.version == 2 else "memory.limit_in_bytes"
    run_write(driver, path, limit_file, str(64 * MI))
    with started(driver, path, python(HOG), str(16 * MI)):
        reader = UsageReader(driver, path)
        try:
            # Kernels sum up memory.stat every two seconds; memory.current is exact.
            eventually(lambda: _anon_bytes(reader) > 15 * MI, "it has its memory")
            found = reader.read()
        finally:
            reader.close()
    assert found.memory
    assert found.memory.limit_bytes == 64 * MI
    assert found.memory.working_set_bytes is not None
    assert 15 * MI < found.memory.working_set_bytes <= found.memory.usage_bytes
    assert found.cpu
    assert found.cpu.usage_us
    assert found.pids
    assert (found.pids.current, found.pids.limit) == (1, None)
    assert found.events_local
    assert found.events_local.oom_kill == 0
    assert usage(driver, f"{root}/none") is None


def an_oom_kill_is_counted(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    files = ["memory.swap.max", "memory.max"] if driver.version == 2 else ["memory.limit_in_bytes"]
    for file in files:
        run_write(driver, path, file, "0" if "swap" in file else str(16 * MI))
    with started(driver, path, python(HOG), str(64 * MI)) as process:
        assert process.wait(60) == -9
    found = usage(driver, path, ["events", "memory"])
    assert found
    assert found.events_local
    assert found.events_local.oom_kill == 1
    assert found.events_local.max is not None
    assert found.events_local.max > 0
    assert found.cpu is None, "not asked for"


def throttling_is_counted(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    if driver.version == 2:
        run_write(driver, path, "cpu.max", "10000 100000")
    else:
        run_write(driver, path, "cpu.cfs_quota_us", "10000")
    with started(driver, path, "while :; do :; done"):
        reader = UsageReader(driver, path, ["cpu"])
        try:

            def throttled() -> bool:
                found = reader.read().cpu
                assert found
                return bool(found.throttled_periods and found.throttled_us and found.periods)

            eventually(throttled, "a busy loop with a tenth of a CPU is throttled")
        finally:
            reader.close()


def a_reader_belongs_to_its_cgroup(driver: Cgroupfs, root: str) -> None:
    path = f"{root}/pod1"
    run_make(driver, path)
    reader = UsageReader(driver, path)
    try:
        assert reader.read().pids
        run_remove(driver, path)
        run_make(driver, path)
        with pytest.raises(CgroupGoneError):
            reader.read()
    finally:
        reader.close()


def another_file_system_below_is_not_entered(driver: Cgroupfs, root: str) -> None:
    """tmpfs over a test cgroup, and a file over a control file: neither is read or written."""
    run_make(driver, f"{root}/evil")
    run_make(driver, f"{root}/good")
    with driver.directory(f"{root}/evil", "pids.max") as evil, driver.directory(f"{root}/good", "pids.max") as good:
        places = (evil.path, good.path)
    mounted: list[str] = []
    try:
        subprocess.run(["mount", "-t", "tmpfs", "none", places[0]], check=True)
        mounted.append(places[0])
        for name in ("pids.max", "cgroup.procs"):
            with open(f"{places[0]}/{name}", "w") as file:
                file.write("7\n")
        subprocess.run(["mount", "--bind", f"{places[0]}/pids.max", f"{places[1]}/pids.max"], check=True)
        mounted.append(f"{places[1]}/pids.max")
        for call in (
            lambda: driver.read(f"{root}/evil", ["pids.max"]),
            lambda: run_write(driver, f"{root}/evil", "pids.max", "8"),
            lambda: run_make(driver, f"{root}/evil/child"),
            lambda: asyncio.run(driver.move(f"{root}/evil", os.getpid())),
            lambda: driver.read(f"{root}/good", ["pids.max"]),
            lambda: run_write(driver, f"{root}/good", "pids.max", "8"),
        ):
            assert "another file system is mounted there" in str(refused(errno.EXDEV, call))
        with open(f"{places[0]}/pids.max") as file:
            assert file.read() == "7\n"
        assert not os.path.exists(f"{places[0]}/child")
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", place], check=True)
    run_write(driver, f"{root}/good", "pids.max", "8")


CHECKS = [
    life_of_a_cgroup,
    values_are_written_and_read_back,
    bad_values_change_nothing,
    hostile_names_are_refused,
    the_root_is_not_changed,
    processes_are_moved,
    frozen_processes_do_not_run,
    a_fork_bomb_is_killed,
    usage_is_reported,
    an_oom_kill_is_counted,
    throttling_is_counted,
    a_reader_belongs_to_its_cgroup,
    another_file_system_below_is_not_entered,
]
