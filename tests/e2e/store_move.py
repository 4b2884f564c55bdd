"""A cluster with a real node moves from SQLite to etcd and back while its containers run and a client follows the pods.

`move` counts what happened, and returns faults: objects that differ, containers that are others, changes that the
follower has not seen.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.kube.reflector import Reflector
from plimsoll.kube.request import Method, Request
from tests.e2e.etcd_process import EtcdProcess
from tests.e2e.raw_http import Connection, admin_tls, request_bytes
from tests.e2e.real_node import NODE, PODS, RealNode, real_node
from tests.e2e.waiting import until

CONTAINERS = 4
_CONNECTIONS = 16
_JSON = (("Content-Type", "application/json"),)
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
_SHELL = "trap 'exit 0' TERM; sleep 100000 & wait"
_KINDS = (
    *("/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/serviceaccounts", "/api/v1/services"),
    *("/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
)
Objects = dict[str, Any]


class Follower:
    """Lists and watches pods in a thread, through all restarts of the server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self.versions: dict[str, str] = {}  # by name, what a cache built from the changes has
        self.seen: list[str] = []
        self._ends = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        thread.start()
        try:
            yield
        finally:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._ends.set)
            thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        follow = asyncio.create_task(self._follow())
        await self._ends.wait()
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)

    async def _follow(self) -> None:
        reflector, transport = Reflector(request.PODS), HttpTransport(load(self._kubeconfig))
        async for changes in Client(transport).follow(reflector, lambda _: None):
            for change in changes:
                name = change.key[1]
                if change.kind == "DELETED":
                    self.versions.pop(name, None)
                else:
                    self.versions[name] = json.loads(change.body)["metadata"]["resourceVersion"]
                self.seen.append(f"{change.kind} {name}")


