"""exec, attach, cp, port-forward and debug with real kubectls: up to 1.29 they speak SPDY/3.1, later ones WebSocket."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.containerd_node import containerd_node
from tests.e2e.kubectl import Kubectl, NoKubectlError, of_minor
from tests.e2e.real_node import RealNode, kubectl_for, real_node
from tests.e2e.stream_checks import CHECKS, GREETING, SERVER, make, shell

pytestmark = pytest.mark.xdist_group("streams")  # one node for all
MINORS = {
    "embedded": ((1, 27), (1, 28), (1, 29), (1, 32), (1, 36), (1, 37)),
    "containerd": ((1, 27), (1, 36)),
}
ALWAYS = {("embedded", (1, 27)), ("embedded", (1, 36)), ("containerd", (1, 27))}  # others: `./dev prove streams`


@pytest.fixture(scope="module")
def node(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    exercised: Callable[[str, str], None],
) -> Iterator[RealNode]:
    directory = tmp_path_factory.mktemp("streams") / "cluster"
    with ExitStack() as stack:
        if request.param == "embedded":
            made = stack.enter_context(real_node(directory))
        else:
            made, _ = stack.enter_context(containerd_node(directory))
        exercised("streams", f"this machine, {request.param}")
        yield made


@pytest.fixture
def kube_of(minor: tuple[int, int], node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    try:
        binary = of_minor(minor)
    except NoKubectlError as error:
        pytest.skip(str(error))
    with kubectl_for(node, tmp_path, binary) as made:
        yield made


@pytest.mark.parametrize("node", ["embedded"], indirect=True, scope="module")
def test_the_verbs_of_plimsoll(node: RealNode, kube: Kubectl) -> None:
    make(kube, "serves", shell(SERVER))
    make(kube, "talks", shell("while read line; do echo got $line; done", stdin=True, stdinOnce=True))
    command = [str(Path(sys.executable).with_name("plimsoll"))]
    where = ("--kubeconfig", str(node.kubeconfig))
    attached = subprocess.run(
        [*command, "attach", *where, "-i", "talks"], input=b"one\ntwo\n", capture_output=True, check=True
    )
    assert attached.stdout == b"got one\ngot two\n"
    forwarding = subprocess.Popen(
        [*command, "port-forward", *where, "serves", ":8080", ":9"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert forwarding.stdout is not None and forwarding.stderr is not None
    try:
        ports = [int(forwarding.stdout.readline().split(b":")[1].split()[0]) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=60) as near:
            near.sendall(b"hello ")
            near.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: near.recv(100), b"")) == GREETING + b"HELLO bye"
        with socket.create_connection(("127.0.0.1", ports[1]), timeout=60) as near:
            assert near.recv(10) == b""
        assert b"error forwarding port 9 to pod serves_default" in forwarding.stderr.readline()
    finally:
        forwarding.kill()
        forwarding.communicate()


@pytest.mark.parametrize(
    ("node", "minor"),
    [
        pytest.param(
            runtime,
            minor,
            id=f"{runtime}-1.{minor[1]}",
            marks=() if (runtime, minor) in ALWAYS else pytest.mark.long,
        )
        for runtime, minors in MINORS.items()
        for minor in minors
    ],
    indirect=["node"],
    scope="module",
)
@pytest.mark.parametrize("check", CHECKS)
def test_streams(kube_of: Kubectl, check: str, tmp_path: Path) -> None:
    CHECKS[check](kube_of, tmp_path)
