"""Guests of QEMU without hardware help: Debian's cloud kernel, for what user-mode Linux lacks. 5 seconds to start.

It has cgroup v2 with cpuset, hugetlb and PSI, and several CPUs; everything computes some ten times slower, so that what
runs there is best a small program of plain Python. By hand: `python -m tests.kernel.qemu --cpus 8 -- nproc`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kernel.guest import (
    BUSYBOX,
    SCRIPTS,
    Guest,
    GuestMissingError,
    Result,
    by_hand,
    end,
    job_directory,
    required,
    result,
    scratch_disk,
    start,
    wait,
)
from tests.kernel.uml import SYSTEMD_PROGRAMS

QEMU = "qemu-system-x86_64"
VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
PROGRAMS = {
    QEMU: "qemu-system-x86",
    VIRTIOFSD: "qemu-system-common",
    BUSYBOX: "busybox-static",
    "/sbin/modinfo": "kmod",
    "setpriv": "util-linux",
}
MODULES = ("virtio_pci", "virtiofs", "overlay", "virtio_blk")  # and those that they depend on
SHARES_READY_S = 10.0


def kernel() -> Path:
    images = sorted(Path("/boot").glob("vmlinuz-*-cloud-amd64"))
    if not images:
        raise GuestMissingError("this guest needs the Debian package linux-image-cloud-amd64")
    return images[-1]


def initial_disk(release: str) -> bytes:
    """The initial RAM disk, made on the spot: busybox, modules in the order of their dependencies, and our init script."""
    modules: dict[str, bytes] = {}
    for module in MODULES:
        _add_module(modules, release, module)
    files = {
        "bin/busybox": Path(BUSYBOX).read_bytes(),
        "init": (SCRIPTS / "qemu-init.sh").read_bytes(),
        "fill-root.sh": (SCRIPTS / "fill-root.sh").read_bytes(),
        "modules/order": " ".join(modules).encode(),
        **{f"modules/{name}.ko": content for name, content in modules.items()},
    }
    return cpio(["bin", "modules", "proc", "dev", "sys"], files)


def _add_module(modules: dict[str, bytes], release: str, name: str) -> None:
    """After the modules that it depends on: the order differs between kernel releases."""

    def modinfo(*options: str) -> str:
        query = ["/sbin/modinfo", "-k", release, *options, name]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()

    if name not in modules:
        for needed in filter(None, modinfo("-F", "depends").split(",")):
            _add_module(modules, release, needed)
        modules[name] = Path(modinfo("-n")).read_bytes()


def cpio(folders: Sequence[str], files: Mapping[str, bytes]) -> bytes:
    """An archive in the kernel's `newc` form: a header of 13 hexadecimal words, name and data, each padded to 4."""
    archive = bytearray()

    def add(name: str, mode: int, data: bytes = b"", major: int = 0, minor: int = 0) -> None:
        spelled = name.encode() + b"\0"
        inode = len(archive)  # any number that no other entry has
        words = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(spelled), 0)
        archive.extend(b"070701" + b"".join(b"%08X" % word for word in words) + spelled)
        archive.extend(b"\0" * (-len(archive) % 4) + data)
        archive.extend(b"\0" * (-len(archive) % 4))

    for folder in folders:
        add(folder, 0o40755)
    add("dev/console", 0o20600, major=5, minor=1)
    for name, data in files.items():
        add(name, 0o100755, data)
    add("TRAILER!!!", 0)
    return bytes(archive)


