"""The end-to-end tests of the API on etcd: three members in network namespaces, two API servers, real kubectl, a node.

Each connection of a client goes to another server. The tests with a real node have one server on the same etcd.
etcd is Debian's, or the program that $PLIMSOLL_ETCD names.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.etcd_cluster import HUB, MEMBERS, Cluster, Network
from tests.e2e.kubectl import unpacked
from tests.outcomes import outcomes

TESTS = Path(__file__).resolve().parents[1] / "e2e"
FILES = (
    *sorted(path.name for path in TESTS.glob("test_kubectl_*.py") if path.name != "test_kubectl_releases.py"),
    "test_verbs.py",
    "test_verbs_like_kubectl.py",
    "test_foreign_clients.py",
    "test_workloads_node.py",
    "test_services_real_node.py",
    "test_node_changes.py",
)


def main(seed: int) -> dict[str, Any]:
    unpacked()  # the namespaces have no way to the package index
    network = Network()
    with tempfile.TemporaryDirectory(prefix="plimsoll-etcd-") as directory:
        network.start()
        cluster = Cluster(Path(directory), network)
        try:
            cluster.start_members()
            environment = {
                "PLIMSOLL_TEST_STORE": "etcd",
                "PLIMSOLL_TEST_ETCD": cluster.endpoints,
                "PLIMSOLL_TEST_API_SERVERS": "2",
            }
            hub = ["nsenter", f"--net=/run/netns/{network.namespace(HUB)}"]
            words = ("-n", "2", "--dist", "loadgroup", *(str(TESTS / name) for name in FILES))
            tests, failed = outcomes(*words, environment=environment, before=hub)
        finally:
            cluster.close()
            network.close()
    count = {kind: sum(each["outcome"] == kind for each in tests.values()) for kind in ("passed", "skipped")}
    return {**count, "failed": failed, "members": len(MEMBERS), "servers": 2, "seed": seed}
