"""kubectl and a real node on two API servers and three etcd members: a Deployment runs, and goes on without one of each.

Started inside the hub's network namespace by `tests/prove/etcd_node.py`; the mounts are the machine's, because `ip netns
exec` would hide its cgroups.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import time
from pathlib import Path
from typing import Any

from tests.e2e.etcd_cluster import HUB_ADDRESS, SERVERS, Cluster, Network
from tests.e2e.kubectl import Kubectl, any_binary
from tests.e2e.real_node import NODE, RealNode
from tests.e2e.waiting import until

LABEL = "app=web"
COMMAND = ["sh", "-c", "trap 'exit 0' TERM; echo started; sleep 100000 & wait"]


def deployment(replicas: int) -> str:
    container = {"name": "c", "image": "busybox", "command": COMMAND, "resources": {"limits": {"memory": "16Mi"}}}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})


class Steps:
    def __init__(self, cluster: Cluster, node: RealNode, home: Path) -> None:
        self._cluster, self._node = cluster, node
        home.mkdir()
        self._kubectl = {
            name: Kubectl(any_binary(), cluster.servers[name].kubeconfig, home) for name in cluster.servers
        }
        self.counts: dict[str, int] = {}

    def run(self) -> None:
        one, two = (self._kubectl[name] for name in SERVERS)
        one("apply", "-f", "-", stdin=deployment(3))
        two("rollout", "status", "deployment/web", "--timeout=120s")
        before = self._containers(two)
        assert len(before) == 3, before
        for kubectl in (one, two):
            name = kubectl("get", "pods", "-l", LABEL, "-o", "name").lines[0]
            assert kubectl("logs", name).out == "started\n"
            assert kubectl("exec", name, "--", "echo", "inside").out == "inside\n"
            assert kubectl("get", "nodes").table[0][:2] == [NODE, "Ready"]
        self._timed("a pod is replaced while the other server is gone", self._without_a_server)
        self._timed("a Deployment is scaled while etcd's leader is gone", self._without_a_leader)
        kept = {uid: found for uid, found in self._containers(one).items() if uid in before}
        assert all(before[uid] == found for uid, found in kept.items()), (before, kept)
        assert len(kept) == 2, "only the deleted pod was replaced"
        one("delete", "deployment", "web", "--wait", "--timeout=120s")
        until(lambda: not two("get", "pods", "-l", LABEL, "-o", "name").lines)

    def _without_a_server(self) -> None:
        """The node talks to the first server; it leads now, if it did not before."""
        one = self._kubectl[SERVERS[0]]
        self._cluster.servers[SERVERS[1]].kill()
        gone = one("get", "pods", "-l", LABEL, "-o", "name").lines[0]
        one("delete", gone, "--wait", "--timeout=120s")
        one("rollout", "status", "deployment/web", "--timeout=120s")
        self._cluster.start_server(SERVERS[1])

    def _without_a_leader(self) -> None:
        one, two = (self._kubectl[name] for name in SERVERS)
        member = self._cluster.members[asyncio.run(self._cluster.leader())]
        member.kill()
        two("scale", "deployment/web", "--replicas=5")
        one("rollout", "status", "deployment/web", "--timeout=120s")
        member.start()
        two("scale", "deployment/web", "--replicas=3")
        until(lambda: len(self._containers(two)) == 3)

    def _timed(self, what: str, step: Any) -> None:
        began = time.monotonic()
        step()
        took = time.monotonic() - began
        print(f"{what}: {took:.1f} s", flush=True)
        self.counts[f"{what}, ms"] = round(took * 1000)

    def _containers(self, kubectl: Kubectl) -> dict[str, tuple[str, int]]:
        """Of the running ones, by the pod's UID: the id, and how often it was restarted."""
        items = json.loads(kubectl("get", "pods", "-l", LABEL, "-o", "json").out)["items"]
        found = {}
        for pod in items:
            for each in pod["status"].get("containerStatuses", []):
                if "running" in each["state"] and "deletionTimestamp" not in pod["metadata"]:
                    found[pod["metadata"]["uid"]] = each["containerID"], each["restartCount"]
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    cluster = Cluster(options.directory, Network(options.network))
    (options.directory / "node").mkdir()
    node = RealNode(options.directory / "node", f"/plimsoll-test-{secrets.token_hex(4)}", "documents")
    node.node_options = ("--listen", f"{HUB_ADDRESS}:0")
    try:
        cluster.start()
        node.api_state = cluster.servers[SERVERS[0]].state
        node.make_identity()
        node.start_node()
        steps = Steps(cluster, node, options.directory / "home")
        steps.run()
        (options.directory / "counts.json").write_text(json.dumps({**steps.counts, "failed": 0}))
    finally:
        node.close()
        cluster.close()
    until(lambda: not node.memory_cgroups())


if __name__ == "__main__":
    main()