class Move:
    def __init__(self, node: RealNode, etcd: EtcdProcess) -> None:
        self._node, self._etcd = node, etcd
        self._kubeconfig = node.kubeconfig  # of the first server; the CA moves with the objects
        self._passphrase, self._key = node.directory / "passphrase", node.directory / "store.key"
        self._passphrase.write_text("a passphrase of the operator\n")
        self._key.write_text("a key of the operator\n")
        self._states = 0
        self.counts = {"moves": 0, "pods": 0, "objects_compared": 0, "containers": CONTAINERS}
        self.faults: list[str] = []

    # --- requests ---

    def send(self, method: Method, path: str, body: Objects | None = None) -> Objects:
        async def one() -> Objects:
            transport = HttpTransport(load(self._kubeconfig))
            data = b"" if body is None else json.dumps(body).encode()
            answer = await transport.send(Request(method, path, data, "application/json" if data else ""))
            await transport.close()
            assert answer.status in (200, 201, 202), answer
            found: Objects = json.loads(answer.body)
            return found

        return asyncio.run(one())

    def fill(self, count: int) -> None:
        """Pods that no scheduler binds, so that nothing changes them."""
        container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}}
        spec = {"schedulerName": "none", "containers": [container]}
        bodies = iter([json.dumps({"metadata": {"name": f"s{each}"}, "spec": spec}).encode() for each in range(count)])

        async def one() -> None:
            assert self._node.api is not None
            server = load(self._kubeconfig).server
            connection = await Connection.open(server, admin_tls(self._kubeconfig))
            for body in bodies:
                code, _ = await connection.discarded(request_bytes("POST", PODS, _JSON, body))
                assert code == 201, code
            await connection.close()

        async def every() -> None:
            await asyncio.gather(*(one() for _ in range(_CONNECTIONS)))

        asyncio.run(every())
        self.counts["pods"] = count + CONTAINERS

    def start_containers(self) -> None:
        for number in range(CONTAINERS):
            container = {"name": "c", "image": "busybox", "command": ["sh", "-c", _SHELL]}
            spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 5}
            self.send("POST", PODS, {"metadata": {"name": f"real-{number}"}, "spec": spec})
        until(lambda: len(self.containers()) == CONTAINERS)

    def containers(self) -> dict[str, tuple[str, int]]:
        """Of the running ones, by pod: the id and how often it was restarted."""
        found = {}
        for number in range(CONTAINERS):
            for each in self.send("GET", f"{PODS}/real-{number}").get("status", {}).get("containerStatuses", []):
                if "running" in each["state"]:
                    found[f"real-{number}"] = each["containerID"], each["restartCount"]
        return found

    def renewed_at(self) -> str:
        """When the node has renewed its lease."""
        renewed: str = self.send("GET", _LEASE)["spec"]["renewTime"]
        return renewed

    def end_containers(self) -> None:
        for number in range(CONTAINERS):
            self.send("DELETE", f"{PODS}/real-{number}")
        until(lambda: not any(each["spec"].get("nodeName") for each in self.send("GET", PODS)["items"]))

    def objects(self) -> Objects:
        """What nothing changes by itself."""
        listed = [*self.send("GET", PODS)["items"]]
        listed = [each for each in listed if each["metadata"]["name"].startswith("s")]
        for path in _KINDS:
            listed += [{**each, "kind": path} for each in self.send("GET", path)["items"]]
        return {f"{each.get('kind', PODS)} {each['metadata']['uid']}": each for each in listed}

    # --- moving ---

    def move(self, to: str) -> None:
        """Back up, stop, restore to the other store, start there at the same address."""
        node = self._node
        file = node.directory / f"backup-{self._states}"
        secret = ("--passphrase-file", str(self._passphrase))
        before = self.objects()
        self._plimsoll(*node.api_options, "backup", str(file), *secret)
        self._stop_api()
        self._states += 1
        node.api_state = node.directory / f"api-{self._states}"
        shared = ("--store", f"{self._etcd.url}?prefix=/moved", "--store-key-file", str(self._key))
        node.api_options = shared if to == "etcd" else ()
        self._plimsoll(*node.api_options, "restore", str(file), *secret)
        node.start_api()
        after = self.objects()
        if before != after:
            keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            self.faults.append(f"to {to}: {len(keys)} objects differ, {keys[:3]}")
        self.counts["objects_compared"] += len(after)
        self.counts["moves"] += 1

    def _stop_api(self) -> None:
        assert self._node.api is not None
        self._node.api.terminate()
        assert self._node.api.wait(60) == 0
        self._node.kill_api()

    def _plimsoll(self, *words: str) -> None:
        command = [str(Path(sys.executable).with_name("plimsoll")), "api", "--state-dir", str(self._node.api_state)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def check_follower(self, follower: Follower) -> None:
        """It sees a pod that is made now and its end, and has the same as a list."""
        name = f"new-{self._states}"
        spec = {"schedulerName": "none", "containers": [{"name": "c", "image": "busybox"}]}
        self.send("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        until(lambda: f"ADDED {name}" in follower.seen)
        self.send("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        until(lambda: f"DELETED {name}" in follower.seen)

        def is_equal() -> bool:
            items = self.send("GET", PODS)["items"]
            return follower.versions == {
                each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in items
            }

        until(is_equal)

    def check_node(self, before: dict[str, tuple[str, int]], began: str) -> None:
        """The node reports again, and its containers are the same."""
        until(lambda: self.renewed_at() > began)
        if (now := self.containers()) != before:
            self.faults.append(f"containers were {before}, are {now}")


def run(directory: Path, pods: int) -> tuple[dict[str, int], list[str]]:
    etcd = EtcdProcess(directory).start()
    try:
        with real_node(directory / "cluster") as node:
            mover = Move(node, etcd)
            mover.start_containers()
            mover.fill(pods - CONTAINERS)
            before, follower = mover.containers(), Follower(node.kubeconfig)
            with follower.running():
                until(lambda: len(follower.versions) == pods)
                for to in ("etcd", "sqlite"):
                    began = mover.renewed_at()
                    mover.move(to)
                    mover.check_follower(follower)
                    mover.check_node(before, began)
            mover.end_containers()
        return mover.counts, mover.faults
    finally:
        etcd.kill()
