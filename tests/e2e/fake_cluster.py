"""A control plane with one fake node, as processes, for as long as the tests of one profile run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from plimsoll.rules.profile import profile_named
from tests.e2e.etcd_process import store_options

ROOT = Path(__file__).resolve().parents[2]
NODE = "n1"
STOP_S = 60


class FakeCluster(msgspec.Struct, frozen=True):
    profile: str
    state: Path
    url: str
    kubeconfig: Path

    @property
    def release(self) -> str:
        return profile_named(self.profile).release

    def token(self, *words: str) -> bytes:
        """A kubeconfig for another client."""
        return _said(*plimsoll_command(), "api", "--state-dir", str(self.state), "token", "create", *words)


@contextmanager
def fake_cluster(directory: Path, profile: str, *options: str) -> Iterator[FakeCluster]:
    """`directory` must not exist yet; the logs of both processes stay in it."""
    state = directory / "state"
    directory.mkdir(parents=True)
    with ExitStack() as stack:
        server = ["api", "--state-dir", str(state), "--listen", "127.0.0.1:0", "--profile", profile, *options]
        server[1:1] = store_options(state)
        url = stack.enter_context(running_process([*plimsoll_command(), *server], directory / "api.log", "https://"))
        made = FakeCluster(profile, state, url, state / "admin.kubeconfig")
        node_config = directory / "node.kubeconfig"
        node_config.write_bytes(made.token("--node", NODE))
        play = [sys.executable, "-m", "tests.e2e.fake_node", "--kubeconfig", str(node_config)]
        play += ["--name", NODE, "--profile", profile]
        stack.enter_context(running_process(play, directory / "node.log", "running"))
        yield made


def plimsoll_command() -> list[str]:
    return [str(Path(sys.executable).with_name("plimsoll"))]


def _said(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout


@contextmanager
def running_process(command: list[str], log: Path, ready: str) -> Iterator[str]:
    """The line that reports that it is ready; ended by SIGTERM."""
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        assert line.startswith(ready), f"{' '.join(command)}: {line!r}\n{log.read_text()}"
        yield line
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()
