"""A control plane with a real node on this machine: cgroup v1 below a root of its own, real processes, real limits.

The API server and the node are processes of their own, the node's supervisor is a third. What tests do to them (kill,
stop, start again) goes through `RealNode`. At the end everything is removed, and a check finds what is left.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import profile_named
from tests.e2e.etcd_process import store_options
from tests.e2e.kubectl import Binary, Kubectl, any_binary
from tests.e2e.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODE = "n1"
STOP_S = 60.0
PODS = "/api/v1/namespaces/default/pods"
CAPACITY = "cpu=8,memory=2Gi,pods=110"
Document = dict[str, Any]

# A short maximum back-off: the real sequence is tested with a virtual clock.
CONFIG: Document = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
}
BACK_OFF_GATE = "KubeletCrashLoopBackOffMax"


def config_of(profile: str) -> Document:
    """Without the back-off where the release refuses it."""
    if default_config(profile_named(profile)).gate(BACK_OFF_GATE):
        return CONFIG
    return {name: value for name, value in CONFIG.items() if name != "crashLoopBackOff"}


class RealNode:
    """One API server and one node in one directory; both may be killed and started again."""

    def __init__(self, directory: Path, cgroup_root: str, profile: str, extras: Document | None = None) -> None:
        self.directory, self.cgroup_root, self.profile = directory, cgroup_root, profile
        self.api_state, self.state = directory / "api", directory / "node"
        self.kubeconfig = self.api_state / "admin.kubeconfig"
        self.node_kubeconfig = directory / "node.kubeconfig"
        self.config = directory / "kubelet.json"
        documents = [config_of(profile)]
        if extras:
            documents.append({"apiVersion": "plimsoll.dev/v1", "kind": "NodeExtras", **extras})
        self.config.write_text("\n".join(map(json.dumps, documents)))
        self._listen = "127.0.0.1:0"
        self.api: subprocess.Popen[str] | None = None
        self.node: subprocess.Popen[str] | None = None
        self.node_options: tuple[str, ...] = ()
        self.api_options: tuple[str, ...] = ()
        self.before_node: tuple[str, ...] = ()  # words of a program that starts the node

    def start_api(self, *options: str) -> None:
        words = [
            "api",
            "--state-dir",
            str(self.api_state),
            "--listen",
            self._listen,
            "--profile",
            self.profile,
            *store_options(self.api_state),
            *self.api_options,
            *options,
        ]
        self.api, line = self._started(words, "api.log", "https://")
        self._listen = line.removeprefix("https://")

    def make_identity(self) -> None:
        words = ["api", "--state-dir", str(self.api_state), "token", "create", "--node", NODE]
        done = subprocess.run([*_plimsoll(), *words], check=True, capture_output=True, cwd=ROOT)
        self.node_kubeconfig.write_bytes(done.stdout)

    def start_node(self, *options: str, wait: bool = True) -> None:
        words = ["node", "--kubeconfig", str(self.node_kubeconfig), "--name", NODE, "--listen", "127.0.0.1:0"]
        words += ["--state-dir", str(self.state), "--cgroup-root", self.cgroup_root, "--capacity", CAPACITY]
        words += ["--config", str(self.config), "--profile", self.profile, "--end-pods", *self.node_options, *options]
        self.node, _ = self._started(words, "node.log", "ready" if wait else "", self.before_node)

    def kill_node(self) -> None:
        """kill −9, without any clean-up."""
        assert self.node is not None
        self.node.kill()
        self._ended(self.node)
        self.node = None

    def kill_api(self) -> None:
        assert self.api is not None
        self.api.kill()
        self._ended(self.api)
        self.api = None

    def close(self) -> None:
        for process in (self.node, self.api):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_S)
                finally:
                    self._ended(process)

    def supervisor_pid(self) -> int:
        (found,) = [
            pid
            for pid in _processes_of(self)
            if b"plimsoll.runtime.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
            and Path(f"/proc/{pid}/comm").read_text().strip() == "plimsoll-host"
            and _parent(pid) == 1
        ]
        return found

    @property
    def memory_root(self) -> Path:
        """Our root in the memory hierarchy."""
        found = this_host()
        mounted = found.v1["memory"] if found.version == 1 else found.unified
        assert mounted is not None
        return Path(f"{mounted.mount_point}{self.cgroup_root}{'.slice' if 'systemd' in self.node_options else ''}")

    def memory_cgroups(self) -> list[str]:
        """Below the root, in the memory hierarchy."""
        top = self.memory_root
        # Not rglob, which fails where a cgroup is removed meanwhile.
        found = [Path(above, name) for above, names, _ in os.walk(top) for name in names]
        return sorted(str(path.relative_to(top)) for path in found)

    def _started(
        self, words: list[str], log: str, ready: str, before: tuple[str, ...] = ()
    ) -> tuple[subprocess.Popen[str], str]:
        with (self.directory / log).open("ab") as errors:
            process = subprocess.Popen(
                [*before, *_plimsoll(), *words], stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, text=True
            )
        assert process.stdout is not None
        line = process.stdout.readline().strip() if ready else ""
        if not line.startswith(ready):
            self._ended(process)
            raise AssertionError(f"{' '.join(words)}: {line!r}\n{(self.directory / log).read_text()[-4000:]}")
        return process, line

    def _ended(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def real_node(
    directory: Path,
    profile: str = "documents",
    *,
    options: tuple[str, ...] = (),
    api_options: tuple[str, ...] = (),
    before: tuple[str, ...] = (),
    cgroup_root: str = "",
    extras: Document | None = None,
) -> Iterator[RealNode]:
    """Both running; afterwards nothing of them is left on the machine. `options`, `before`: of and for the node.

    `cgroup_root`: for a guest; elsewhere a name of its own, on cgroup v1. `extras`: settings of NodeExtras.
    """
    if os.geteuid() != 0 or (this_host().version != 1 and not cgroup_root):
        pytest.skip("needs root on a cgroup v1 host")
    directory.mkdir(parents=True)
    made = RealNode(directory, cgroup_root or f"/plimsoll-test-{secrets.token_hex(4)}", profile, extras)
    made.node_options, made.api_options, made.before_node = options, api_options, before
    try:
        made.start_api()
        made.make_identity()
        made.start_node()
        yield made
    finally:
        made.close()
    until(lambda: not made.memory_cgroups() and not _processes_of(made))
    for hierarchy in Path("/sys/fs/cgroup").iterdir():
        left = hierarchy / made.cgroup_root.strip("/")
        if left.is_dir():
            left.rmdir()
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(made.directory) not in mounts, "a mount was left behind"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _processes_of(node: RealNode) -> list[int]:
    """The supervisor and whatever it runs: they have the state directory in their command line, or are its children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(node.directory).encode() in words:
                found.append(int(entry.name))
    return found


