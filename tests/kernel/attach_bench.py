"""A node for `plimsoll attach`: a private containerd with NRI, pods as a kubelet would make them, and attach itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plimsoll.rules.model.cgroup_names import CgroupName, cgroup_path
from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd
from plimsoll.runtime.interface import CriResources, ObservedContainer, SandboxSpec
from tests.kernel.containerd import Containerd, containerd_release
from tests.kernel.containerd_checks import MIB, SOON_S, Bench

_NRI = """
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  plugin_config_path = "{directory}/nri-config"
  plugin_path = "{directory}/nri-plugins"
  plugin_registration_timeout = "20s"
  plugin_request_timeout = "20s"
  socket_path = "{directory}/nri.sock"
"""
NEEDS = "needs containerd 1.7 or newer on PATH, which has NRI"


class NriFiles(OwnContainerd):
    """NRI is on, with all its files in the directory of this containerd."""

    @property
    def nri_socket(self) -> Path:
        return self.directory / "nri.sock"

    def _nri_section(self) -> str:
        return _NRI.format(directory=self.directory)


class NriContainerd(NriFiles, Containerd):
    """With the images of the tests."""


class Pod:
    """A pod as the API shows it, and its sandbox."""

    def __init__(self, bench: AttachBench, name: str, resources: dict[str, Any], **metadata: Any) -> None:
        self.uid, self.name, self.resources = str(uuid.uuid4()), name, resources
        self.namespace = str(metadata.pop("namespace", "default"))
        self.document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "uid": self.uid, **metadata},
            "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
        }
        requests, limits = resources.get("requests", {}), resources.get("limits", {})
        self.qos = (
            "Guaranteed"
            if limits and set(limits) == {"cpu", "memory"} and requests in ({}, limits)
            else "Burstable"
            if requests or limits
            else "BestEffort"
        )
        self.cgroup = bench.pod_cgroup(self.qos, self.uid)
        self.sandbox_id = ""
        self.spec: SandboxSpec | None = None
        self.container: ObservedContainer | None = None

    @property
    def container_path(self) -> str:
        assert self.container is not None
        return f"{self.cgroup}/{self.scope(self.container.id)}"

    def scope(self, container_id: str) -> str:
        return f"cri-containerd-{container_id}.scope" if self.cgroup.endswith(".slice") else container_id


class AttachBench(Bench):
    """`root`: the kubelet's cgroupRoot."""

    def __init__(self, daemon: NriContainerd, runtime: Any, root: str, work: Path, *, systemd: bool = False) -> None:
        super().__init__(runtime, root, work / "logs", systemd=systemd)
        self.daemon, self.work = daemon, work
        self.names: CgroupName = (root.strip("/"), "kubepods")
        self.manifests, self.state = work / "pods", work / "state"
        self.manifests.mkdir(parents=True, exist_ok=True)
        self.config = work / "kubelet.json"
        self.policy = work / "policy.json"
        self.driver = "systemd" if systemd else "cgroupfs"
        self.config.write_text(json.dumps({"cgroupRoot": root, "cgroupDriver": self.driver, "failCgroupV1": False}))
        self.attached: subprocess.Popen[bytes] | None = None

    def level(self, *further: str) -> str:
        return cgroup_path((*self.names, *further), self.driver)  # type: ignore[arg-type]

    def pod_cgroup(self, qos: str, uid: str) -> str:
        return self.level(*([] if qos == "Guaranteed" else [qos.lower()]), f"pod{uid}")

    def pod(self, name: str, resources: dict[str, Any], **metadata: Any) -> Pod:
        pod = Pod(self, name, resources, **metadata)
        self.show(pod)
        return pod

    def show(self, pod: Pod) -> None:
        """As the API would, in one step."""
        new = self.manifests / f".{pod.uid}"
        new.write_text(json.dumps(pod.document))
        new.rename(self.manifests / f"{pod.uid}.json")

    async def start(self, pod: Pod, command: tuple[str, ...], resources: CriResources | None = None) -> None:
        pod.spec = self.sandbox(pod_uid=pod.uid, name=pod.name, namespace=pod.namespace, cgroup_parent=pod.cgroup)
        pod.sandbox_id = await self.runtime.make_sandbox(pod.spec)
        given = resources or CriResources(cpu_shares=102, memory_limit_bytes=64 * MIB, oom_score_adj=500)
        pod.container = await self.run(pod.spec, pod.sandbox_id, "main", command, resources=given)

    # attach

    def command(self, verb: str, *words: str) -> list[str]:
        return [sys.executable, "-m", "plimsoll", verb, *words, "--state-dir", str(self.state)]

    def attach(self, mode: str, policy: dict[str, Any], *words: str, wait: bool = True) -> None:
        self.policy.write_text(json.dumps(policy))
        arguments = self.command("attach", "--mode", mode, "--policy", str(self.policy), "--pods", str(self.manifests))
        arguments += ["--config", str(self.config), "--profile", "1.36", "--nri-socket", str(self.daemon.nri_socket)]
        with open(self.work / "attach.log", "ab") as log:
            self.attached = subprocess.Popen([*arguments, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.until(lambda: self.status().get("pid") == self.pid and self.status()["connected"])

    @property
    def pid(self) -> int:
        assert self.attached is not None
        return self.attached.pid

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.state / "status.json").read_bytes()))
        except FileNotFoundError:
            return {}

    def until(self, condition: Any, within_s: float = SOON_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            if self.attached is not None and self.attached.poll() not in (None, -signal.SIGKILL):
                raise AssertionError(f"attach has ended\n{self.said()}")
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {within_s:g} s\n{self.said()}\n{self.status()}")
            time.sleep(0.02)

    async def settled(self, condition: Any) -> None:
        await asyncio.to_thread(self.until, condition)

    def said(self) -> str:
        return (self.work / "attach.log").read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        attached, self.attached = self.attached, None
        if attached is None:
            return 0
        attached.send_signal(number)
        return attached.wait(SOON_S)

    def detach(self, *words: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            self.command("detach", "-o", "json", "--nri-socket", str(self.daemon.nri_socket), *words),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with open(self.work / "attach.log", "a", encoding="utf-8") as log:
            log.write(f"detach: {done.stderr}\n")
        return list(json.loads(done.stdout))

    # the kernel

    def directory(self, path: str, file: str) -> Path:
        v1 = Path("/sys/fs/cgroup", file.partition(".")[0])
        return (v1 if (v1 / "cgroup.procs").exists() else Path("/sys/fs/cgroup")) / path.lstrip("/")

    def read(self, path: str, file: str) -> str:
        return (self.directory(path, file) / file).read_text().strip()


@contextlib.contextmanager
def ending(bench: AttachBench) -> Iterator[AttachBench]:
    try:
        yield bench
    finally:
        bench.end(signal.SIGKILL)


def skip_reason() -> str:
    if os.geteuid() != 0:
        return "attach: not root"
    return "" if containerd_release() >= (1, 7) else f"attach: {NEEDS}"
