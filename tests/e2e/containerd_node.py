"""The real node of `real_node` over a containerd of its own, with images that are made here.

containerd is in a mount namespace of its own, and the node in the same one: what the agent mounts for a pod (a tmpfs,
a subPath) must be visible to the runtime that starts its containers, as on a machine where both are in one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd, missing_packages
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, Document, RealNode, pod_of, real_node, status_of
from tests.e2e.waiting import until
from tests.kernel.containerd import running

HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


class Containerd(OwnContainerd):
    """In a mount namespace of its own, and again in the same one after it has ended."""

    _mounts = -1
    propagation = "private"  # of mounts in that namespace, among its own; none reaches the machine's

    def start(self, *before: str) -> None:
        if self._mounts < 0:
            own = ("/bin/sh", "-c", f'mount --make-r{self.propagation} / && exec "$@"', "-")
            super().start("unshare", "--mount", "--propagation", "private", *own, *before)
            self._mounts = os.open(f"/proc/{self.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        else:
            super().start("nsenter", self.mounts, *before)

    @property
    def mounts(self) -> str:
        """For nsenter."""
        return f"--mount=/proc/{os.getpid()}/fd/{self._mounts}"

    def end(self) -> list[str]:
        left = super().end()
        if self._mounts >= 0:
            os.close(self._mounts)
        return left


@contextmanager
def own_containerd(below: str | None = None) -> Iterator[Containerd]:
    """`below`: the directory for all its files."""
    if packages := missing_packages():
        pytest.skip(f"containerd: needs the Debian packages {', '.join(packages)}")
    # Not pytest's tmp_path: a unix socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="plimsoll-ctd-", dir=below))
    directory.chmod(0o711)  # as /var/lib/containerd: the root of a user namespace passes through it
    daemon = Containerd(directory)
    with running(daemon):
        yield daemon


def node_options(daemon: Containerd, endpoint: str = "") -> tuple[str, ...]:
    return ("--container-runtime-endpoint", endpoint or daemon.endpoint, "--keep-images")


def inside(daemon: Containerd) -> tuple[str, ...]:
    return ("nsenter", daemon.mounts, f"--wd={Path.cwd()}")


@contextmanager
def containerd_node(
    directory: Path,
    profile: str = "documents",
    *,
    endpoint: str = "",
    options: tuple[str, ...] = (),
    extras: Document | None = None,
) -> Iterator[tuple[RealNode, Containerd]]:
    """`endpoint`: another way to the same runtime, such as a proxy."""
    with own_containerd() as daemon:
        words = (*node_options(daemon, endpoint), *options)
        with real_node(directory, profile, options=words, before=inside(daemon), extras=extras) as node:
            yield node, daemon


def create(kube: Kubectl, document: str) -> None:
    kube("create", "-f", "-", stdin=document)


def cgroup(node: RealNode, kube: Kubectl, name: str, controller: str = "memory", container: str = "") -> Path:
    """Of a Guaranteed pod, or of one of its containers."""
    found = pod_of(kube, name)
    path = Path(f"/sys/fs/cgroup/{controller}{node.cgroup_root}/kubepods/pod{found['metadata']['uid']}")
    if not container:
        return path
    container_id: str = status_of(kube, name, container)["containerID"]
    return path / container_id.removeprefix("containerd://")


def number(file: Path) -> int:
    return int(file.read_text())


def ended(kube: Kubectl, name: str) -> str:
    until(
        lambda: status_of(kube, name).get("phase") in ("Succeeded", "Failed"),
        lambda: kube("describe", "pod", name).out,
    )
    return kube("logs", name).out


def major_version(kube: Kubectl) -> int:
    """Of containerd: programs that come first in PATH are used, so that newer ones can be tried."""
    info = json.loads(kube("get", "node", NODE, "-o", "json").out)["status"]["nodeInfo"]
    return int(str(info["containerRuntimeVersion"]).removeprefix("containerd://").lstrip("v").split(".")[0])


def runc_version() -> tuple[int, int]:
    said = subprocess.run(["runc", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = re.findall(r"runc version (\d+)\.(\d+)", said)[0]
    return int(major), int(minor)


def summary_of(kube: Kubectl, name: str) -> Document:
    """The node's summary of a pod."""
    found = kube.api("GET", f"/api/v1/nodes/{NODE}/proxy/stats/summary")
    return next((each for each in found["pods"] if each["podRef"]["name"] == name), {})


def names(kube: Kubectl) -> list[str]:
    return [each["metadata"]["name"] for each in json.loads(kube("get", "pods", "-o", "json").out)["items"]]


def writes(mib: int) -> str:
    return f"dd if=/dev/zero of=/written bs=1M count={mib} 2>/dev/null; echo written; {HANDLES_TERM}"
