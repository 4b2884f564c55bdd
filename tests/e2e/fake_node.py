"""A fake node: it uses the API as an agent does, and runs nothing.

It registers its Node, renews its lease, follows its pods and reports them as running, grants resizes in two steps
(allocated, then actual), and removes pods that are deleted. `fake_endpoint` answers at its endpoint. The kubeconfig
of `plimsoll api token create --node` is all it gets: the certificate in it is also its endpoint's.

    python -m tests.e2e.fake_node --kubeconfig FILE --name n1 --profile `documents`
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
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
ACTUATION_S = 0.4  # the time of a runtime, in which the step between allocated and actual can be observed


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FakeNode:
    def __init__(self, client: Client, name: str, profile: Profile) -> None:
        self._client, self._name, self._profile = client, name, profile
        self.pods: dict[tuple[str, str], FakePod] = {}
        self._pods_by_uid: dict[str, Document] = {}  # uid → the pod as it was last seen
        self._workers: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def register(self, port: int) -> None:
        """As a kubelet: the Node (its status again if it exists), then its lease."""
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
        self._pods_by_uid[change.uid] = json.loads(change.body)
        if change.uid not in self._workers:
            wake = asyncio.Event()
            self._workers[change.uid] = (group.create_task(self._run_pod(change.key, change.uid, wake)), wake)
        self._workers[change.uid][1].set()

    async def _run_pod(self, key: tuple[str, str], uid: str, wake: asyncio.Event) -> None:
        """One pod, synced whenever it may have changed, until it is gone."""
        pod_state = self.pods[key] = FakePod(self._pods_by_uid[uid], wake)
        while True:
            await wake.wait()
            wake.clear()
            pod = self._pods_by_uid[uid]
            try:
                if "deletionTimestamp" in pod["metadata"]:
                    await self._end(pod, pod_state)
                    return
                await self._sync(pod, pod_state)
            except ApiError as error:
                if error.is_gone:
                    return
                if not error.is_conflict:
                    raise
                wake.set()  # a concurrent change: the watch brings the newer pod

    async def _sync(self, pod: Document, pod_state: FakePod) -> None:
        pod_state.run_commands(now())
        desired = {each["name"]: each.get("resources") or {} for each in pod["spec"]["containers"]}
        changed = [each for each in pod_state.containers.values() if not _same(desired[each.name], each.allocated)]
        verdict = (
            ""
            if not changed
            else "Infeasible"
            if any(_beyond(desired[each.name]) for each in changed)
            else "InProgress"
        )
        is_new, text = verdict != pod_state.verdict, _resize_text(pod, desired)
        if is_new:
            pod_state.verdict, pod_state.verdict_since = verdict, now()
        if verdict == "InProgress":
            for each in changed:
                each.allocated = copy.deepcopy(desired[each.name])
        await self._report(pod, pod_state)
        if verdict == "Infeasible" and is_new:
            await self._emit(pod, "Warning", "ResizeInfeasible", f"Pod resize Infeasible: {text}")
        if verdict == "InProgress":
            await self._emit(pod, "Normal", "ResizeStarted", f"Pod resize started: {text}")
            await asyncio.sleep(ACTUATION_S)
            await self._actuate(pod, pod_state, changed)
            await self._emit(pod, "Normal", "ResizeCompleted", f"Pod resize completed: {text}")

    async def _actuate(self, pod: Document, pod_state: FakePod, changed: list[Container]) -> None:
        for each in changed:
            if each.must_restart(pod):
                await self._emit(pod, "Normal", "Killing", f"Container {each.name} resize requires restart")
                each.restart(now(), 137)
            each.actual = copy.deepcopy(each.allocated)
        pod_state.verdict = ""
        await self._report(pod, pod_state)

    async def _report(self, pod: Document, pod_state: FakePod) -> None:
        status = pod_status(pod, pod_state, self._profile)
        if status == pod_state.reported:
            return
        metadata = pod["metadata"]
        change = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._client.ask(request.patch(request.PODS, metadata["name"], change, metadata["namespace"], "status"))
        pod_state.reported = status

    async def _end(self, pod: Document, pod_state: FakePod) -> None:
        """Stop it, report it if it has run, then delete the pod from the API."""
        for each in pod_state.containers.values():
            each.stop(now(), 0)
        if pod_state.has_started:
            await self._report(pod, pod_state)
        metadata = pod["metadata"]
        gone = request.delete(request.PODS, metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"])
        await self._client.ask(gone)

    async def _emit(self, pod: Document, kind: str, reason: str, message: str) -> None:
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
        except ApiError as error:  # as for a kubelet: a refused event is no reason to stop
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


def _resize_text(pod: Document, desired: dict[str, Document]) -> str:
    containers = [{"name": name, "resources": resources} for name, resources in desired.items()]
    return json.dumps({"containers": containers, "generation": pod["metadata"]["generation"]}, separators=(",", ":"))


async def run(file: Path, name: str, profile: Profile) -> None:
    access = kubeconfig.load(file)
    transport = HttpTransport(access, agent="fake-node/1.0")
    node = FakeNode(Client(transport), name, profile)
    async with endpoint(access, node.pods) as port, asyncio.TaskGroup() as group:
        await node.register(port)
        group.create_task(node.heartbeat())
        group.create_task(node.follow(group))
        print(f"running {name} at port {port} in process {os.getpid()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--profile", default="documents")
    asked = parser.parse_args()
    asyncio.run(run(asked.kubeconfig, asked.name, profile_named(asked.profile)))


if __name__ == "__main__":
    main()
