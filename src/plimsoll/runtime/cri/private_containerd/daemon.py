"""A private containerd: its configuration, socket, network and images are in one directory and are removed with it.

It does not use or touch the machine's own containerd. Pods without the host's network get a network namespace with only
loopback, from a small CNI plugin: no devices, routes or rules are created. Images come from a file (`images`). All
mounts are below its directory; in a mount namespace of its own they need no clean-up. `end` leaves no shim behind, even
after containerd was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from plimsoll.codec.kernel.files import mountinfo
from plimsoll.errors import PlimsollError
from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.mounts import detach
from plimsoll.runtime.cri.messages import CONTAINERD_NAMESPACE
from plimsoll.runtime.cri.private_containerd.images import BUSYBOX, PAUSE, write_images

# Required program → its Debian package.
PROGRAMS: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    BUSYBOX: "busybox-static",
}
START_S, END_S = 30.0, 10.0
POLL_S = 0.02
LONGEST_SOCKET = 107

_CONFIG = """\
version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = {restrict}
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = {systemd}
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
      BinaryName = "{crun}"
      SystemdCgroup = {systemd}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
{nri}"""
# containerd 2 has NRI on by default, with the machine's socket and the machine's plugins. Those belong to the machine's
# own containerd: this one has neither.
NO_NRI = """\
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"""

# containerd calls `loopback` first, then the configured plugin, which must report an address of eth0.
_PLUGIN = f"""\
#!{BUSYBOX} sh
case "$CNI_COMMAND" in
VERSION) echo '{{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}}' ;;
ADD)
  {BUSYBOX} nsenter --net="$CNI_NETNS" {BUSYBOX} ip link set lo up || exit 1
  echo '{{"cniVersion":"0.4.0","interfaces":[{{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}}],
    "ips":[{{"version":"4","interface":0,"address":"127.0.0.1/8"}}]}}' ;;
