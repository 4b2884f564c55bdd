"""A node of our own on a real kernel, with containers that obey commands: what the effects' tests share.

The cgroups come from pods through the rules and `CgroupManager`, as `plimsoll cgroup apply` makes them; nothing in them is
written by hand. Everything is below `/plimsoll-test-<random>`, which is removed at the end.

A `Worker` is one process of a container. It waits until it is in its cgroup, then it becomes a small Python program
that obeys lines: it takes memory and reports how far it has come, reads a file, loops, forks, or counts how long it did
not get to run. Its memory is its own: some 7 MiB for the interpreter come on top.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cgroups.engine.transaction import Applied
from plimsoll.cgroups.stats.usage import CpuUsage, MemoryEvents, MemoryUsage, usage
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.linux.machine import this_machine
from plimsoll.linux.processes import ScoreAdjustment, set_oom_score_adj
from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import HUGEPAGES_PREFIX, Pod
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resources.defaulting import defaulted

Resources = Mapping[str, Mapping[str, str]]

MIB = 1 << 20
KILLED = -9
REGULAR_S = 0.02  # between two beats of a worker that gets to run
SOON_S = 60.0  # for what takes less than a second on an idle machine

_PROGRAM = """
import array, mmap, os, select, sys, time

taken, files = [], []

def say(*words):
    print(*words, flush=True)

def take(mebibytes, flags=0, page=4096):
    # Private and anonymous: it can only go when we let go of it.
    memory = mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    taken.append(memory)
    for done in range(mebibytes):
        for at in range(done << 20, done + 1 << 20, page):
            memory[at] = 1
        say(done + 1)

def huge(mebibytes):
    take(mebibytes, 0x40000, 2 << 20)

def give(after_s=0):
    time.sleep(after_s)
    for memory in taken:
        memory.close()
    taken.clear()

def read(path):
    files.append(open(path, "rb", buffering=0))
    while files[-1].read(1 << 20):
        pass

def loop(cpu):
    os.sched_setaffinity(0, {cpu})
    say("looping")
    while True:
        pass

def fork(most):
    children = []
    try:
        while len(children) < most:
            pid = os.fork()
            if pid == 0:
                os.read(0, 1)
                os._exit(0)
            children.append(pid)
        say(len(children), "all")
    except OSError as error:
        say(len(children), error.strerror)
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)

def beat():
    # All memory that it needs is there before it begins: it may come to live below memory.high.
    beats, count = array.array("d", bytes(8 * 30000)), 0
    beats[:] = array.array("d", [1.0]) * len(beats)
    say("beating")
    while not select.select([0], [], [], 0.001)[0]:
        if count < len(beats):
            beats[count] = time.monotonic()
            count += 1
    sys.stdin.readline()
    say(*(round(at, 6) for at in beats[:count]))

def ping():
    pass

for line in iter(sys.stdin.readline, ""):
    name, *words = line.split()
    globals()[name](*(int(word) if word.isdigit() else word for word in words))
    say("done")
