"""A resize with the agent killed −9 at one of its steps: at the n-th call of a kind that changes a file or calls the API.

strace makes the kill exact: attached before the resize is requested, it counts the calls of a thread and lets SIGKILL
come instead of the n-th. A memory limit above the usage is written by the main thread, as everything else. One below
the usage waits until the kernel has reclaimed memory, so another thread writes it. There are three ways to resize:

- at once: up, and down to a limit above the usage. The main thread does everything.
- reclaimed: down, with page cache above the limit, which the kernel reclaims while the thread writes.
- in use: down, with memory above the limit that cannot be reclaimed. The kernel refuses the thread's writes, and the
  limit comes near the usage; the resize shows an error until the container lets go.

The next agent must bring the resize to its end: then what is desired, allocated, actuated and in the kernel is the same,
and the container has never stopped. A step beyond the last one of a resize kills nothing, so the first of those shows
how many there are. (Files that have grown are now and then replaced as a whole: `tests/unit/linux/files/test_append_log`.)
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.linux.files.append_log import AppendLog
from tests.e2e.api_client import ApiClient
from tests.e2e.real_node import PODS, RealNode
from tests.e2e.waiting import until

AT_ONCE, RECLAIMED, IN_USE = "at once", "reclaimed", "in use"
BESIDE = "write in another thread"
# Of the main thread: `write` changes the files of cgroups, the agent's checkpoint and what it knows about its cgroups,
# `pwrite64` the journal of a transaction on cgroups, and `sendto` is a request to the API server.
MAIN = ("write", "pwrite64", "sendto")
CALLS: Mapping[str, tuple[str, ...]] = {AT_ONCE: MAIN, RECLAIMED: (BESIDE, *MAIN), IN_USE: (BESIDE, *MAIN)}
QUIET_S = 2.0
MIB = 1 << 20
SMALL, LARGE = ("200m", 48), ("400m", 96)
FILL_MIB, MOST_FREE_MIB = 64, 40  # more than SMALL has, and less
# It does what the files of its volume say, and removes each when that is done.
PROGRAM = f"""
import os, time
taken = None
while True:
    if os.path.exists("/work/fill"):
        with open("/work/cached", "wb", buffering=0) as file:
            for _ in range({FILL_MIB}): file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        os.remove("/work/fill")
    if os.path.exists("/work/take"):
        taken = bytearray({FILL_MIB} << 20)
        os.remove("/work/take")
    if os.path.exists("/work/free"):
        taken = None
        os.remove("/work/free")
    time.sleep(0.02)
