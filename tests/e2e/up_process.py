"""`plimsoll up` as a user in a terminal runs it, below a cgroup of the test's own; and what it may not leave behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, default_root, open_cgroupfs, this_host, writable
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from tests.e2e.waiting import until

ROOT = Path(__file__).resolve().parents[2]
CAPACITY = "cpu=4,memory=1Gi"
READY = "\nTry:"
PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))


def problem() -> str:
    """Why limits cannot be real here; empty where they can."""
    if os.geteuid() != 0:
        return "root is needed"
    try:
        default_root(this_host(), writable(this_host()))
    except CgroupsUnusableError as error:
        return str(error)
    return ""


class Up:
    """Started when it is made. Its output is collected while it runs."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        listen: str = "127.0.0.1:0",
        within: tuple[str, ...] = (),
        plimsoll: str | Path = PLIMSOLL,
        root: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`within`: a command that runs the one given to it."""
        self.state = directory / "state"
        self.root = root or f"/plimsoll-test-{secrets.token_hex(4)}"
        self.output = ""
        command = [*within, str(plimsoll), "up", "--state-dir", str(self.state), "--cgroup-root", self.root]
        command += ["--capacity", CAPACITY, *(["--listen", listen] if listen else []), *options]
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "NO_COLOR": "1", **(environment or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    @property
    def url(self) -> str:
        return next(word for word in self.output.split() if word.startswith("https://"))

    def ready(self) -> Up:
        until(lambda: READY in self.output or self.process.poll() is not None)
        assert READY in self.output, f"{self.output}\n{self.log('node')}\n{self.log('api')}"
        return self

    def log(self, name: str) -> str:
        file = self.state / f"{name}.log"
        return file.read_text()[-3000:] if file.exists() else ""

    def transport(self) -> HttpTransport:
        return HttpTransport(load(self.state / "admin.kubeconfig"))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ended(self, timeout_s: float = 90.0) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(60)
        return code

    def end(self) -> None:
        """Whatever state the test left it in."""
        if self.process.poll() is None:
            self.interrupt()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self._reader.join(60)
            self.process.stdout.close()

    def close(self) -> None:
        """End it; what it leaves behind is removed, and fails the test."""
        close_all([self])

    # --- what may be left behind ---

    def processes(self) -> list[int]:
        """Ours by their command line: API server, agent, supervisor."""
        return [pid for pid in _pids() if str(self.state) in _text(f"/proc/{pid}/cmdline")]

    def members(self) -> list[int]:
        """Processes in cgroups below our root."""
        return [pid for pid in _pids() if f":{self.root}" in _text(f"/proc/{pid}/cgroup")]

    def cgroups(self) -> bool:
        return not problem() and open_cgroupfs(this_host()).read(self.root, ()) is not None

    def mounts(self) -> list[str]:
        return [line for line in _text("/proc/self/mountinfo").splitlines() if str(self.state) in line]

    def left(self) -> dict[str, object]:
        """Everything that should not be there any more."""
        found = {
            "processes": self.processes(),
            "members": self.members(),
            "cgroups": self.cgroups(),
            "mounts": self.mounts(),
        }
        return {name: what for name, what in found.items() if what}


def close_all(every: Sequence[Up]) -> None:
    """End all of them before anything is said to be left: two may share a state directory and a cgroup."""
    for each in every:
        each.end()
    try:
        for each in every:
            until(lambda each=each: not each.left(), lambda each=each: str(each.left()))  # type: ignore[misc]
    finally:
        for each in every:
            for pid in each.processes():
                os.kill(pid, signal.SIGKILL)
            if each.left():
                subprocess.run([PLIMSOLL, "reset", "--state-dir", str(each.state), "--yes"], check=True, timeout=120)


@contextmanager
def namespaces(pids: list[int]) -> Iterator[set[str]]:
    """Of these processes, without those that this process is in too. Open meanwhile, so that their numbers are not reused."""
    own = {_link(f"/proc/self/ns/{kind}") for kind in _KINDS}
    places = [f"/proc/{pid}/ns/{kind}" for pid in pids for kind in _KINDS]
    with ExitStack() as kept:
        for place in places:
            with suppress(OSError):
                kept.callback(os.close, os.open(place, os.O_RDONLY))
        yield set(map(_link, places)) - own - {""}


def all_namespaces() -> set[str]:
    """That some process is in, or that a mount keeps."""
    kept = {word for line in _text("/proc/self/mountinfo").splitlines() for word in line.split() if ":[" in word}
    return {_link(f"/proc/{pid}/ns/{kind}") for pid in _pids() for kind in _KINDS} | kept


_KINDS = ("net", "ipc", "uts", "pid", "mnt")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
