"""A control plane with one fake node, as processes, for as long as the tests of one profile run.

With PLIMSOLL_TEST_API_SERVERS=2, and a store on etcd (tests/e2e/etcd_process.py), it has that many API servers, and each
connection of a client goes to another one.
"""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path

import msgspec

from plimsoll.rules.profile import profile_named
from tests.e2e.balancer import balanced
from tests.e2e.etcd_process import store_options
from tests.e2e.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODE = "n1"
STOP_S = 60


class FakeCluster(msgspec.Struct, frozen=True):
    profile: str
    state: Path
    url: str
    kubeconfig: Path
    servers: tuple[str, ...]
    node_pid: int = 0

    @property
    def release(self) -> str:
        return profile_named(self.profile).release

    def token(self, *words: str) -> bytes:
        """A kubeconfig for another client."""
        made = _said(*plimsoll_command(), "api", "--state-dir", str(self.state), "token", "create", *words)
        if token := re.search(rb"token: (\S+)", made):
            until(lambda: all(_knows(server, token[1].decode()) for server in self.servers))
        return made.replace(self.servers[0].encode(), self.url.encode())


@contextmanager
def fake_cluster(directory: Path, profile: str, *options: str) -> Iterator[FakeCluster]:
    """`directory` must not exist yet; the logs of both processes stay in it."""
    state = directory / "state"
    directory.mkdir(parents=True)
    with ExitStack() as stack:
        common, store = ["--profile", profile, *options], store_options(state)
        server = ["api", "--state-dir", str(state), "--listen", "127.0.0.1:0", *store, *common]
        url = stack.enter_context(running_process([*plimsoll_command(), *server], directory / "api.log", "https://"))
        made = FakeCluster(profile, state, url, state / "admin.kubeconfig", (url,))
        if (count := int(os.environ.get("PLIMSOLL_TEST_API_SERVERS", "1"))) > 1:
            made = stack.enter_context(_several(made, count, store, common))
        node_config = directory / "node.kubeconfig"
        node_config.write_bytes(made.token("--node", NODE))
        play = [sys.executable, "-m", "tests.e2e.fake_node", "--kubeconfig", str(node_config)]
        play += ["--name", NODE, "--profile", profile]
        line = stack.enter_context(running_process(play, directory / "node.log", "running"))
        yield msgspec.structs.replace(made, node_pid=int(line.rpartition(" ")[2]))


@contextmanager
def _several(first: FakeCluster, count: int, store: list[str], options: list[str]) -> Iterator[FakeCluster]:
    """The cluster with more servers on the same store, behind one address."""
    assert store, "several API servers need PLIMSOLL_TEST_STORE=etcd"
    _, location, *key = store
    with ExitStack() as stack:
        urls = [first.url]
        for number in range(2, count + 1):
            state = first.state.with_name(f"state-{number}")
            words = ["api", "--state-dir", str(state), *options, "join", location, *key, "--listen", "127.0.0.1:0"]
            log = state.with_name(f"api-{number}.log")
            urls.append(stack.enter_context(running_process([*plimsoll_command(), *words], log, "https://")))
        url = stack.enter_context(balanced(urls))
        kubeconfig = first.state.with_name("all-servers.kubeconfig")
        kubeconfig.write_text(first.kubeconfig.read_text().replace(first.url, url))
        kubeconfig.chmod(0o600)
        yield msgspec.structs.replace(first, url=url, kubeconfig=kubeconfig, servers=tuple(urls))


def _knows(server: str, token: str) -> bool:
    """Servers share their tokens within seconds. An unknown token is an error for every path."""
    asked = urllib.request.Request(f"{server}/version", headers={"Authorization": f"Bearer {token}"})
    try:
        urllib.request.urlopen(asked, context=ssl._create_unverified_context()).close()
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED:
            raise
        return False
    return True


def plimsoll_command() -> list[str]:
    return [str(Path(sys.executable).with_name("plimsoll"))]


def _said(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout


@contextmanager
def running_process(command: list[str], log: Path, ready: str) -> Iterator[str]:
    """The line that reports that it is ready; ended by SIGTERM. It must not end before."""
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        assert line.startswith(ready), f"{' '.join(command)}: {line!r}\n{log.read_text()}"
        yield line
        assert process.poll() is None, f"{' '.join(command)} has ended\n{log.read_text()}"
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