def _plimsoll() -> list[str]:
    return [str(Path(sys.executable).with_name("plimsoll"))]


# --- requests ---


@contextmanager
def kubectl_for(node: RealNode, home: Path, binary: Binary | None = None) -> Iterator[Kubectl]:
    """Afterwards the node has no pods any more."""
    made = Kubectl(binary or any_binary(), node.kubeconfig, home)
    yield made
    made.api("DELETE", f"{PODS}?gracePeriodSeconds=1")
    until(lambda: not made.api("GET", PODS)["items"])
    made.api.close()


def pod_of(kubectl: Kubectl, name: str) -> Document:
    return kubectl.api("GET", f"/api/v1/namespaces/{kubectl.namespace}/pods/{name}")


def status_of(kubectl: Kubectl, name: str, container: str = "") -> Document:
    """Of the pod, or of one of its containers ({} where it has none yet)."""
    status: Document = pod_of(kubectl, name).get("status", {})
    if not container:
        return status
    every = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return next((each for each in every if each["name"] == container), {})


def reasons(kubectl: Kubectl, name: str) -> list[str]:
    """Of the pod's events, oldest first."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/events?fieldSelector=involvedObject.name%3D{name}"
    return [each["reason"] for each in kubectl.api("GET", path)["items"]]


def running(kubectl: Kubectl, name: str) -> Document:
    """Its status, as soon as all its containers are ready."""

    def read() -> Document:
        status = status_of(kubectl, name)
        every = status.get("containerStatuses", [])
        return status if every and all(each.get("ready") for each in every) else {}

    return until(read)


def cgroup_of(pid: int, controller: str = "memory") -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return ""
