"""attach is killed at every write: the kernel has the value before or the wanted one, and detach restores all of them.

The tree is a real one, without processes. A child process runs one round of the service and is killed (SIGKILL) before
or after its n-th call of `write`, or in the middle of it if it writes to the journal.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from plimsoll.attach.guard import BurstGuard
from plimsoll.attach.journal import GUARD_LOCK, GUARD_S, AttachJournal
from plimsoll.attach.pods import PodBook
from plimsoll.attach.service import AttachService, Mode, Scope
from plimsoll.attach.writer import AttachWriter
from plimsoll.audit.attached import boot_id
from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.linux.files.file_lock import take
from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.rules.attach.values import BURSTS
from plimsoll.rules.config.parse import reading
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_of

Moment = Literal["before", "after", "torn"]
MOMENTS: tuple[Moment, ...] = ("before", "after", "torn")
POLICY = AttachPolicy(Switches("tiered", oom_group="container", cpu_burst_percent=20))
NEXT_POLICY = AttachPolicy(Switches("tiered", factor=0.5, oom_group="process", cpu_burst_percent=30))
# The journal is written twice, as two files; then the first cgroups.
FIRST_WRITES = range(1, 5)
FILES = ("memory.min", "memory.low", "memory.high", "memory.oom.group", "cpu.max.burst", "cpu.cfs_burst_us")
RESOURCES = {"requests": {"cpu": "100m", "memory": "8Mi"}, "limits": {"cpu": "500m", "memory": "16Mi"}}
MEMORY_BYTES = 8 << 30

Tree = dict[str, dict[str, str]]


class KillBench:
    def __init__(self, root: str, pods: int, state: Path) -> None:
        """`root`: an empty cgroup's path; it is made here."""
        self.driver = open_cgroupfs(this_host())
        self.state, self.rounds = state, 0
        profile = profile_of("v1.36.0", "").profile
        config = reading({"cgroupRoot": root, "cgroupDriver": "cgroupfs", "failCgroupV1": False}, profile).config
        machine = Machine(2, MEMORY_BYTES, {}, 0, name="n")
        self.setting: NodeConfig = resolved(machine, config, profile, cgroup_version=self.driver.version)
        self.pods = [audited_pod(msgspec.json.encode(pod_document(index))) for index in range(pods)]
        self.paths = [root, f"{root}/kubepods", f"{root}/kubepods/burstable"]
        for index in range(pods):
            path = f"{root}/kubepods/burstable/poduid-{index}"
            self.paths += [path, f"{path}/id{index}"]

    async def make(self) -> None:
        for path in self.paths:
            await self.driver.make(path)
            if "/pod" in path:
                quota = {"cpu.max": "50000 100000"} if self.driver.version == 2 else {"cpu.cfs_quota_us": "50000"}
                for file, value in quota.items():
                    await self.driver.write(path, file, value)

    def tree(self) -> Tree:
        found = {path: self.driver.read(path, FILES) for path in self.paths}
        return {path: dict(group.files) for path, group in found.items() if group is not None}

    @property
    def directory(self) -> Path:
        return self.state / str(self.rounds)

    def service(self, mode: Mode, policy: AttachPolicy, *, is_guarded: bool = False) -> AttachService:
        journal = AttachJournal(self.directory)
        journal.open(boot_id())
        writer = AttachWriter(self.driver, journal, 4096)
        scope = Scope(mode, frozenset({"default"}))
        guard = BurstGuard(self.directory) if is_guarded else None
        service = AttachService("n", self.setting, scope, lambda: policy, PodBook(), journal, writer, guard)
        service.book.put(self.pods)
        return service

    async def wanted(self, policy: AttachPolicy = POLICY) -> Tree:
        """The tree after a round that was not killed; restored again."""
        self.rounds += 1
        service = self.service("enforce", policy)
        await service.round()
        found = self.tree()
        await service.writer.restore(list(service.journal.entries.values()))
        service.journal.close()
        return found

    def killed(
        self,
        mode: Mode,
        number: int,
        moment: Moment,
        policy: AttachPolicy = POLICY,
        *,
        again: bool = False,
        is_guarded: bool = False,
    ) -> bool:
        """One round in a child that is killed at its n-th write; whether it came that far. `again`: with the journal of
        the child before."""
        self.rounds += not again
        child = os.fork()
        if child == 0:
            try:
                _kill_at(number, moment)
                asyncio.run(self.service(mode, policy, is_guarded=is_guarded).round())
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)

    async def restored(self) -> list[Any]:
        """As `plimsoll detach` does."""
        journal = AttachJournal(self.directory)
        journal.open(boot_id())
        done = await AttachWriter(self.driver, journal, 4096).restore(list(journal.entries.values()))
        journal.close()
        return done


