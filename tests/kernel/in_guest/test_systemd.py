"""The systemd driver against a real systemd: PID 1 of the guest, on cgroup v2 or v1."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.dbus import BusLostError, SystemdBus
from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupError, CgroupGoneError
from plimsoll.cgroups.drivers.systemd import SystemdCgroups
from plimsoll.cgroups.engine import scope_holder
from plimsoll.rules.cgroups.rounding import same_value
from tests.kernel.in_guest.systemd_units import (
    directories,
    eventually,
    remove_all,
    show,
    shown,
    stem,
    systemctl,
    text_of,
    unit,
)

MIB = 1 << 20
SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
PRIVATE = "unix:path=/run/systemd/private"
DELAY_S = 8

Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.skipif(Path("/proc/1/comm").read_text() != "systemd\n", reason="systemd is not PID 1 here")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="module")
def driver(run: Run) -> Iterator[SystemdCgroups]:
    made = SystemdCgroups(open_cgroupfs(this_host()))
    yield made
    run(made.close())


@pytest.fixture
def slice_path(driver: SystemdCgroups, run: Run) -> Iterator[str]:
    """A slice of its own for each test, removed with all below it."""
    path = f"/plimsoll_test_{os.urandom(4).hex()}.slice"
    run(driver.make(path))
    yield path
    run(remove_all(driver, path))


@pytest.fixture
def scope(driver: SystemdCgroups, run: Run, slice_path: str) -> str:
    """A scope in it, kept by a holder."""
    path = f"{slice_path}/{stem(slice_path)}-one.scope"
    run(driver.make(path, pid=scope_holder.start(path)))
    return path


# --- making and removing


def test_slices_are_nested_units_with_their_controllers(driver: SystemdCgroups, run: Run, slice_path: str) -> None:
    top = stem(slice_path)
    middle = f"{slice_path}/{top}-burstable.slice"
    pod = f"{middle}/{top}-burstable-pod12_34.slice"
    run(driver.make(middle))
    run(driver.make(pod))
    assert driver.children(slice_path) == [unit(middle)]
    expected = {
        "ActiveState": "active",
        "Slice": unit(middle),
        "Wants": unit(middle),
        "Description": f"libcontainer container {unit(pod)}",
        "DefaultDependencies": "no",
        "MemoryAccounting": "yes",
        "CPUAccounting": "yes",
        "TasksAccounting": "yes",
        "IOAccounting" if driver.version == 2 else "BlockIOAccounting": "yes",
    }
    assert shown(pod, *expected) == expected
    files = ["cpu.weight", "memory.max"] if driver.version == 2 else ["cpu.shares", "memory.limit_in_bytes"]
    seen = driver.read(pod, [*files, "pids.max"])
    assert seen is not None
    assert sorted(seen.files) == sorted([*files, "pids.max"])


def test_a_scope_is_made_around_a_process_and_delegated(driver: SystemdCgroups, run: Run, scope: str) -> None:
    (pid,) = driver.members(scope)
    assert scope_holder.scope_of(pid) == scope
    assert show(scope, "Delegate") == "yes"
    assert show(scope, "Slice") == unit(scope.rpartition("/")[0])
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    used = [line for line in lines if line.endswith(scope)]
    assert len(used) == (1 if driver.version == 2 else len(driver_hierarchies(lines))), lines


def driver_hierarchies(lines: list[str]) -> list[str]:
    return [line for line in lines if line.split(":")[1] not in ("net_cls", "net_prio", "perf_event", "rdma", "misc")]


def test_a_scope_ends_with_its_last_process(driver: SystemdCgroups, run: Run, scope: str) -> None:
    (pid,) = driver.members(scope)
    assert scope_holder.end(pid, scope)
    run(remove_all(driver, scope))
    assert eventually(lambda: show(scope, "LoadState") == "not-found")
    assert directories(scope) == []
    with pytest.raises(CgroupGoneError):
        run(driver.remove(scope))


def test_a_second_process_can_move_in(driver: SystemdCgroups, run: Run, scope: str) -> None:
    with process("sleep", "60") as pid:
        run(driver.move(scope, pid))
        assert pid in driver.members(scope)
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        assert all(line.endswith(scope) for line in driver_hierarchies(lines)), lines


def test_memory_is_reclaimed(driver: SystemdCgroups, run: Run, scope: str) -> None:
    """By a command, a file that cannot be read."""
    file, amount = ("memory.reclaim", "4096") if driver.version == 2 else ("memory.force_empty", "0")
    try:
        run(driver.write(scope, file, amount))
    except CgroupError as error:
        assert error.errno in (errno.EAGAIN, errno.EBUSY)  # less than that could be reclaimed


def test_freeze_and_kill(driver: SystemdCgroups, run: Run, slice_path: str) -> None:
    path = f"{slice_path}/{stem(slice_path)}-two.scope"
    with process("sh", "-c", "while :; do :; done") as pid:
        run(driver.make(path, pid=pid))
        run(driver.freeze(path, frozen=True))
        ticks = cpu_ticks(pid)
        assert not eventually(lambda: cpu_ticks(pid) > ticks, 0.5)
        run(driver.freeze(path, frozen=False))
        assert eventually(lambda: cpu_ticks(pid) > ticks)
        run(driver.kill(path))
        assert driver.members(path) == []


@contextmanager
def process(*argv: str) -> Iterator[int]:
    started = subprocess.Popen(argv)
    try:
        yield started.pid
    finally:
        started.kill()
        started.wait()


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_removing_leaves_nothing(driver: SystemdCgroups, run: Run) -> None:
    top = f"/plimsoll_test_{os.urandom(4).hex()}.slice"
    pod = f"{top}/{stem(top)}-pod1.slice"
    scope = f"{pod}/{stem(top)}-c.scope"
    for path in (top, pod):
        run(driver.make(path))
        run(driver.write(path, "pids.max", "100"))
    run(driver.make(scope, pid=scope_holder.start(scope)))
    run(driver.write(scope, "pids.max", "10"))
    with pytest.raises(CgroupError) as busy:
        run(driver.remove(pod))
    assert busy.value.errno == errno.EBUSY
    run(driver.kill(scope))
    for path in (scope, pod, top):
        try:
            run(driver.remove(path))
        except CgroupGoneError:
            assert path == scope  # systemd was quicker
    for path in (scope, pod, top):
        assert eventually(lambda path=path: show(path, "ActiveState") == "inactive"), path  # type: ignore[misc]
        assert directories(path) == []
        assert [str(found) for found in Path("/run/systemd").rglob(f"{unit(path)}*")] == []


# --- values

# Rounds of (file, text, property, as systemctl shows it).
WRITES = {
    2: [
        [
            ("cpu.weight", "39", "CPUWeight", "39"),
            ("cpu.max", "26000 100000", "CPUQuotaPerSecUSec", "260ms"),
            ("memory.min", str(8 * MIB), "MemoryMin", str(8 * MIB)),
            ("memory.low", str(12 * MIB), "MemoryLow", str(12 * MIB)),
            ("memory.high", str(48 * MIB), "MemoryHigh", str(48 * MIB)),
            ("memory.max", str(64 * MIB), "MemoryMax", str(64 * MIB)),
            ("memory.swap.max", "0", "MemorySwapMax", "0"),
            ("pids.max", "max", "TasksMax", "infinity"),
        ],
        [
            ("cpu.max", "max 100000", "CPUQuotaPerSecUSec", "infinity"),
            ("memory.high", "max", "MemoryHigh", "infinity"),
        ],
        [
            ("cpu.max", "10000 50000", "CPUQuotaPerSecUSec", "200ms"),
            ("memory.max", str(60 * MIB + 1234), "MemoryMax", str(60 * MIB + 1234)),
            ("pids.max", "123", "TasksMax", "123"),
        ],
    ],
    1: [
        [
            ("cpu.shares", "256", "CPUShares", "256"),
            ("cpu.cfs_quota_us", "26000", "CPUQuotaPerSecUSec", "260ms"),
            ("memory.limit_in_bytes", str(64 * MIB), "MemoryLimit", str(64 * MIB)),
            ("pids.max", "max", "TasksMax", "infinity"),
        ],
        [
            ("cpu.cfs_period_us", "50000", "CPUQuotaPerSecUSec", "520ms"),
            ("memory.limit_in_bytes", "-1", "MemoryLimit", "infinity"),
        ],
        [("cpu.cfs_quota_us", "-1", "CPUQuotaPerSecUSec", "infinity")],
        [
            ("cpu.cfs_period_us", "50000", "CPUQuotaPeriodUSec", "50ms"),
            ("cpu.cfs_quota_us", "10000", "CPUQuotaPerSecUSec", "200ms"),
            ("memory.limit_in_bytes", str(60 * MIB), "MemoryLimit", str(60 * MIB)),
            ("pids.max", "123", "TasksMax", "123"),
        ],
    ],
}


def test_every_value_lands_in_file_and_unit_and_survives_daemon_reload(
    driver: SystemdCgroups, run: Run, slice_path: str, scope: str
) -> None:
    kept: dict[tuple[str, str], str] = {}
    for path in (scope, slice_path):  # v1 takes no quota below one that is smaller
        for number, row in enumerate(WRITES[driver.version]):
            writes = [write for write in row if driver.has(write[0]) is None]
            assert {write[0] for write in row} - {write[0] for write in writes} <= {"memory.swap.max"}
            for file, value, *_ in writes:
                run(driver.write(path, file, value))
                kept[path, file] = value
            properties = shown(path, *(name for _, _, name, _ in writes))
            assert properties == {name: text for _, _, name, text in writes}, f"round {number} of {path}"
            for file, value, *_ in writes:
                found = text_of(driver, path, file)
                assert same_value(file, value, found), f"round {number} of {path}: {file} is {found}"
    run(driver.files.write(slice_path, "pids.max", "321"))
    systemctl("daemon-reload")
    # That one value, written past systemd, is written over: so systemd has been here, and the others have survived it.
    assert eventually(lambda: text_of(driver, slice_path, "pids.max") == kept[slice_path, "pids.max"])
    after = {(path, file): text_of(driver, path, file) for path, file in kept}
    assert {key: text for key, text in after.items() if not same_value(key[1], kept[key], text)} == {}


def test_what_is_changed_past_systemd(driver: SystemdCgroups, run: Run, slice_path: str, scope: str) -> None:
    """Seen and set again by us; left to itself, lost at daemon-reload, which is why the driver sets them through systemd."""
    file, ours, theirs = (
        ("memory.max", str(64 * MIB), str(80 * MIB)) if driver.version == 2 else ("cpu.shares", "512", "1000")
    )
    for path in (slice_path, scope):
        run(driver.write(path, file, ours))
        run(driver.files.write(path, file, theirs))
        assert text_of(driver, path, file) == theirs
    run(driver.write(scope, file, ours))
    assert text_of(driver, scope, file) == ours
    systemctl("daemon-reload")
    assert eventually(lambda: text_of(driver, slice_path, file) == ours)
    assert text_of(driver, scope, file) == ours


def test_what_the_kernel_refuses_is_taken_back_from_systemd(driver: SystemdCgroups, run: Run, scope: str) -> None:
    file, good, bad = (
        ("cpu.max", "50000 100000", "500 100000") if driver.version == 2 else ("cpu.cfs_quota_us", "50000", "500")
    )
    run(driver.write(scope, file, good))
    with pytest.raises(CgroupError) as refused:
        run(driver.write(scope, file, bad))
    assert refused.value.errno == errno.EINVAL
    assert shown(scope, "CPUQuotaPerSecUSec") == {"CPUQuotaPerSecUSec": "500ms"}
    assert text_of(driver, scope, file) == good


def test_a_file_without_property_stays_beside_those_that_have_one(driver: SystemdCgroups, run: Run, scope: str) -> None:
    file, value = ("memory.oom.group", "1") if driver.version == 2 else ("memory.swappiness", "10")
    run(driver.write(scope, file, value))
    for other, text, *_ in WRITES[driver.version][0]:
        if driver.has(other) is None:
            run(driver.write(scope, other, text))
            assert text_of(driver, scope, file) == value, f"after {other}"


def test_below_a_scope_there_are_only_files(driver: SystemdCgroups, run: Run, slice_path: str) -> None:
    outside = f"{slice_path}/{stem(slice_path)}-crun.scope"
    inside = f"{outside}/container"
    with process("sleep", "60") as pid:
        run(driver.make(outside, pid=pid))
        for directory in directories(outside):  # as crun does: away from the scope itself, so that it can have children
            os.mkdir(f"{directory}/aside")
            Path(f"{directory}/aside/cgroup.procs").write_text(str(pid))
        run(driver.files.make(inside))
        run(driver.write(inside, "pids.max", "7"))
        assert text_of(driver, inside, "pids.max") == "7"
        run(driver.remove(inside))
        assert directories(inside) == []


# --- refusals


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/x@1.slice", id="template"),
        pytest.param("/a\\x2db.slice", id="escape"),
        pytest.param("/a--b.slice", id="empty-part"),
        pytest.param("/-.slice", id="root-slice"),
        pytest.param("/.slice", id="no-stem"),
        pytest.param("/a.slice/b.slice", id="not-its-child"),
        pytest.param("/a.slice/../b.slice", id="dots"),
        pytest.param("/a\n.slice", id="newline"),
        pytest.param("/a b.slice", id="blank"),
        pytest.param("/ä.slice", id="letter-beyond-ascii"),
        pytest.param("/job.service", id="service"),
        pytest.param("/kubepods", id="no-kind"),
        pytest.param(f"/{'a' * 250}.slice", id="256-characters"),
        pytest.param("/-x.scope", id="like-an-option"),
    ],
)
def test_hostile_names_are_refused_without_a_call(driver: SystemdCgroups, run: Run, path: str) -> None:
    alone = SystemdCgroups(driver.files, SystemdBus("unix:path=/nowhere", connect_s=0.1))
    before = sorted(Path("/sys/fs/cgroup").rglob("*.slice"))
    for attempt in (
        alone.make(path, pid=os.getpid()),
        alone.write(path, "pids.max", "5"),
        alone.remove(path),
        alone.move(path, os.getpid()),
        alone.kill(path),
    ):
        with pytest.raises(CgroupError) as refused:
            run(attempt)
        assert refused.value.errno in (errno.EINVAL, errno.ENAMETOOLONG), refused.value
    assert sorted(Path("/sys/fs/cgroup").rglob("*.slice")) == before


@pytest.mark.parametrize("path", ["/", "/system.slice", "/init.scope"])
def test_the_machines_own_units_are_not_touched(driver: SystemdCgroups, run: Run, path: str) -> None:
    for attempt in (driver.make(path, pid=os.getpid()), driver.remove(path), driver.kill(path)):
        with pytest.raises(CgroupError) as refused:
            run(attempt)
        assert refused.value.errno == errno.EPERM


def test_systemds_own_message_is_raised(driver: SystemdCgroups, run: Run, slice_path: str) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(CgroupError) as refused:
        run(driver.make(f"{slice_path}/{stem(slice_path)}-late.scope", pid=ended.pid))
    assert "systemd: " in refused.value.detail
    assert str(ended.pid) in refused.value.detail


def test_wrong_orders_are_refused(driver: SystemdCgroups, run: Run, slice_path: str) -> None:
    cases = [
        (driver.make(slice_path), errno.EEXIST),
        (driver.make(f"{slice_path}/{stem(slice_path)}-x.scope"), errno.EINVAL),
        (driver.make(f"{slice_path}/{stem(slice_path)}-a.slice/{stem(slice_path)}-a-b.slice"), errno.ENOENT),
        (driver.write(f"{slice_path}/{stem(slice_path)}-none.slice", "pids.max", "5"), errno.ENOENT),
        (driver.write(slice_path, "pids.max", "5\n6"), errno.EINVAL),
        (driver.remove(f"{slice_path}/{stem(slice_path)}-none.slice"), errno.ENOENT),
    ]
    for attempt, number in cases:
        with pytest.raises(CgroupError) as refused:
            run(attempt)
        assert refused.value.errno == number, refused.value


# --- the way to systemd


@pytest.fixture
def slow_bus() -> Iterator[None]:
    """dbus-daemon takes DELAY_S to start; it is stopped now, and its socket waits for the first client."""
    dropin = Path("/run/systemd/system/dbus.service.d/slow.conf")
    dropin.write_text(f"[Service]\nExecStartPre=/bin/sleep {DELAY_S}\n")
    systemctl("daemon-reload")
    systemctl("stop", "dbus.service")
    systemctl("start", "dbus.socket")
    yield
    dropin.unlink()
    systemctl("daemon-reload")
    systemctl("start", "dbus.socket")


def test_a_slow_first_start_of_the_bus_is_waited_for(driver: SystemdCgroups, run: Run, slow_bus: None) -> None:
    first = SystemdCgroups(
        driver.files, SystemdBus(SYSTEM_BUS)
    )  # the address alone: no way round by the private socket
    path = f"/plimsoll_test_{os.urandom(4).hex()}.slice"
    started = time.monotonic()
    run(first.make(path))
    assert time.monotonic() - started > DELAY_S - 1
    run(first.write(path, "pids.max", "33"))
    assert show(path, "TasksMax") == "33"
    run(first.remove(path))
    run(first.bus.close())


def test_a_bus_that_never_answers_times_out(driver: SystemdCgroups, run: Run, slow_bus: None) -> None:
    bus = SystemdBus(SYSTEM_BUS, connect_s=1.0)
    started = time.monotonic()
    with pytest.raises(BusLostError, match="no answer within 1 s"):
        run(bus.call("GetUnit", "s", ["job.service"]))
    assert time.monotonic() - started < DELAY_S - 1


def test_a_lost_connection_is_made_again(driver: SystemdCgroups, run: Run, slice_path: str) -> None:
    systemctl("restart", "dbus.service")
    run(driver.write(slice_path, "pids.max", "44"))
    assert show(slice_path, "TasksMax") == "44"


def test_without_any_bus_root_asks_systemd_directly(driver: SystemdCgroups, run: Run) -> None:
    systemctl("stop", "dbus.socket", "dbus.service")
    try:
        for bus in (SystemdBus(PRIVATE), SystemdBus()):
            alone = SystemdCgroups(driver.files, bus)
            path = f"/plimsoll_test_{os.urandom(4).hex()}.slice"
            run(alone.make(path))
            run(alone.write(path, "pids.max", "55"))
            assert show(path, "TasksMax") == "55"
            run(alone.remove(path))
            assert directories(path) == []
            run(bus.close())
    finally:
        systemctl("start", "dbus.socket")
