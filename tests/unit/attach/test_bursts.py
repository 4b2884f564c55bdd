"""CPU bursts: a lower CPU limit is accepted at once, beside attach and after it, and the guard sees to the latter."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.attach.guard import BurstGuard
from plimsoll.attach.journal import GUARD_LOCK, AttachJournal, JournalError
from plimsoll.attach.service import AttachService
from plimsoll.cgroups.drivers.interface import CgroupError
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.codec.protobuf.structs import decode
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.linux.files.file_lock import take
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.rules.attach.values import BURST_V1, BURST_V2
from plimsoll.rules.attach.writes import Entry
from plimsoll.runtime.nri import messages as m
from tests.unit.attach.attach_node import AttachNode
from tests.unit.attach.mortal_node import MortalNode
from tests.unit.rules.attach import nodes
from tests.unit.rules.attach.nodes import resources

LIMITED = resources(cpu=("100m", "500m"))
LOWER = resources(cpu=("100m", "200m"))
POLICY = AttachPolicy(Switches(cpu_burst_percent=80))
WITHIN_S = 30.0


class Node(AttachNode):
    """With the quotas that the kubelet and the runtime write. `version`: of its cgroups."""

    def __init__(self, state: Path, version: int = 2, policy: AttachPolicy = POLICY) -> None:
        super().__init__(state, policy=policy, kernel=SimulatedKernel(version))  # type: ignore[arg-type]
        self.version, self.burst = version, BURST_V2 if version == 2 else BURST_V1
        if version == 1:
            self.service = AttachService(
                "n", nodes.node(1), self.service.scope, lambda: self.policy, self.book, self.journal, self.writer
            )

    async def quota(self, path: str, quota_us: int) -> None:
        file, value = ("cpu.max", f"{quota_us} 100000") if self.version == 2 else ("cpu.cfs_quota_us", str(quota_us))
        await self.kernel.write(path, file, value)

    async def running(self) -> tuple[m.PodSandbox, m.Container]:
        pod, container = await self.pod("a", LIMITED)
        await self.quota(self.pod_path, 50000)
        assert await self.created(pod, container) == {}
        await self.quota(self.container_path("a"), 50000)
        await self.service.round()
        assert self.bursts() == ("40000", "40000")
        return pod, container

    @property
    def pod_path(self) -> str:
        return "/kubepods/burstable/poduid-a"

    def bursts(self) -> tuple[str, str]:
        """Of the pod and of its container."""
        found = [self.kernel.read(path, (self.burst,)) for path in (self.pod_path, self.container_path("a"))]
        assert found[0] is not None and found[1] is not None
        return found[0].files[self.burst], found[1].files[self.burst]


def asked(quota_us: int) -> m.LinuxResources:
    return m.LinuxResources(cpu=m.LinuxCpu(m.OptionalInt(quota_us)))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_known", [True, False], ids=["new spec known", "old spec"])
async def test_a_lower_limit_is_accepted_at_once(tmp_path: Path, version: int, is_known: bool) -> None:
    """The kubelet asks the runtime, then writes the pod; attach may look at everything in between."""
    node = Node(tmp_path / "s", version)
    pod, container = await node.running()
    if is_known:
        await node.pod("a", LOWER)
    with pytest.raises(CgroupError):
        await node.quota(node.container_path("a"), 20000)
    answer = await node.service.plugin.updated(pod, container, asked(20000))
    assert answer is None  # a burst in the answer would be in the runtime's record
    await node.quota(node.container_path("a"), 20000)
    await node.service.round()
    await node.quota(node.pod_path, 20000)
    await node.pod("a", LOWER)
    await node.service.round()
    assert node.bursts() == ("16000", "16000")
    await node.writer.restore(list(node.journal.entries.values()))
    assert node.bursts() == ("0", "0") and not node.journal.entries


async def test_a_limit_that_is_raised_back_gets_its_burst_back(tmp_path: Path) -> None:
    node = Node(tmp_path / "s")
    pod, container = await node.running()
    for quota_us, bursts in ((20000, ("20000", "20000")), (-1, ("40000", "40000")), (30000, ("30000", "30000"))):
        await node.service.plugin.updated(pod, container, asked(quota_us))
        await node.service.round()
        assert node.bursts() == bursts
    await node.service.plugin.updated(pod, container, asked(0))  # about something else
    await node.service.round()
    assert node.bursts() == ("30000", "30000")


async def test_a_round_that_waits_for_the_runtime_does_not_raise_a_burst_again(tmp_path: Path) -> None:
    """Another policy changes memory, and bursts upwards; while the runtime carries that out, the kubelet asks it."""
    node = MortalNode(tmp_path / "s", AttachPolicy(Switches("tiered", cpu_burst_percent=20)))
    await node.prepare(["a"])
    await node.start()
    await node.connect()
    await node.create("a", 1)
    await node.start_container("a1")
    await node.round()
    path = node.runtime.containers["a1"].path
    pod_path = path.rpartition("/")[0]
    for each in (path, pod_path):
        await node.kernel.write_by_another(each, "cpu.max", "50000 100000")

    async def lowered() -> None:
        assert node.node is not None
        container = node.runtime.containers["a1"]
        await node.node.service.plugin.updated(container.pod, container.message, asked(20000))
        for each in (path, pod_path):
            await node.kernel.write_by_another(each, "cpu.max", "20000 100000")

    node.set_policy(AttachPolicy(Switches("tiered", factor=0.5, cpu_burst_percent=80)))
    await node.round(meanwhile=lowered())
    found = node.kernel.read(path, (BURST_V2, "cpu.max"))
    assert found is not None and found.files == {BURST_V2: "20000", "cpu.max": "20000 100000"}
    assert "cpu.max.burst" not in node.runtime.containers["a1"].record


async def test_bursts_end_with_attach_and_other_values_stay(tmp_path: Path) -> None:
    node = Node(tmp_path / "s", policy=AttachPolicy(Switches("tiered", cpu_burst_percent=80)))
    await node.running()
    entries = [entry.file for entry in node.journal.entries.values()]
    await node.service.end()
    assert node.bursts() == ("0", "0")
    assert entries and not [entry for entry in node.journal.entries.values() if entry.file == BURST_V2]
    await node.quota(node.container_path("a"), 20000)


@pytest.mark.parametrize("mode", ["observe", "canary", "enforce"])
async def test_every_attach_begins_with_the_bursts_from_before(tmp_path: Path, mode: str) -> None:
    """It and its guard were killed; a burst that another program has set since stays."""
    node = Node(tmp_path / "s")
    await node.running()
    await node.kernel.write(node.pod_path, BURST_V2, "1234")
    node.journal.close()
    node.restart(mode)  # type: ignore[arg-type]
    await node.service.begin()
    assert node.bursts() == ("1234", "0") and not node.journal.entries


async def test_a_burst_that_the_runtime_was_given_by_an_earlier_version(tmp_path: Path) -> None:
    """The runtime has to forget it; until then, the journal keeps the entry."""
    node = MortalNode(tmp_path / "s", POLICY)
    await node.prepare(["a"])
    await node.create("a", 1)
    await node.start_container("a1")
    container = node.runtime.containers["a1"]
    container.record = {BURST_V2: "25000"}
    await node.kernel.write_by_another(container.path, "cpu.max", "50000 100000")
    await node.runtime.write_record(container)
    group = node.kernel.read(container.path, ())
    assert group is not None
    await node.start()
    assert node.node is not None
    node.node.journal.record([Entry(container.path, BURST_V2, "0", "25000", group.inode, "a1")])
    await node.node.service.begin()
    assert node.kernel.read(container.path, (BURST_V2,)).files == {BURST_V2: "0"}  # type: ignore[union-attr]
    assert [entry.container_id for entry in node.node.journal.entries.values()] == ["a1"]
    await node.connect()
    await node.round()
    assert container.record == {BURST_V2: "0"}
    await node.round()
    assert node.kernel.read(container.path, (BURST_V2,)).files == {BURST_V2: "40000"}  # type: ignore[union-attr]
    assert not any(entry.container_id for entry in node.node.journal.entries.values())


def test_a_journal_of_the_form_before(tmp_path: Path) -> None:
    entries = AppendLog(tmp_path / "journal")
    old = b'{"path":"/a","file":"memory.high","before":"max","wanted":"8192","inode":7,"previous":"4096"}'
    entries.write({"boot": b'"boot"', "/a\tmemory.high": old})
    journal = AttachJournal(tmp_path)
    tmp_path.chmod(0o700)
    journal.open("boot")
    assert list(journal.entries.values()) == [Entry("/a", "memory.high", "max", "8192", 7, previous=("4096",))]
    journal.close()


# The guard


class Guarded:
    """A guard that writes a line to a file in the end."""

    def __init__(self, directory: Path) -> None:
        self.said = directory / "said"
        self.lock = take(directory / GUARD_LOCK)
        self.guard = BurstGuard(directory, ("sh", "-c", f"echo done >> {self.said}"))

    def start(self) -> str:
        return self.guard.start(self.lock)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    made = Guarded(tmp_path)
    yield made
    made.guard.stop()
    os.close(made.lock)


STARTS = """
import asyncio, sys
from pathlib import Path
from plimsoll.attach.guard import BurstGuard
from plimsoll.codec.protobuf.structs import decode
from plimsoll.linux.files.file_lock import take
from plimsoll.linux.files.state_dir import private_directory