def run(
    guest: Guest, argv: Sequence[str], timeout_s: float = 300.0, environment: Mapping[str, str] | None = None
) -> Result:
    """Start the guest, run the command in it, end the guest. Raises GuestMissingError where that can't be done here."""
    required(PROGRAMS | (SYSTEMD_PROGRAMS if guest.systemd else {}))
    if os.geteuid() != 0:
        raise GuestMissingError("this guest needs root: virtiofsd shares the file system from a chroot")
    image = kernel()
    # The sockets and the RAM disk are not in the directory that the guest can write to.
    with job_directory(guest, argv, environment) as job, tempfile.TemporaryDirectory(prefix="plimsoll-qemu-") as name:
        own = Path(name)
        (own / "initrd").write_bytes(initial_disk(image.name.removeprefix("vmlinuz-")))
        options = [f"JOB={job}", f"INIT={'systemd' if guest.systemd else 'plain'}", f"CGROUP={guest.cgroup}"]
        machine: list[str] = []
        if disk := scratch_disk(own, guest):
            slow = f",throttling.bps-total={guest.disk_bytes_per_s}" if guest.disk_bytes_per_s else ""
            machine += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe{slow}"]
            options += ["DISK=/dev/vda"]
        started = time.monotonic()
        processes = []
        try:
            shares = {"host": "source=/,cache=always,no_writeback", "job": f"source={job},cache=none"}
            for tag, share in shares.items():
                daemon = [VIRTIOFSD, "-f", f"--socket-path={own}/{tag}.sock", "-o", f"{share},sandbox=chroot"]
                processes.append(start([*daemon, "--rlimit-nofile=0", "--thread-pool-size=2"], own / f"{tag}.log"))
                machine += ["-chardev", f"socket,id={tag},path={own}/{tag}.sock"]
                machine += ["-device", f"vhost-user-fs-pci,queue-size=1024,chardev={tag},tag={tag}"]
            await_sockets([own / f"{tag}.sock" for tag in shares], processes)
            processes.append(
                start([*qemu_argv(guest, image, own / "initrd", job, options), *machine], own / "qemu.log")
            )
            in_time = wait(processes[-1], timeout_s)
        finally:
            for process in reversed(processes):
                end(process)
        if not (job / "console").exists():  # it never came to a kernel: then QEMU has said why
            (job / "console").write_bytes((own / "qemu.log").read_bytes())
        return result(job, in_time=in_time, seconds=time.monotonic() - started)


def qemu_argv(guest: Guest, image: Path, initrd: Path, job: Path, options: Sequence[str]) -> list[str]:
    memory = f"{guest.memory_mib}M"
    fast = "quiet mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on rcupdate.rcu_expedited=1"
    return [
        QEMU, "-nographic", "-nodefaults", "-no-reboot",
        "-accel", "tcg,thread=multi,tb-size=256", "-cpu", f"max,la57=off{_threads_option(guest)}",
        "-M", "q35" if guest.numa_nodes > 1 else "q35,memory-backend=memory", "-smp", processors(guest), "-m", memory,
        *memory_options(guest),
        "-serial", f"file:{job}/console",
        "-kernel", str(image), "-initrd", str(initrd),
        "-append", f"console=ttyS0 panic=-1 psi=1 {fast} {' '.join(options)}",
    ]  # fmt: skip


def memory_options(guest: Guest) -> list[str]:
    """Memory that virtiofsd shares, of one NUMA node or split between several."""
    nodes, size = guest.numa_nodes, guest.memory_mib // guest.numa_nodes
    if nodes == 1:
        return ["-object", f"memory-backend-memfd,id=memory,size={size}M,share=on"]
    options = []
    for node in range(nodes):
        cpus = range(node * guest.cpus // nodes, (node + 1) * guest.cpus // nodes)
        options += ["-object", f"memory-backend-memfd,id=memory{node},size={size}M,share=on"]
        options += ["-numa", f"node,nodeid={node},cpus={cpus[0]}-{cpus[-1]},memdev=memory{node}"]
    return options


def processors(guest: Guest) -> str:
    return f"{guest.cpus},sockets=1,cores={guest.cpus // guest.threads},threads={guest.threads}"


def _threads_option(guest: Guest) -> str:
    """An emulated processor reports which of its threads share a core only as an Intel one."""
    return ",vendor=GenuineIntel" if guest.threads > 1 else ""


def await_sockets(sockets: Sequence[Path], daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + SHARES_READY_S
    while not all(path.exists() for path in sockets):
        if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in daemons):
            said = " ".join(path.with_suffix(".log").read_text(errors="replace").strip() for path in sockets)
            raise GuestMissingError(f"virtiofsd does not start here: {said or 'no socket'}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(by_hand("qemu", run, __doc__))
