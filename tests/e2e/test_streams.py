"""exec, attach, cp, port-forward and debug with real kubectls: up to 1.29 they speak SPDY/3.1, later ones WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl, NoKubectlError, of_minor
from tests.e2e.real_node import RealNode, kubectl_for, real_node
from tests.e2e.stream_checks import CHECKS

pytestmark = pytest.mark.xdist_group("streams")  # one node for all
MINORS = [(1, 27), (1, 28), (1, 29), (1, 32), (1, 36), (1, 37)]
ALWAYS = {(1, 27), (1, 36)}  # the others are for `./dev prove streams`


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("streams") / "cluster") as made:
        exercised("streams", "this machine, embedded runtime")
        yield made


@pytest.fixture(
    params=[
        pytest.param(minor, id=f"1.{minor[1]}", marks=() if minor in ALWAYS else pytest.mark.long) for minor in MINORS
    ]
)
def kube_of(request: pytest.FixtureRequest, node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    try:
        binary = of_minor(request.param)
    except NoKubectlError as error:
        pytest.skip(str(error))
    with kubectl_for(node, tmp_path, binary) as made:
        yield made


@pytest.mark.parametrize("check", CHECKS)
def test_streams(kube_of: Kubectl, check: str, tmp_path: Path) -> None:
    CHECKS[check](kube_of, "busybox", tmp_path)