async def main(directory, *command):
    guard = BurstGuard(Path(directory), command)
    print(guard.start(take(Path(directory, "guard-lock"))), guard.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_guard_acts_when_attach_has_ended_and_keeps_its_lock_until_then(tmp_path: Path, number: int) -> None:
    """Signals that end other processes of a unit do not end it."""
    fifo, said = tmp_path / "fifo", tmp_path / "said"
    os.mkfifo(fifo)
    command = ("sh", "-c", f"cat {fifo} > {said}")
    arguments = [sys.executable, "-c", STARTS, str(tmp_path), *command]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert os.getsid(pid) == pid
        for blocked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, blocked)
        os.kill(process.pid, number)
    tmp_path.chmod(0o700)
    with pytest.raises(JournalError, match=r"the guard of an attach that has ended still works after 0\.1 s"):
        AttachJournal(tmp_path).open("boot", guard_s=0.1)
    fifo.write_text("done")
    os.close(take(tmp_path / GUARD_LOCK, WITHIN_S))
    assert said.read_text() == "done"


async def test_the_next_attach_waits_for_the_guard(tmp_path: Path) -> None:
    directory = private_directory(tmp_path / "s")
    lock, journal = take(directory / GUARD_LOCK), AttachJournal(directory)
    opening = asyncio.create_task(asyncio.to_thread(journal.open, "boot"))
    done, _ = await asyncio.wait({opening}, timeout=0.2)
    assert not done
    os.close(lock)
    await opening
    journal.close()