"""


class Worker:
    """One process, and the lines it prints."""

    def __init__(self) -> None:
        # The shell reads its one line byte by byte, so that all others are the program's.
        taken = ["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", sys.executable, "-I", "-S", "-c", _PROGRAM]
        self.process = subprocess.Popen(taken, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdin
        assert self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, *words: object) -> None:
        """Send a command; its result is in the lines that follow."""
        self._in.write(" ".join(map(str, words)).encode() + b"\n")
        self._in.flush()

    def do(self, *words: object, deadline_s: float = SOON_S) -> str:
        """Send a command and wait until it is done; returns the last line before."""
        self.send(*words)
        return self.until("done", deadline_s)

    def until(self, word: str, deadline_s: float = SOON_S) -> str:
        """Everything up to that line; the one before it comes back."""
        end, last = time.monotonic() + deadline_s, ""
        while (line := self.line(end - time.monotonic())) != word:
            assert line is not None, f"{word!r} did not come within {deadline_s:g} s, last was {last!r}: {self.ended()}"
            last = line
        return last

    def line(self, deadline_s: float) -> str | None:
        """None where none came in time, or the process has ended."""
        end = time.monotonic() + deadline_s
        while b"\n" not in self._rest:
            if not select.select([self._out], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            if not (more := os.read(self._out.fileno(), 65536)):
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def until_end(self) -> str:
        """The last line of a process that has ended."""
        last = ""
        while (line := self.line(SOON_S)) is not None:
            last = line
        return last

    def ended(self) -> int | None:
        return self.process.poll()

    def lives(self) -> bool:
        """It does not only exist, it answers."""
        return self.ended() is None and self.do("ping") == ""

    def exit_code(self, deadline_s: float = SOON_S) -> int:
        """−n for signal n."""
        return self.process.wait(deadline_s)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self._in, self._out):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextlib.contextmanager
def silence(*workers: Worker) -> Iterator[Callable[[], float]]:
    """Two workers beat meanwhile; afterwards: the longest that the first was silent while the second went on as ever.

    A busy machine makes both wait, which is no silence of the first.
    """
    for each in workers:
        each.send("beat")
        each.until("beating")
    found: list[float] = []
    yield lambda: found[0]
    first, second = ([float(at) for at in each.do("stop").split()] for each in workers)
    gaps = [(start, end) for start, end in pairwise(first) if end - start > REGULAR_S]
    steady = [(start, end) for start, end in pairwise(second) if end - start <= REGULAR_S]
    found.append(max((sum(b - a for a, b in steady if start <= a and b <= end) for start, end in gaps), default=0.0))


def pod(name: str, **containers: Resources) -> Pod:
    """`pod("web", app={"limits": {"memory": "64Mi"}})`: as an API server would have stored it."""
    document: dict[str, Any] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "effects", "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, name))},
        "spec": {"containers": [{"name": each, "resources": blocks} for each, blocks in containers.items()]},
    }
    return defaulted(pod_from_json(msgspec.json.encode(document)))


class Node:
    """Below a root of its own. `scores`: the oom_score_adj of each started process."""

    def __init__(
        self,
        state: Path,
        *,
        profile: str = "documents",
        memory_mib: int = 256,
        config: Mapping[str, Any] | None = None,
        hugepages: str = "",
        shrink_policy: ShrinkPolicy | None = None,
    ) -> None:
        """`memory_mib` is all that the pods get together: the limit of kubepods."""
        found = this_host()
        self.driver: CgroupsV1 | CgroupsV2 = open_cgroupfs(found)
        self.root = f"/plimsoll-test-{secrets.token_hex(6)}"
        settings = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "cgroupRoot": self.root,
            "cgroupDriver": "cgroupfs",
            "evictionHard": {"memory.available": "1Mi"},  # the usual 100Mi are more than some of these nodes have
            **(config or {}),
        }
        here = this_machine()
        pages = {f"{HUGEPAGES_PREFIX}2Mi": QUANTITIES[hugepages]} if hugepages else {}
        machine = msgspec.structs.replace(here, memory_bytes=memory_mib * MIB, others={**here.others, **pages})
        self.setting = resolved(
            machine,
            reading(settings, profile_named(profile)).config,
            profile_named(profile),
            cgroup_version=found.version,
            runtime="process",
        )
        self.tree = CgroupManager(self.driver, self.setting, state / self.root[1:], shrink_policy=shrink_policy)
        self.scores: dict[int, ScoreAdjustment] = {}
        self._workers: list[Worker] = []

    def add(self, *pods: Pod, containers: Mapping[str, str] | None = None) -> Applied:
        """`containers`: name → id, of each of them; as a rule all containers, with ids of our own."""
        given = None if containers is None else {each.metadata.uid: containers for each in pods}
        return asyncio.run(self.tree.add(pods, containers=given))

    def resize(self, changed: Pod) -> Applied:
        return asyncio.run(self.tree.resize(changed))

    def path(self, of: Pod, container: str = "") -> str:
        return self.tree.paths(of.metadata.uid)[container]

    def start(self, of: Pod, container: str) -> Worker:
        """In its cgroup and with its oom_score_adj before it does anything."""
        worker = Worker()
        self._workers.append(worker)
        asyncio.run(self.driver.move(self.path(of, container), worker.pid))
        work = workload(of, self.setting)
        score = dict(zip((each.name for each in work.containers), work.scores, strict=True))[container]
        self.scores[worker.pid] = set_oom_score_adj(worker.pid, score)
        worker.send("go")
        return worker

    def outside(self) -> Worker:
        """In no cgroup of this node."""
        worker = Worker()
        self._workers.append(worker)
        worker.send("go")
        return worker

    # --- what the kernel says ---

    def text(self, path: str, file: str) -> str:
        seen = self.driver.read(path, (file,))
        assert seen is not None, path
        return seen.files[file]

    def counts(self, path: str, file: str) -> Mapping[str, int]:
        return flat_keyed(self.text(path, file).encode())

    def memory(self, of: Pod, container: str = "") -> MemoryUsage:
        found = usage(self.driver, self.path(of, container), ("memory",))
        assert found and found.memory
        return found.memory

    def kills(self, of: Pod, container: str = "") -> int:
        """How many processes of just this cgroup the kernel has killed out of memory."""
        local = self.events(of, container, local=True)
        assert local.oom_kill is not None
        return local.oom_kill

    def events(self, of: Pod, container: str = "", *, local: bool = False) -> MemoryEvents:
        found = usage(self.driver, self.path(of, container), ("events",))
        events = found and (found.events_local if local else found.events)
        assert events
        return events

    def cpu(self, of: Pod, container: str = "") -> CpuUsage:
        found = usage(self.driver, self.path(of, container), ("cpu",))
        assert found and found.cpu
        return found.cpu

    def cpu_shares(self, *pods: Pod, seconds: float) -> list[float]:
        """Which part of one CPU each of them has had, over that long."""
        before, started = [self._used_s(each) for each in pods], time.monotonic()
        time.sleep(seconds)
        after, took = [self._used_s(each) for each in pods], time.monotonic() - started
        return [(used - was) / took for used, was in zip(after, before, strict=True)]

    def _used_s(self, of: Pod) -> float:
        used_us = self.cpu(of).usage_us
        assert used_us is not None
        return used_us / 1_000_000

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        asyncio.run(self.tree.teardown(kill=True))
        left = self.driver.read(self.root, ())
        self.driver.close()
        assert left is None, f"{self.root} is still there after teardown"


@contextlib.contextmanager
def new_node(state: Path, **options: Any) -> Iterator[Node]:
    node = Node(state, **options)
    try:
        yield node
    finally:
        node.close()


def cold_file(folder: Path, mebibytes: int) -> Path:
    """On disk and not in the page cache, so that it is charged to the first cgroup that reads it."""
    path = folder / f"cold-{secrets.token_hex(4)}"
    with open(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(b"x" * MIB)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


# --- checks for both versions ---


def the_offender_is_killed(node: Node, web: Pod, other: Pod) -> Worker:
    """One process of `web`'s container `app` exceeds its limit; returns another process of that container."""
    hog, fellow = node.start(web, "app"), node.start(web, "app")
    others = [node.start(web, "side"), node.start(other, "app")]
    for worker in others:
        worker.do("take", 8)
    assert fellow.lives()
    hog.send("take", 60)
    assert hog.exit_code() == KILLED
    assert int(hog.until_end()) < 40
    assert (node.kills(web, "side"), node.kills(other, "app")) == (0, 0)
    assert all(worker.lives() for worker in others)
    return fellow


def a_busy_loop_is_throttled(node: Node, busy: Pod) -> None:
    """The pod has a limit of 200m."""
    worker = node.start(busy, "app")
    worker.send("loop", 0)
    worker.until("looping")
    (share,) = node.cpu_shares(busy, seconds=3)
    assert 0.08 <= share <= 0.25
    counted = [node.cpu(busy), node.cpu(busy, "app")]  # both have the limit, and either may meet it first
    assert sum(usage.throttled_periods or 0 for usage in counted) >= 10
    assert sum(usage.throttled_us or 0 for usage in counted) >= 750_000


def requests_split_a_cpu(node: Node, cpu: int) -> float:
    """Requests of 100m and 1000m on one CPU; returns the share that both use together."""
    small, large = pod("small", app={"requests": {"cpu": "100m"}}), pod("large", app={"requests": {"cpu": "1000m"}})
    node.add(small, large)
    for each in (small, large):
        worker = node.start(each, "app")
        worker.send("loop", cpu)
        worker.until("looping")
    one, ten = node.cpu_shares(small, large, seconds=10)
    assert 8 <= ten / one <= 12
    return one + ten