esac
"""
UNIFIED = Path("/sys/fs/cgroup/unified")
# crun refuses a cgroup v1 machine that has left a controller on cgroup v2 ("hybrid mode"), although it would not use
# that controller. In a mount namespace where the cgroup v2 mount is covered, it sees cgroup v1 alone. All other mounts
# stay shared with the machine, which volumes with mountPropagation need.
CRUN_ON_V1 = f"""\
#!/bin/sh
cover='mount --make-private {UNIFIED} && mount -t tmpfs none {UNIFIED}'
exec unshare --mount --propagation unchanged /bin/sh -c "$cover"' && exec "$0" "$@"' {{crun}} "$@"
"""
_NETWORK = {"cniVersion": "0.4.0", "name": "plimsoll", "plugins": [{"type": "plimsoll-loopback"}]}


class ContainerdError(PlimsollError):
    """It did not start, or refused a command; the message has the end of its log."""


class OwnContainerd:
    def __init__(self, directory: Path, *, systemd: bool = False, loopback: bool = True) -> None:
        """`loopback`: pods have a network with loopback alone; without it the runtime has no network at all."""
        self.directory, self.socket = directory, str(directory / "containerd.sock")
        self._process: subprocess.Popen[bytes] | None = None
        self._systemd, self._loopback = systemd, loopback

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    def prepare(self, plugins: Path | None = None) -> None:
        """Write its files. `plugins`: other CNI plugins, which the caller configures."""
        if len(self.socket) > LONGEST_SOCKET:
            raise ContainerdError(f"{self.socket} is too long a path for a socket: choose a shorter --state-dir")
        own_plugins = self.directory / "plugins"
        for path in (self.directory / "cni", own_plugins, self.directory / "hugetlb"):
            path.mkdir(parents=True, exist_ok=True)
        for name in ("loopback", "plimsoll-loopback"):
            (own_plugins / name).write_text(_PLUGIN)
            (own_plugins / name).chmod(0o755)
        if self._loopback:
            (self.directory / "cni" / "10-plimsoll.conflist").write_text(json.dumps(_NETWORK))
        crun = shutil.which("crun") or "/usr/bin/crun"
        if controllers_on_v2_beside_v1():
            (self.directory / "crun").write_text(CRUN_ON_V1.format(crun=shlex.quote(crun)))
            (self.directory / "crun").chmod(0o755)
            crun = str(self.directory / "crun")
        # Lowering oom_score_adj needs a capability; without it containerd must not try.
        config = _CONFIG.format(
            directory=self.directory,
            crun=crun,
            pause=PAUSE,
            restrict=str(not has_capability("SYS_RESOURCE")).lower(),
            systemd=str(self._systemd).lower(),
            plugins=plugins or own_plugins,
            nri=self._nri_section(),
        )
        (self.directory / "config.toml").write_text(config)

    def _nri_section(self) -> str:
        return NO_NRI

    def start(self, *before: str) -> None:
        """Returns when it answers. `before`: the words of a program that starts it, such as `unshare --mount`.

        A kernel may keep a v1 hierarchy that is not mounted (hugetlb, after an umount). containerd's shim then finds no
        cgroup and reports no OOM kill; so that hierarchy is mounted below our directory.
        """
        at = f"{self.directory}/hugetlb"
        # It may be mounted already in the mount namespace of an earlier start, which is not ours.
        mount = f"(mountpoint -q {at} || mount -t cgroup -o hugetlb none {at}) && " if hugetlb_unmounted() else ""
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*before, "/bin/sh", "-c", f"{mount}exec containerd -c {self.directory}/config.toml"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.directory / "pid").write_text(str(self._process.pid))
        deadline_s = time.monotonic() + START_S
        while self.ctr("version").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise ContainerdError(f"containerd did not start; the end of {self.directory}/log:\n{self._log_end()}")
            time.sleep(POLL_S)

    def load_images(self) -> None:
        """Those of `images`, under all their names."""
        archive = self.directory / "images.tar"
        write_images(archive)
        done = self.ctr("-n", CONTAINERD_NAMESPACE, "images", "import", str(archive))
        archive.unlink()
        if done.returncode:
            raise ContainerdError(f"the images could not be loaded: {done.stderr.strip()}")

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Only the daemon; containers keep running."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.wait(END_S)
            self._process = None

    def end(self) -> list[str]:
        """Remove the daemon, its shims, its mounts and its files, whatever their state; returns what is left."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)
        self._end_leftover_daemon()
        for pid in self._in_shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline_s = time.monotonic() + END_S
        while (left := self._in_shims()) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        for path in mounts_below(self.directory):
            with contextlib.suppress(OSError):
                detach(path)
        shutil.rmtree(self.directory, ignore_errors=True)
        left_over = [f"process {pid} of {self.socket}" for pid in left]
        return left_over + ([f"{self.directory}"] if self.directory.exists() else [])

    def shims(self) -> list[int]:
        """Processes that name our socket on their command line."""
        return _processes(b"containerd-shim", self.socket.encode())

    def _in_shims(self) -> list[int]:
        """The shims, and whatever runs below them."""
        pids = self.shims()
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    children.setdefault(above, []).append(int(entry.name))
        for pid in pids:  # grows while it is walked
            pids.extend(children.get(pid, ()))
        return pids

    def _end_leftover_daemon(self) -> None:
        """From an earlier run that was killed."""
        for pid in _processes(b"containerd\0", f"{self.directory}/config.toml".encode()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ctr", "-a", self.socket, *words], capture_output=True, text=True, check=False)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _log_end(self) -> str:
        return "\n".join(self.log().splitlines()[-8:])


def missing_packages() -> list[str]:
    """The Debian packages of missing programs."""
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def mounts_below(directory: Path) -> list[str]:
    """The deepest first."""
    top = f"{directory.resolve()}/"
    paths = [mount.mount_point for mount in mountinfo(Path("/proc/self/mountinfo").read_text())]
    return sorted((path for path in paths if path.startswith(top)), key=len, reverse=True)


def controllers_on_v2_beside_v1() -> list[str]:
    """On a cgroup v1 machine: the controllers that are on its cgroup v2 mount."""
    try:
        return (UNIFIED / "cgroup.controllers").read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        return []


def hugetlb_unmounted() -> bool:
    listed = any(line.split(":")[1] == "hugetlb" for line in Path("/proc/self/cgroup").read_text().splitlines())
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return listed and not any(
        "hugetlb" in line.rsplit(" ", 1)[-1].split(",") for line in mounts if " - cgroup " in line
    )


def _processes(*words: bytes) -> list[int]:
    """Whose command line has all of these words."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if command and all(word in command for word in words):
            pids.append(int(entry.name))
    return pids