async def test_a_guard_that_is_killed_is_started_again_a_few_times(guarded: Guarded) -> None:
    changed = asyncio.Event()
    guarded.guard.changed = changed.set
    assert guarded.start() == ""
    pids = set()
    async with asyncio.timeout(WITHIN_S):
        while pid := guarded.guard.pid:
            pids.add(pid)
            os.kill(pid, signal.SIGKILL)
            await changed.wait()
            changed.clear()
    assert len(pids) == 5
    assert "ended again and again" in guarded.start()
    assert not guarded.said.exists()


async def test_bursts_are_set_only_beside_a_guard(guarded: Guarded, tmp_path: Path) -> None:
    node = Node(tmp_path / "s")
    node.service.guard, guard = guarded.guard, guarded.guard
    node.journal.guard_lock, own = guarded.lock, node.journal.guard_lock
    try:
        await node.running()
        assert guard.pid
        node.policy = AttachPolicy()
        await node.service.round()
        assert (guard.pid, node.bursts()) == (0, ("0", "0"))  # nothing to take back
        node.policy = POLICY
        await node.service.round()
        assert guard.pid and node.bursts() == ("40000", "40000")
        guard.stop()
        guard._ended_s = [asyncio.get_running_loop().time()] * 5
        await node.service.round()
        assert (guard.pid, node.bursts()) == (0, ("0", "0"))
        (problem,) = node.service.status().problems
        assert problem.startswith("no CPU burst is set: ")
        node.policy = AttachPolicy()
        await node.service.round()
        assert node.service.status().problems == ()
    finally:
        node.journal.guard_lock = own


async def test_a_guard_is_not_needed_for_an_end_that_restores(guarded: Guarded, tmp_path: Path) -> None:
    node = Node(tmp_path / "s")
    node.service.guard = guarded.guard
    await node.running()
    assert guarded.guard.pid
    await node.service.end()
    assert (guarded.guard.pid, node.bursts()) == (0, ("0", "0"))
    assert not guarded.said.exists()


def test_a_quota_in_the_wire_form() -> None:
    """LinuxResources.cpu is field 2, LinuxCPU.quota field 2, its value an int64 in field 1."""
    assert decode(m.LinuxResources, b"\x12\x06\x12\x04\x08\xa0\x9c\x01") == asked(20000)
    assert decode(m.LinuxResources, b"\x12\x0d\x12\x0b\x08" + b"\xff" * 9 + b"\x01") == asked(-1)
