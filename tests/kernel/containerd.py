"""A containerd of our own: root, state, socket, network and images below one directory, gone again at the end.

It runs in a mount namespace of its own, so that whatever it mounts ends with it. With `network` it has a network namespace
of its own as well, because CNI's plugins make devices, routes and settings where containerd is: none of the host's are
touched, what is "the host" to its pods is that namespace (`reached_from_it`), and `attach` cannot be tried there. Its images are made here, from the
host's static busybox, and imported from a file: no registry. Some kernels keep a v1 hierarchy that nobody has mounted
(hugetlb, after somebody's umount); containerd's shim then finds no cgroup at all and reports no OOM kill, so such a
hierarchy is mounted in that namespace.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from plimsoll.linux.processes import CAP_SYS_RESOURCE, has_capability
from tests.kernel.guest import BUSYBOX, required

PROGRAMS = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", BUSYBOX: "busybox-static"}
PLUGINS = Path("/usr/lib/cni")  # of Debian's containernetworking-plugins
PAUSE, IMAGE = "localhost/pause:1", "localhost/busybox:1"
START_S = 60.0

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
      BinaryName = "/usr/bin/crun"
      SystemdCgroup = {systemd}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""


class Containerd:
    """Use `private_containerd`."""

    def __init__(self, directory: Path, *, systemd: bool, network: bool) -> None:
        self.directory, self.socket = directory, str(directory / "containerd.sock")
        self._process: subprocess.Popen[bytes] | None = None
        self._own_network = network
        (directory / "cni").mkdir()
        if network:
            (directory / "cni" / "10-test.conflist").write_text(json.dumps(_network(directory)))
        # Lowering oom_score_adj needs a capability; without it containerd must be told to live with what it has.
        restrict = not has_capability(CAP_SYS_RESOURCE)
        config = _CONFIG.format(
            directory=directory,
            pause=PAUSE,
            restrict=str(restrict).lower(),
            systemd=str(systemd).lower(),
            plugins=PLUGINS,
        )
        (directory / "config.toml").write_text(config)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers."""
        (self.directory / "hugetlb").mkdir(exist_ok=True)
        mount = f"mount -t cgroup -o hugetlb none {self.directory}/hugetlb && " if _hugetlb_unmounted() else ""
        up = "ip link set lo up && " if self._own_network else ""
        script = f"{mount}{up}exec containerd -c {self.directory}/config.toml"
        namespaces = ["--net"] if self._own_network else []
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "slave", *namespaces, "/bin/sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while self._ctr("version").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"containerd did not start:\n{self.log()[-4000:]}")
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Containers go on."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def add_images(self, *tags: str) -> None:
        """The busybox image under further names."""
        for tag in tags:
            self._ctr("-n", "k8s.io", "images", "tag", IMAGE, tag).check_returncode()

    def import_images(self) -> None:
        archive = self.directory / "images.tar"
        write_images(archive)
        done = self._ctr("-n", "k8s.io", "images", "import", str(archive))
        assert done.returncode == 0, done.stderr

    def reached_from_it(self, url: str) -> bytes | None:
        """A page, fetched from the network that containerd is in; None where nobody answers."""
        fetch = ["nsenter", f"--net=/proc/{self.pid}/ns/net", BUSYBOX, "wget", "-q", "-O", "-", url]
        done = subprocess.run(fetch, capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def clean_up(self) -> None:
        """Whatever a test has left: containers, shims, the daemon."""
        for task in self._ctr("-n", "k8s.io", "tasks", "ls", "-q").stdout.split():
            self._ctr("-n", "k8s.io", "tasks", "kill", "-s", "KILL", task)
        self.end()
        for pid in self.shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self.shims() and time.monotonic() < deadline:
            time.sleep(0.02)
        shutil.rmtree(self.directory, ignore_errors=True)

    def shims(self) -> list[int]:
        """Processes that name our socket on their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"containerd-shim" in command and self.socket.encode() in command:
                found.append(int(entry.name))
        return found

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ctr", "-a", self.socket, *words], capture_output=True, text=True, check=False)


@contextlib.contextmanager
def private_containerd(
    *, systemd: bool = False, network: bool = False, below: str | None = None
) -> Iterator[Containerd]:
    """GuestMissing where a package is not there."""
    required(PROGRAMS)
    # Not pytest's tmp_path: a unix socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="plimsoll-ctd-", dir=below))
    daemon = Containerd(directory, systemd=systemd, network=network)
    try:
        daemon.start()
        daemon.import_images()
        yield daemon
    finally:
        daemon.clean_up()


def write_images(archive: Path) -> None:
    """docker-archive of the pause image and of busybox with all its applets."""
    busybox = Path(BUSYBOX).read_bytes()
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    layer = _layer(busybox, applets)
    digest = hashlib.sha256(layer).hexdigest()
    manifest = []
    with tarfile.open(archive, "w") as written:
        _add(written, f"{digest}/layer.tar", layer)
        for tag, entry in ((PAUSE, ["/bin/sleep", "2147483647"]), (IMAGE, ["/bin/sh"])):
            config = {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Entrypoint": entry, "Env": ["PATH=/bin"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created_by": tag}],
            }
            data = json.dumps(config).encode()
            name = hashlib.sha256(data).hexdigest() + ".json"
            _add(written, name, data)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]})
        _add(written, "manifest.json", json.dumps(manifest).encode())


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(entry)
        _add(layer, "bin/busybox", busybox, 0o755)
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                layer.addfile(link)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _network(directory: Path) -> dict[str, object]:
    """A veth pair per pod."""
    addresses = {"type": "host-local", "dataDir": f"{directory}/ipam", "ranges": [[{"subnet": "10.88.77.0/24"}]]}
    return {
        "cniVersion": "0.4.0",
        "name": f"plimsoll-{secrets.token_hex(3)}",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}],
    }


def _hugetlb_unmounted() -> bool:
    listed = any(line.split(":")[1] == "hugetlb" for line in Path("/proc/self/cgroup").read_text().splitlines())
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return listed and not any(
        "hugetlb" in line.rsplit(" ", 1)[-1].split(",") for line in mounts if " - cgroup " in line
    )


@contextlib.contextmanager
def cgroup_parent() -> Iterator[str]:
    """`/plimsoll-test-<random>`; whatever stands below it in any hierarchy is removed at the end."""
    name = f"plimsoll-test-{secrets.token_hex(4)}"
    try:
        yield f"/{name}"
    finally:
        for mount in cgroup_mounts():
            remove_tree(mount / name)


def cgroup_mounts() -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [Path(line.split()[4]) for line in lines if " - cgroup " in line or " - cgroup2 " in line]


def remove_tree(top: Path) -> None:
    deadline = time.monotonic() + 10
    while top.exists():
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # a process may still be on its way out
                os.rmdir(directory)
        if time.monotonic() > deadline:
            raise AssertionError(f"{top} cannot be removed")
        if top.exists():
            time.sleep(0.02)
