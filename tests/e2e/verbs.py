"""`plimsoll VERB …` against a cluster, in a namespace of the test's own."""

from __future__ import annotations

from typing import Any

from tests.e2e.fake_cluster import FakeCluster
from tests.e2e.manifests import together
from tests.e2e.waiting import until
from tests.unit.console import Ran, run


class Verbs:
    def __init__(self, cluster: FakeCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def words(self, *words: str) -> list[str]:
        """The options of a cluster come right after the verb: `exec` takes none after POD."""
        return [words[0], "--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace, *words[1:]]

    def ran(self, *words: str, stdin: str = "", terminal: bool = False) -> Ran:
        return run(*self.words(*words), stdin=stdin, terminal=terminal)

    def __call__(self, *words: str, stdin: str = "", terminal: bool = False) -> str:
        ran = self.ran(*words, stdin=stdin, terminal=terminal)
        assert ran.code == 0, ran
        return ran.out

    def apply(self, *manifests: str) -> str:
        return self("apply", "-f", "-", stdin=together(*manifests))

    def running(self, name: str) -> None:
        until(lambda: "Running" in self("get", "pod", name, "--no-headers"))


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