def pod_document(index: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"p{index}", "namespace": "default", "uid": f"uid-{index}"},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": RESOURCES}]},
        "status": {
            "containerStatuses": [{"name": "main", "containerID": f"containerd://id{index}", "state": {"running": {}}}]
        },
    }


def _kill_at(number: int, moment: Moment) -> None:
    """In the child: replace `os.write`, which everything here uses for files."""
    real, count = os.write, 0

    def write(fd: int, data: Any) -> int:
        nonlocal count
        count += 1
        if count != number:
            return real(fd, data)
        if moment == "torn" and not os.readlink(f"/proc/self/fd/{fd}").startswith("/sys/fs/cgroup/"):
            real(fd, bytes(data)[: len(data) // 2])
        elif moment == "after":
            real(fd, data)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    os.write = write


async def check_kills(bench: KillBench, numbers: Iterable[int], moments: Iterable[Moment] = MOMENTS) -> int:
    """How many kills there were."""
    before = bench.tree()
    wanted = await bench.wanted()
    assert bench.tree() == before
    assert wanted != before
    kills = 0
    modes: tuple[Mode, ...] = ("enforce", "canary", "observe")
    for number in numbers:
        for index, moment in enumerate(moments):
            mode = modes[(number + index) % 3] if number % 7 == 0 else "enforce"
            kills += bench.killed(mode, number, moment)
            check_texts(bench, (before, wanted), (number, moment))
            if mode == "observe":
                assert bench.tree() == before
            await check_detach(bench, before, (number, moment))
    return kills


async def check_double_kills(bench: KillBench, numbers: Iterable[int]) -> int:
    """How many pairs of kills there were: the second child, with another policy, did not get beyond its first writes."""
    before = bench.tree()
    trees = (before, await bench.wanted(), await bench.wanted(NEXT_POLICY))
    assert trees[1] != trees[2]
    pairs = 0
    for number in numbers:
        for index, (second, moment) in enumerate(itertools.product(FIRST_WRITES, MOMENTS)):
            first_moment = MOMENTS[(number + index) % 3]
            is_first = bench.killed("enforce", number, first_moment)
            is_second = bench.killed("enforce", second, moment, NEXT_POLICY, again=True)
            pairs += is_first and is_second
            where = (number, first_moment, second, moment)
            check_texts(bench, trees, where)
            await check_detach(bench, before, where)
    return pairs


async def check_guarded_kills(bench: KillBench, numbers: Iterable[int]) -> int:
    """How many kills there were after which the guard has taken all bursts back. Other values stay as they are."""
    before = bench.tree()
    wanted = await bench.wanted()
    kills = 0
    for number in numbers:
        moment = MOMENTS[number % 3]
        kills += bench.killed("enforce", number, moment, is_guarded=True)
        os.close(take(bench.directory / GUARD_LOCK, GUARD_S))
        check_texts(bench, (before, wanted), (number, moment))
        for path, files in bench.tree().items():
            assert all(text == before[path][file] for file, text in files.items() if file in BURSTS), (path, number)
        await check_detach(bench, before, (number, moment))
    return kills


def check_texts(bench: KillBench, trees: Iterable[Tree], where: object) -> None:
    """Every file has the text of one of these trees."""
    for path, files in bench.tree().items():
        for file, text in files.items():
            assert text in [tree[path][file] for tree in trees], (path, file, text, where)


async def check_detach(bench: KillBench, before: Tree, where: object) -> None:
    done = await bench.restored()
    assert {each.outcome for each in done} <= {"restored", "already"}, (where, done)
    assert bench.tree() == before, where
