"""A resize with the agent killed −9 at one of its steps: at the n-th call of a kind that changes a file or calls the API.

strace makes the kill exact: attached before the resize is requested, it counts the calls of a thread and lets SIGKILL
come with the n-th. Memory limits are written in a thread beside the main one, so they are counted separately. The
next agent must bring the resize to its end: then what is desired, allocated, actuated and in the kernel is the same,
and the container has never stopped. A step beyond the last one of a resize kills nothing, so the first of those shows
how many there are. (Files that have grown are now and then replaced as a whole: `tests/unit/linux/files/test_append_log`.)
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from plimsoll.linux.files.append_log import AppendLog
from tests.e2e.api_client import ApiClient
from tests.e2e.real_node import PODS, RealNode
from tests.e2e.waiting import until

BESIDE = "write in another thread"
CALLS = ("write", "pwrite64", "sendto", BESIDE)  # those that a resize makes
QUIET_S = 2.0
MIB = 1 << 20
SIZES = (("200m", 48), ("400m", 96))  # there and back: every other resize lowers both
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "kept"},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "c",
                "image": "busybox",
                "command": ["sleep", "100000"],
                "resources": {"limits": {"cpu": "400m", "memory": "96Mi"}},
            }
        ],
    },
}
Document = dict[str, Any]


def missing() -> str:
    """What keeps this from being run."""
    return "" if shutil.which("strace") else "strace is not here (Debian package strace)"


class ResizeKill:
    def __init__(self, node: RealNode) -> None:
        self._node, self._api = node, ApiClient(node.kubeconfig)
        self._api("POST", PODS, POD)
        self._container = until(self._running)["containerID"]
        self._round = 0
        self.faults: list[str] = []

    def close(self) -> None:
        self._api("DELETE", f"{PODS}/kept?gracePeriodSeconds=1")
        until(lambda: not self._api("GET", PODS)["items"])
        self._api.close()

    def at(self, call: str, step: int) -> bool:
        """Whether the next resize, down and up alternately, had such a step, and so the agent was killed there."""
        node = self._node
        assert node.node is not None
        cpu, memory_mib = SIZES[self._round % 2]
        self._round += 1
        process = node.node
        with _Killer(process.pid, call, step):
            self._ask(cpu, memory_mib)
            until(lambda: process.poll() is not None or self._is_done(cpu, memory_mib))
            self._quiet(process)
        was_killed = process.poll() is not None
        if was_killed:
            node.kill_node()
            node.start_node()
            until(lambda: self._is_done(cpu, memory_mib))
        self._judge(f"{call} {step}, to {cpu} and {memory_mib}Mi", cpu, memory_mib)
        return was_killed

    def _quiet(self, process: subprocess.Popen[str]) -> None:
        """What is checkpointed after the status belongs to the resize, too."""
        end_s = time.monotonic() + QUIET_S
        while process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.01)

    def _ask(self, cpu: str, memory_mib: int) -> None:
        size = {"cpu": cpu, "memory": f"{memory_mib}Mi"}
        body = {"spec": {"containers": [{"name": "c", "resources": {"requests": size, "limits": size}}]}}
        way = "" if self._node.profile == "documents" else "/resize"
        self._api("PATCH", f"{PODS}/kept{way}", body)

    def _status(self) -> Document:
        found: Document = self._api("GET", f"{PODS}/kept")["status"]
        return found

    def _running(self) -> Document:
        (found,) = self._status().get("containerStatuses") or [{}]
        return found if found.get("ready") else {}

    def _is_done(self, cpu: str, memory_mib: int) -> bool:
        status, found = self._status(), self._running()
        size = {"cpu": cpu, "memory": f"{memory_mib}Mi"}
        is_busy = status.get("resize") or any(each["type"].startswith("PodResize") for each in status["conditions"])
        is_so = found.get("resources") == {"requests": size, "limits": size}
        return not is_busy and is_so and found.get("allocatedResources") == size

    def _judge(self, what: str, cpu: str, memory_mib: int) -> None:
        found, node = self._running(), self._node
        if (found.get("containerID"), found.get("restartCount")) != (self._container, 0):
            self.faults.append(f"{what}: the container was restarted")
        pod = self._api("GET", f"{PODS}/kept")
        uid, ident = pod["metadata"]["uid"], self._container.removeprefix("plimsoll://")
        quota = int(cpu.removesuffix("m")) * 100
        for path in (f"pod{uid}", f"pod{uid}/{ident}"):
            below = f"{node.cgroup_root}/kubepods/{path}"
            have = (
                int(Path(f"/sys/fs/cgroup/cpu{below}/cpu.cfs_quota_us").read_text()),
                int(Path(f"/sys/fs/cgroup/memory{below}/memory.limit_in_bytes").read_text()),
            )
            if have != (quota, memory_mib * MIB):
                self.faults.append(f"{what}: {path} has {have}")
        until(lambda: self._kept(uid, cpu, memory_mib))

    def _kept(self, uid: str, cpu: str, memory_mib: int) -> bool:
        """The agent's checkpoint: allocated and actuated are equal."""
        record = json.loads(AppendLog(self._node.state / "node" / "agent.jsonl").read()[uid])
        size = {"cpu": cpu, "memory": f"{memory_mib}Mi"}
        allocated = record["allocation"]["containers"]["c"]["requests"]
        return bool(allocated == size == record["actuated"]["c"]["requests"])


class _Killer:
    """SIGKILL with the n-th call of that kind from now on, as each thread counts."""

    def __init__(self, pid: int, call: str, step: int) -> None:
        others = [each.name for each in Path(f"/proc/{pid}/task").iterdir() if each.name != str(pid)]
        name = "write" if call == BESIDE else call
        options = ["-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={step}", "-o", "/dev/null"]
        self._threads = others if call == BESIDE else [str(pid)]
        self._command = ["strace", *options, *(word for each in self._threads for word in ("-p", each))]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        if not self._threads:
            return
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + 60
        while not all(int(_field(int(each), "TracerPid")) for each in self._threads):
            assert time.monotonic() < end_s, "strace does not attach"
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _field(pid: int, name: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    raise AssertionError(name)
