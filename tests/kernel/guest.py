"""What guests of both kinds share: a job directory that is written through, a command in it, and what comes back.

A guest is a whole Linux kernel in our own processes (user-mode Linux or QEMU). It sees the host's file system
read-only below an overlay in memory, runs one command in it, leaves status, output and a few facts about itself in the
job directory, and powers off. The `.venv` of the project is therefore there as it is here. Every process of a guest is
in a session of its own, dies with us, and is killed when its time is over.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
PYTHON = str(ROOT / ".venv" / "bin" / "python") if (ROOT / ".venv").exists() else sys.executable
SCRIPTS = Path(__file__).resolve().parent / "guest"
GUEST_VARIABLE = "PLIMSOLL_GUEST"  # set in every guest, to its kind
JOB_VARIABLE = "PLIMSOLL_GUEST_JOB"  # … and the directory in which files come back
BUSYBOX = "/bin/busybox"
TIMED_OUT, NO_STATUS = 124, 125  # exit codes of our own, as `timeout` and `env` have them


class GuestMissingError(Exception):
    """This machine can't start such a guest; the text says what is missing and how to install it."""


@dataclass(frozen=True)
class Guest:
    """Which machine to start. `systemd` makes it PID 1, so that slices and scopes can be had from it."""

    machine: Literal["uml", "qemu"]
    cgroup: Literal[1, 2] = 2
    systemd: bool = False
    memory_mib: int = 512
    cpus: int = 1
    threads: int = 1  # of each core (QEMU only)
    numa_nodes: int = 1  # which share CPUs and memory equally (QEMU only)
    disk_mib: int = 0  # an ext4 disk on /scratch: page cache that can be reclaimed
    disk_bytes_per_s: int = 0  # the most that this disk reads and writes; 0: as fast as it is (QEMU only)

    @property
    def name(self) -> str:
        return f"{self.machine}-v{self.cgroup}-{'systemd' if self.systemd else 'cgroupfs'}"


@dataclass(frozen=True)
class Result:
    status: int  # the command's own; TIMED_OUT or NO_STATUS where the guest never got so far
    stdout: str
    stderr: str
    console: str = ""
    seconds: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)  # the guest about itself: kernel, cgroup, init, cpus
    files: Mapping[str, bytes] = field(default_factory=dict)  # what else the command has left in its job directory

    def described(self, machine: str) -> str:
        """`Linux 6.1.176 UML, cgroup v2, systemd`, from what the guest itself has reported."""
        driver = "systemd" if self.facts.get("init") == "systemd" else "cgroupfs"
        kernel, version = self.facts.get("kernel", "?"), self.facts.get("cgroup", "?")
        return f"Linux {kernel} {machine.upper()}, cgroup v{version}, {driver}"

    def report(self) -> str:
        """Everything known, for a test that reports why a guest failed."""
        parts = (("stdout", self.stdout), ("stderr", self.stderr), ("console", self.console[-4000:]))
        said = "".join(f"\n--- {name} ---\n{text}" for name, text in parts if text.strip())
        return f"status {self.status} after {self.seconds:.1f} s{said}"


def required(programs: Mapping[str, str]) -> None:
    """Path or command → the Debian package that brings it; all must be there."""
    packages = sorted({package for program, package in programs.items() if not shutil.which(program)})
    if packages:
        raise GuestMissingError(f"this guest needs the Debian packages {' '.join(packages)}")


_OWN_FILES = {"command", "console", "facts", "status", "stdout", "stderr", "disk.img"}
# Not our own PATH: a version manager's shims on it would cost seconds in a guest.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@contextmanager
def job_directory(
    guest: Guest, argv: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Iterator[Path]:
    """A fresh directory with the command and the guest's scripts in it, gone again at the end."""
    # Below /var/tmp or /tmp, never below /run or /dev, which the guest covers with its own.
    with tempfile.TemporaryDirectory(prefix="plimsoll-guest-", ignore_cleanup_errors=True) as name:
        job = Path(name).resolve()
        exported = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"}
        exported |= {GUEST_VARIABLE: guest.name, JOB_VARIABLE: str(job), "PYTHONDONTWRITEBYTECODE": "1"}
        exported |= environment or {}
        lines = [f"export {key}={shlex.quote(value)}" for key, value in exported.items()]
        lines += [f"cd {shlex.quote(str(cwd))} || exit 126", f"exec {shlex.join(argv)}"]
        (job / "command").write_text("\n".join(lines) + "\n")
        for script in SCRIPTS.iterdir():
            shutil.copy(script, job)  # with its mode: the one that is PID 1 must be executable
        yield job


def scratch_disk(job: Path, guest: Guest) -> Path | None:
    """An empty ext4 image in the job directory, sparse; None where none is asked for."""
    if not guest.disk_mib:
        return None
    required({"mkfs.ext4": "e2fsprogs"})
    image = job / "disk.img"
    with open(image, "wb") as file:
        file.truncate(guest.disk_mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", image], check=True)
    return image


def start(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """One process of a guest and all that it starts: in a session of its own, and killed with us should we be killed.

    The kernel notifies only a child of its parent's death. So the child is `unshare`, which dies with us, and with it the
    first process of a namespace of process ids, and with that all others in it.
    """
    as_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    with open(log, "wb") as output:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *as_user, "--pid", "--fork", "--kill-child=KILL", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole session; one that has ended by itself is fine."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether it ended by itself in time."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def result(job: Path, *, in_time: bool, seconds: float) -> Result:
    def text(name: str) -> str:
        path = job / name
        return path.read_text(errors="replace") if path.exists() else ""

    status = text("status").strip()
    known = _OWN_FILES | {script.name for script in SCRIPTS.iterdir()}
    return Result(
        status=int(status) if status else NO_STATUS if in_time else TIMED_OUT,
        stdout=text("stdout"),
        stderr=text("stderr"),
        console=text("console"),
        seconds=seconds,
        facts=dict(line.split("=", 1) for line in text("facts").splitlines() if "=" in line),
        files={path.name: path.read_bytes() for path in job.iterdir() if path.is_file() and path.name not in known},
    )


Run = Callable[[Guest, Sequence[str], float], Result]


def by_hand(machine: Literal["uml", "qemu"], run: Run, module_doc: str | None) -> int:
    """The command line of both runners: `python -m tests.kernel.uml --systemd -- CMD…`."""
    parser = ArgumentParser(prog=f"python -m tests.kernel.{machine}", description=(module_doc or "").split("\n")[0])
    parser.add_argument("--systemd", action="store_true", help="systemd is PID 1")
    parser.add_argument("--cgroup", choices=("v1", "v2"), default="v2")
    parser.add_argument("--memory", type=int, metavar="MIB", default=512 if machine == "uml" else 1024)
    parser.add_argument("--disk", type=int, metavar="MIB", default=0, help="an ext4 disk on /scratch")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", default=120.0)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="the guest's console, its facts and the time taken"
    )
    if machine == "qemu":
        parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    cgroup: Literal[1, 2] = 1 if asked.cgroup == "v1" else 2
    cpus = getattr(asked, "cpus", 1)
    guest = Guest(machine, cgroup, asked.systemd, asked.memory, cpus, disk_mib=asked.disk)
    try:
        done = run(guest, asked.command, asked.timeout)
    except GuestMissingError as problem:
        print(problem, file=sys.stderr)
        return NO_STATUS
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if asked.verbose or done.status in (TIMED_OUT, NO_STATUS):
        print(f"--- console ---\n{done.console}\n--- {dict(done.facts)}, {done.seconds:.1f} s", file=sys.stderr)
    return done.status
