"""A private containerd for tests: `own_containerd`'s, in namespaces of its own, removed at the end.

It runs in a mount namespace of its own, so that whatever it mounts ends with it. With `network` it has a network
namespace of its own as well and pods get a veth pair, because CNI's plugins make devices, routes and settings where
containerd is: none of the host's are touched, what is "the host" to its pods is that namespace (`reached_from_it`), and
`attach` cannot be tried there. Without it pods have the host's network or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from plimsoll.runtime.cri.messages import CONTAINERD_NAMESPACE
from plimsoll.runtime.cri.private_containerd.daemon import PROGRAMS, OwnContainerd
from tests.kernel.guest import BUSYBOX, required

PLUGINS = Path("/usr/lib/cni")  # of Debian's containernetworking-plugins
IMAGE = "localhost/busybox:1"


class Containerd(OwnContainerd):
    """Use `private_containerd`."""

    def __init__(self, directory: Path, *, systemd: bool, network: bool) -> None:
        super().__init__(directory, systemd=systemd, loopback=False)
        self._own_network = network

    def prepare(self, plugins: Path | None = None) -> None:
        super().prepare(PLUGINS if self._own_network else plugins)
        if self._own_network:
            (self.directory / "cni" / "10-test.conflist").write_text(json.dumps(_network(self.directory)))

    def start(self, *before: str) -> None:
        namespaces = ["--net", "/bin/sh", "-c", 'ip link set lo up && exec "$@"', "-"] if self._own_network else []
        super().start("unshare", "--mount", "--propagation", "slave", *namespaces, *before)

    def begin_task(self, container_id: str) -> None:
        """Not through CRI."""
        done = self.ctr("-n", CONTAINERD_NAMESPACE, "tasks", "start", "--detach", "--null-io", container_id)
        assert done.returncode == 0, done.stderr

    def has_task(self, container_id: str) -> bool:
        return container_id in self.ctr("-n", CONTAINERD_NAMESPACE, "tasks", "list", "--quiet").stdout.split()

    def reached_from_it(self, url: str) -> bytes | None:
        """A page, fetched from the network that containerd is in; None where there is no answer."""
        fetch = ["nsenter", f"--net=/proc/{self.pid}/ns/net", BUSYBOX, "wget", "-q", "-O", "-", url]
        done = subprocess.run(fetch, capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None


def containerd_release() -> tuple[int, int]:
    """(0, 0) if there is none."""
    return _release("containerd", r" v?(\d+)\.(\d+)")


def crun_problem() -> str:
    """Why this containerd cannot use crun; empty if it can."""
    release = _release("crun", r"crun version (\d+)\.(\d+)")
    if release == (0, 0):
        return "needs the Debian package crun"
    # Older ones refuse the version of the OCI specification that newer releases of containerd write.
    if containerd_release() >= (1, 7) and release < (1, 9):
        return "containerd 1.7 and newer need crun 1.9 or newer on PATH"
    return ""


def _release(program: str, pattern: str) -> tuple[int, int]:
    if shutil.which(program) is None:
        return 0, 0
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(pattern, said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextlib.contextmanager
def private_containerd(
    *, systemd: bool = False, network: bool = False, below: str | None = None
) -> Iterator[Containerd]:
    """GuestMissingError where a package is missing."""
    required(PROGRAMS)
    # Not pytest's tmp_path: a unix socket's path must be short.
    daemon = Containerd(Path(tempfile.mkdtemp(prefix="plimsoll-ctd-", dir=below)), systemd=systemd, network=network)
    with running(daemon):
        yield daemon


@contextlib.contextmanager
def running(daemon: OwnContainerd) -> Iterator[None]:
    """With its images; afterwards nothing of it is left."""
    daemon.prepare()
    try:
        daemon.start()
        daemon.load_images()
        yield
    finally:
        assert daemon.end() == []


def _network(directory: Path) -> dict[str, object]:
    """A veth pair per pod."""
    addresses = {"type": "host-local", "dataDir": f"{directory}/ipam", "ranges": [[{"subnet": "10.88.77.0/24"}]]}
    return {
        "cniVersion": "0.4.0",
        "name": f"plimsoll-{secrets.token_hex(3)}",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}],
    }


@contextlib.contextmanager
def cgroup_parent() -> Iterator[str]:
    """`/plimsoll-test-<random>`; everything below it in any hierarchy is removed at the end."""
    name = f"plimsoll-test-{secrets.token_hex(4)}"
    try:
        yield f"/{name}"
    finally:
        for mount in cgroup_mounts():
            remove_tree(mount / name)


def cgroup_mounts() -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [Path(line.split()[4]) for line in lines if " - cgroup " in line or " - cgroup2 " in line]
    return [each for each in found if each.is_relative_to("/sys/fs/cgroup")]  # others belong to other tests


def remove_tree(top: Path) -> None:
    deadline = time.monotonic() + 60
    while top.exists():
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # a process may still be ending
                os.rmdir(directory)
        if time.monotonic() > deadline:
            raise AssertionError(f"{top} cannot be removed")
        if top.exists():
            time.sleep(0.02)
