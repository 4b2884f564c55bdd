"""A node that is only played: it speaks to the API as an agent does, and runs nothing.

It registers its Node, renews its lease, follows its pods and reports them as running, grants resizes in two steps
(allocated, then actual), and lets pods go when they are deleted. `fake_endpoint` answers at its endpoint. The kubeconfig
of `plimsoll api token create --node` is all it gets: the certificate in it is also its endpoint's.

    python -m tests.e2e.fake_node --kubeconfig FILE --name n1 --profile 1.27
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plimsoll.kube import kubeconfig, request
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.reflector import ObjectChange, Reflector
from plimsoll.kube.request import ApiError
from plimsoll.rules.profile import Profile, profile_named
from plimsoll.rules.quantity import parse
from tests.e2e.fake_containers import Container, Document, FakePod, pod_status
from tests.e2e.fake_endpoint import endpoint
from tests.e2e.fake_node_object import ALLOCATABLE, node_document

HEARTBEAT_S = 5.0
ACTUATION_S = 0.4  # how long a runtime is said to take; the step between allocated and actual can be seen meanwhile


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FakeNode:
    def __init__(self, client: Client, name: str, profile: Profile) -> None:
        self._client, self._name, self._profile = client, name, profile
        self.pods: dict[tuple[str, str], FakePod] = {}
        self._wishes: dict[str, Document] = {}  # uid → the pod as it was last seen
        self._workers: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def register(self, port: int) -> None:
        """As a kubelet: the Node (anew if it is there), then its lease."""
        node = node_document(self._name, port, self._profile, now())
        try:
            await self._client.ask(request.create(request.NODES, node))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        await self._client.ask(request.patch(request.NODES, self._name, {"status": node["status"]}, "", "status"))

    async def heartbeat(self) -> None:
        namespace, lease = "kube-node-lease", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": 40}
        made: Document = {}
        while True:
            document = made or {**lease, "metadata": {"name": self._name, "namespace": namespace}}
            document["spec"] = {**spec, "renewTime": micro_now()}
            try:
                made = await self._client.ask(request.replace(request.LEASES, document, self._name, namespace))
            except ApiError as error:
                if not error.is_conflict:
                    raise
                made = await self._client.ask(request.get(request.LEASES, self._name, namespace))
            await asyncio.sleep(HEARTBEAT_S)

    async def follow(self, group: asyncio.TaskGroup) -> None:
        reflector = Reflector(request.PODS, fields=f"spec.nodeName={self._name}")
        async for changes in self._client.follow(reflector, lambda error: print(f"pods: {error}", file=sys.stderr)):
            for change in changes:
                self._take(change, group)

    def _take(self, change: ObjectChange, group: asyncio.TaskGroup) -> None:
        if change.kind == "DELETED":
            self.pods.pop(change.key, None)
            task, _ = self._workers.pop(change.uid, (None, None))
            if task is not None:
                task.cancel()
            return
        self._wishes[change.uid] = json.loads(change.body)
        if change.uid not in self._workers:
            wake = asyncio.Event()
            self._workers[change.uid] = (group.create_task(self._play(change.key, change.uid, wake)), wake)
        self._workers[change.uid][1].set()

    async def _play(self, key: tuple[str, str], uid: str, wake: asyncio.Event) -> None:
        """One pod, looked at again whenever it may have changed, until it is gone."""
        played = self.pods[key] = FakePod(self._wishes[uid], wake)
        while True:
            await wake.wait()
            wake.clear()
            pod = self._wishes[uid]
            try:
                if "deletionTimestamp" in pod["metadata"]:
                    await self._end(pod, played)
                    return
                await self._sync(pod, played)
            except ApiError as error:
                if error.is_gone:
                    return
                if not error.is_conflict:
                    raise
                wake.set()  # somebody was faster: the watch brings what to do

    async def _sync(self, pod: Document, played: FakePod) -> None:
        played.run_commands(now())
        wish = {each["name"]: each.get("resources") or {} for each in pod["spec"]["containers"]}
        changed = [each for each in played.containers.values() if not _same(wish[each.name], each.allocated)]
        verdict = (
            "" if not changed else "Infeasible" if any(_beyond(wish[each.name]) for each in changed) else "InProgress"
        )
        is_new, told = verdict != played.verdict, _told(pod, wish)
        if is_new:
            played.verdict, played.verdict_since = verdict, now()
        if verdict == "InProgress":
            for each in changed:
                each.allocated = copy.deepcopy(wish[each.name])
        await self._report(pod, played)
        if verdict == "Infeasible" and is_new:
            await self._tell(pod, "Warning", "ResizeInfeasible", f"Pod resize Infeasible: {told}")
        if verdict == "InProgress":
            await self._tell(pod, "Normal", "ResizeStarted", f"Pod resize started: {told}")
            await asyncio.sleep(ACTUATION_S)
            await self._actuate(pod, played, changed)
            await self._tell(pod, "Normal", "ResizeCompleted", f"Pod resize completed: {told}")

    async def _actuate(self, pod: Document, played: FakePod, changed: list[Container]) -> None:
        for each in changed:
            if each.must_restart(pod):
                await self._tell(pod, "Normal", "Killing", f"Container {each.name} resize requires restart")
                each.restart(now(), 137)
            each.actual = copy.deepcopy(each.allocated)
        played.verdict = ""
        await self._report(pod, played)

    async def _report(self, pod: Document, played: FakePod) -> None:
        status = pod_status(pod, played, self._profile)
        if status == played.reported:
            return
        metadata = pod["metadata"]
        change = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._client.ask(request.patch(request.PODS, metadata["name"], change, metadata["namespace"], "status"))
        played.reported = status

    async def _end(self, pod: Document, played: FakePod) -> None:
        """Stop it, say so, then take away what the API still has of it."""
        for each in played.containers.values():
            each.stop(now(), 0)
        await self._report(pod, played)
        metadata = pod["metadata"]
        gone = request.delete(request.PODS, metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"])
        await self._client.ask(gone)

    async def _tell(self, pod: Document, kind: str, reason: str, message: str) -> None:
        metadata, stamp = pod["metadata"], now()
        about = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": metadata["namespace"]},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", **about},
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._name},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            await self._client.ask(request.create(request.EVENTS, event, metadata["namespace"]))
        except ApiError as error:  # as for a kubelet: an event that is not wanted is no reason to stop
            print(f"event: {error}", file=sys.stderr)


def _amounts(resources: Document) -> dict[tuple[str, str], Any]:
    return {
        (kind, name): parse(str(amount))
        for kind in ("requests", "limits")
        for name, amount in (resources.get(kind) or {}).items()
    }


def _same(left: Document, right: Document) -> bool:
    return _amounts(left) == _amounts(right)


def _beyond(resources: Document) -> bool:
    return any(amount > parse(ALLOCATABLE[name]) for (_, name), amount in _amounts(resources).items())


def _told(pod: Document, wish: dict[str, Document]) -> str:
    containers = [{"name": name, "resources": resources} for name, resources in wish.items()]
    return json.dumps({"containers": containers, "generation": pod["metadata"]["generation"]}, separators=(",", ":"))


async def run(file: Path, name: str, profile: Profile) -> None:
    access = kubeconfig.load(file)
    transport = HttpTransport(access, agent="playnode/1.0")
    node = FakeNode(Client(transport), name, profile)
    async with endpoint(access, node.pods) as port, asyncio.TaskGroup() as group:
        await node.register(port)
        group.create_task(node.heartbeat())
        group.create_task(node.follow(group))
        print(f"playing {name} at port {port}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--profile", default="1.27")
    asked = parser.parse_args()
    asyncio.run(run(asked.kubeconfig, asked.name, profile_named(asked.profile)))


if __name__ == "__main__":
    main()
