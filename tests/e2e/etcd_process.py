"""A real etcd on loopback, of PATH or unpacked from Debian's package into .cache/etcd: nothing is installed or started.

`PLIMSOLL_ETCD` names another program, such as one of a newer release. With PLIMSOLL_TEST_STORE=etcd every API server of
the tests has its objects in one real etcd, below a prefix of its own: in that of PLIMSOLL_TEST_ETCD (`etcd://h1:2379,…`),
or in one that the tests start.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "etcd"
PACKAGE = "etcd-server"
READY_S = 60.0


class NoEtcdError(Exception):
    """Why there is none."""


@cache
def program() -> str:
    """Raises NoEtcdError."""
    named = os.environ.get("PLIMSOLL_ETCD")
    found = named or shutil.which("etcd")
    if found:
        return found
    own = CACHE / "usr" / "bin" / "etcd"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not own.exists():
            _unpack()
    return str(own)


def _unpack() -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoEtcdError("etcd is not on PATH, and there is no apt to get Debian's package")
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        os.chmod(directory, 0o755)
        command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", PACKAGE]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        files = [*Path(directory).glob("*.deb")]
        if done.returncode or not files:
            raise NoEtcdError(f"the package {PACKAGE} could not be fetched: {done.stderr.strip()[-300:]}")
        subprocess.run(["dpkg-deb", "-x", str(files[0]), str(CACHE)], check=True)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class EtcdProcess:
    """One member; `start` and `kill` as often as wanted."""

    def __init__(
        self,
        directory: Path,
        name: str = "m1",
        *,
        host: str = "127.0.0.1",
        client_port: int = 0,
        peer_port: int = 0,
        cluster: str = "",
        options: Sequence[str] = (),
        scheme: str = "http",
        before: Sequence[str] = (),
    ) -> None:
        self.host, self.port = host, client_port or free_port(host)
        peer = f"http://{host}:{peer_port or free_port(host)}"
        client = f"{scheme}://{host}:{self.port}"
        self.directory = directory
        self._command = [
            *before, program(), "--name", name, "--data-dir", str(directory / name),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", cluster or f"{name}={peer}", "--initial-cluster-token", directory.name,
            "--logger", "zap", "--log-level", "error", *options,
        ]  # fmt: skip
        self._log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"etcd://{self.host}:{self.port}"

    def start(self, *, wait: bool = True) -> EtcdProcess:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        assert self.process is not None
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NoEtcdError(f"etcd ended with {self.process.returncode}: {self._log.read_text()[-2000:]}")
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise NoEtcdError(f"etcd was not ready after {READY_S:g} s: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@cache
def running_etcd() -> str:
    """One member for all tests of this process, on memory where possible; it ends with the process."""
    if running := os.environ.get("PLIMSOLL_TEST_ETCD"):
        return running
    place = tempfile.mkdtemp(prefix="plimsoll-etcd-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    member = EtcdProcess(Path(place))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    atexit.register(member.kill)
    return member.start().url


def store_url(state: Path) -> str:
    """For the server with this state directory; empty if its objects are in SQLite."""
    if os.environ.get("PLIMSOLL_TEST_STORE") != "etcd":
        return ""
    prefix = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
    return f"{running_etcd()}?prefix=/{prefix}"


def store_options(state: Path) -> list[str]:
    url = store_url(state)
    if not url:
        return []
    key = state.with_name(f"{state.name}.store-key")
    if not key.exists():
        key.write_text(secrets.token_hex(16))
    return ["--store", url, "--store-key-file", str(key)]