"""
Document = dict[str, Any]


def missing() -> str:
    """What keeps this from being run."""
    return "" if shutil.which("strace") else "strace is not here (Debian package strace)"


class ResizeKill:
    def __init__(self, node: RealNode) -> None:
        self._node, self._api = node, ApiClient(node.kubeconfig)
        self._work = node.directory / "work"
        self._work.mkdir(exist_ok=True)
        self._api("POST", PODS, _pod(self._work))
        self._container = until(self._running)["containerID"]
        self._size = LARGE
        self.faults: list[str] = []
        self.killed: dict[str, Counter[str]] = {way: Counter() for way in CALLS}  # way → call → how often

    def close(self) -> None:
        self._api("DELETE", f"{PODS}/kept?gracePeriodSeconds=1")
        until(lambda: not self._api("GET", PODS)["items"])
        self._api.close()

    def at(self, way: str, call: str, step: int) -> bool:
        """Whether the next resize had such a step, and so the agent was killed there. At once: up and down alternately."""
        node, process = self._node, self._node.node
        assert process is not None
        self._prepare(way)
        size = SMALL if self._size == LARGE else LARGE
        what = f"{way}, {call} {step}, to {size[0]} and {size[1]}Mi"
        with _Killer(process.pid, call, step, self._limit_file(), node.directory / "killer.log") as killer:
            self._ask(size)
            until(lambda: process.poll() is not None or (self._is_refused() if way == IN_USE else self._is_done(size)))
            self._quiet(process)
        was_killed = process.poll() is not None
        if was_killed:
            node.kill_node()
            self.killed[way][killer.call()] += 1
            node.start_node()
        if way == IN_USE:
            until(lambda: self._is_refused() and self._is_near())
            self._judge_container(what)
            self._order("free")
        until(lambda: self._is_done(size))
        self._size = size
        self._judge(what)
        return was_killed

    def _prepare(self, way: str) -> None:
        """What the container has in memory; for a limit that comes down, first the large size."""
        if way == AT_ONCE:
            (self._work / "cached").unlink(missing_ok=True)
            until(lambda: self._usage() < MOST_FREE_MIB * MIB)
            return
        if self._size != LARGE:
            self._ask(LARGE)
            until(lambda: self._is_done(LARGE))
            self._size = LARGE
        self._order("take" if way == IN_USE else "fill")
        assert self._usage() > FILL_MIB * MIB, self._usage()

    def _order(self, name: str) -> None:
        """Let the program in the container do that."""
        order = self._work / name
        order.touch()
        until(lambda: not order.exists())

    def _quiet(self, process: subprocess.Popen[str]) -> None:
        """What is checkpointed after the status belongs to the resize, too."""
        end_s = time.monotonic() + QUIET_S
        while process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.01)

    def _ask(self, size: tuple[str, int]) -> None:
        body = {"spec": {"containers": [{"name": "c", "resources": _both(size)}]}}
        way = "" if self._node.profile == "documents" else "/resize"
        self._api("PATCH", f"{PODS}/kept{way}", body)

    def _pod(self) -> Document:
        found: Document = self._api("GET", f"{PODS}/kept")
        return found

    def _running(self) -> Document:
        (found,) = self._pod()["status"].get("containerStatuses") or [{}]
        return found if found.get("ready") else {}

    def _is_refused(self) -> bool:
        conditions = self._pod()["status"]["conditions"]
        return any((each["type"], each.get("reason")) == ("PodResizeInProgress", "Error") for each in conditions)

    def _is_done(self, size: tuple[str, int]) -> bool:
        status, found = self._pod()["status"], self._running()
        is_busy = status.get("resize") or any(each["type"].startswith("PodResize") for each in status["conditions"])
        is_so = found.get("resources") == _both(size)
        return not is_busy and is_so and found.get("allocatedResources") == _both(size)["requests"]

    def _cgroups(self) -> tuple[str, str]:
        """Of the pod and of its container."""
        pod = f"{self._node.cgroup_root}/kubepods/pod{self._pod()['metadata']['uid']}"
        return pod, f"{pod}/{self._container.removeprefix('plimsoll://')}"

    def _limit_file(self) -> Path:
        return Path(f"/sys/fs/cgroup/memory{self._cgroups()[1]}/memory.limit_in_bytes")

    def _usage(self) -> int:
        return int(self._limit_file().with_name("memory.usage_in_bytes").read_text())

    def _is_near(self) -> bool:
        """The limit that cannot be reached is between what the container holds and the limit before."""
        return FILL_MIB * MIB < int(self._limit_file().read_text()) < LARGE[1] * MIB

    def _judge_container(self, what: str) -> None:
        found = self._running()
        if (found.get("containerID"), found.get("restartCount")) != (self._container, 0):
            self.faults.append(f"{what}: the container was restarted")

    def _judge(self, what: str) -> None:
        self._judge_container(what)
        cpu, memory_mib = self._size
        wanted = (int(cpu.removesuffix("m")) * 100, memory_mib * MIB)
        for path in self._cgroups():
            have = (
                int(Path(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us").read_text()),
                int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text()),
            )
            if have != wanted:
                self.faults.append(f"{what}: {path} has {have}")
        until(self._is_kept)

    def _is_kept(self) -> bool:
        """In the agent's checkpoint: allocated and actuated are equal."""
        record = json.loads(AppendLog(self._node.state / "node" / "agent.jsonl").read()[self._pod()["metadata"]["uid"]])
        allocated = record["allocation"]["containers"]["c"]["requests"]
        return bool(allocated == _both(self._size)["requests"] == record["actuated"]["c"]["requests"])


def _pod(work: Path) -> Document:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sh", "-c", f"exec python3 -c '{PROGRAM}'"],
        "resources": {"limits": _both(LARGE)["limits"]},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    volumes = [{"name": "work", "hostPath": {"path": str(work)}}]
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept"}, "spec": spec}


def _both(size: tuple[str, int]) -> dict[str, dict[str, str]]:
    each = {"cpu": size[0], "memory": f"{size[1]}Mi"}
    return {"requests": each, "limits": each}


class _Killer:
    """SIGKILL instead of the n-th call of that kind from now on, as each thread counts.

    A thread for a limit may be started only when it is needed, so for BESIDE every thread is followed, and only calls on
    the limit's file count. Which thread was killed is what strace has written.
    """

    def __init__(self, pid: int, call: str, step: int, limit_file: Path, log: Path) -> None:
        self._pid, self._call, self._log = pid, call, log
        name = "write" if call == BESIDE else call
        options = ["-f", "-P", str(limit_file)] if call == BESIDE else []
        options += ["-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={step}", "-o", str(log)]
        self._command = ["strace", *options, "-p", str(pid)]
        self._process: subprocess.Popen[bytes] | None = None

    def call(self) -> str:
        """What was killed. strace writes the thread before each call if it follows several."""
        if self._call != BESIDE:
            return self._call
        calls = re.findall(r"^(\d+) +write\(", self._log.read_text(), re.MULTILINE)
        return "write" if int(calls[-1]) == self._pid else BESIDE

    def __enter__(self) -> _Killer:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + 60
        while not all(_is_traced(each) for each in self._threads()):
            assert time.monotonic() < end_s, "strace does not attach"
            time.sleep(0.01)
        return self

    def _threads(self) -> list[Path]:
        task = Path(f"/proc/{self._pid}/task")
        return list(task.iterdir()) if self._call == BESIDE else [task / str(self._pid)]

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _is_traced(thread: Path) -> bool:
    for line in (thread / "status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "TracerPid":
            return int(value) != 0
    raise AssertionError(thread)
