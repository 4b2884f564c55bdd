"""Writers, watchers and a scheduler on two API servers and three etcd members, while members and servers are killed and
links are cut. Started inside the hub's network namespace by `tests/prove/etcd.py`."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import ssl
import time
from pathlib import Path
from typing import Any

import httpx

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.rules.timestamps import epoch_seconds
from plimsoll.store.etcd.client import EtcdClient
from plimsoll.store.etcd.location import location
from plimsoll.store.etcd.messages import DELETE, WatchCreateRequest, WatchRequest, WatchResponse
from tests.e2e.etcd_cluster import MEMBERS, SERVERS, Cluster, Network
from tests.e2e.etcd_history import Event, Operation, linearizability_faults, watch_faults
from tests.e2e.raw_http import admin_tls

MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
KEYS = [f"k{number}" for number in range(12)]
WRITERS, WATCHERS = 16, 20
ANSWER_S = 12.0
FAIL_OVER_S = 5.0
END = "k-end"
HOLLOW = ("n1", "n2", "n3", "n4")  # several, so that a second binding would name another one


class Load:
    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster, self._random = cluster, chance
        tls: ssl.SSLContext = admin_tls(cluster.servers[SERVERS[0]].kubeconfig)
        self._clients = {
            name: httpx.AsyncClient(
                base_url=f"https://{cluster.network.addresses[name]}:6443",
                verify=tls,
                timeout=httpx.Timeout(ANSWER_S, connect=0.7, pool=None),
                limits=httpx.Limits(max_connections=None),
            )
            for name in SERVERS
        }
        self.operations: list[Operation] = []
        self.acknowledged: list[float] = []  # when
        self.seen: dict[str, tuple[int, list[Event]]] = {}
        self.counts = {"unanswered": 0, "conflicts": 0, "stale_reads": 0, "refused": 0, "watch_breaks": 0}
        self.stopping = asyncio.Event()
        self.pods = 0

    async def ask(self, method: str, path: str, server: str | None = None, **more: Any) -> httpx.Response | None:
        """None where it is not known what became of it."""
        name = server or self._random.choice(SERVERS)
        for _ in range(2):
            try:
                return await self._clients[name].request(method, path, **more)
            except (httpx.ConnectError, httpx.ConnectTimeout):  # nothing was sent
                name = SERVERS[1 - SERVERS.index(name)]
            except httpx.HTTPError:
                return None
        return None

    async def write(self, number: int) -> None:
        for count in itertools.count():
            if self.stopping.is_set():
                return
            key, value = self._random.choice(KEYS), f"{number}-{count}"
            version = await self._read(key)
            if version is None:
                await asyncio.sleep(0.05)
            elif not version:
                await self._write("POST", MAPS, key, value, 0)
            elif self._random.random() < 0.08:
                options = {"preconditions": {"resourceVersion": str(version)}}
                await self.ask("DELETE", f"{MAPS}/{key}", json=options)
            else:
                await self._write("PUT", f"{MAPS}/{key}", key, value, version)

    async def _read(self, key: str) -> int | None:
        """The version, 0 if there is none."""
        began = time.monotonic()
        answer = await self.ask("GET", f"{MAPS}/{key}")
        if answer is None or answer.status_code not in (200, 404):
            return None
        if "warning" in answer.headers:
            self.counts["stale_reads"] += 1
            return None
        if answer.status_code == 404:
            return 0
        found = answer.json()
        version, value = int(found["metadata"]["resourceVersion"]), found["data"]["v"]
        self.operations.append(Operation("read", key, began, time.monotonic(), version, value))
        return version

    async def _write(self, method: str, path: str, key: str, value: str, based_on: int) -> None:
        metadata = {"name": key, **({"resourceVersion": str(based_on)} if based_on else {})}
        began = time.monotonic()
        answer = await self.ask(method, path, json={"metadata": metadata, "data": {"v": value}})
        ended = time.monotonic()
        if answer is None:
            self.counts["unanswered"] += 1
        elif answer.status_code in (200, 201):
            version = int(answer.json()["metadata"]["resourceVersion"])
            self.operations.append(Operation("write", key, began, ended, version, value, based_on))
            self.acknowledged.append(ended)
        else:
            self.counts["conflicts" if answer.status_code in (404, 409) else "refused"] += 1

    async def watch(self, number: int) -> None:
        name, server = f"watcher {number}", SERVERS[number % 2]
        listed = None
        while listed is None or listed.status_code != 200:
            listed = await self.ask("GET", MAPS, server)
        version = start = int(listed.json()["metadata"]["resourceVersion"])
        events: list[Event] = []
        self.seen[name] = (start, events)
        while not events or events[-1].key != END:
            query = {"watch": "1", "resourceVersion": str(version)}
            timeout = httpx.Timeout(None, connect=0.7)
            try:
                client = self._clients[server]
                async with client.stream("GET", MAPS, params=query, timeout=timeout) as stream:
                    async for line in stream.aiter_lines():
                        document = json.loads(line)
                        metadata = document["object"].get("metadata") or {}
                        if document["type"] == "ERROR":
                            events.append(Event(-1, f"ERROR {document['object'].get('message')}", None))
                            return
                        version = int(metadata["resourceVersion"])
                        gone = document["type"] == "DELETED"
                        value = None if gone else document["object"].get("data", {}).get("v", "")
                        if metadata["name"].startswith("k") and metadata["name"] != "kube-root-ca.crt":
                            events.append(Event(version, metadata["name"], value))
                        if metadata["name"] == END:
                            break
            except httpx.HTTPError:
                self.counts["watch_breaks"] += 1
            server = SERVERS[1 - SERVERS.index(server)]
            await asyncio.sleep(0.05)

    async def keep_nodes(self) -> None:
        """Nodes with room for all pods, which only renew their leases and statuses."""
        amounts = {"cpu": "1000", "memory": "1000Gi", "pods": "10000"}
        while True:
            shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": f"{shown}Z"}
            status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
            lease = {"spec": {"leaseDurationSeconds": 40, "renewTime": f"{shown}.000000Z"}}
            await asyncio.gather(*(self._keep(name, status, lease) for name in HOLLOW))
            await asyncio.sleep(2)

    async def _keep(self, name: str, status: dict[str, Any], lease: dict[str, Any]) -> None:
        merge = {"content-type": "application/merge-patch+json"}
        for path, change in ((f"{NODES}/{name}/status", status), (f"{LEASES}/{name}", lease)):
            answer = await self.ask("PATCH", path, json=change, headers=merge)
            if answer is not None and answer.status_code == 404:
                await self.ask("POST", path.split(f"/{name}")[0], json={"metadata": {"name": name}, **change})

    async def create_pods(self) -> None:
        while not self.stopping.is_set():
            container = {"name": "c", "image": "i", "command": ["true"]}
            body = {"metadata": {"name": f"p{self.pods}"}, "spec": {"containers": [container]}}
            answer = await self.ask("POST", PODS, json=body)
            if answer is not None and answer.status_code in (201, 409):
                self.pods += 1
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class Faults:
    def __init__(self, cluster: Cluster, load: Load, chance: random.Random) -> None:
        self._cluster, self._load, self._random = cluster, load, chance
        self.outages: dict[str, float] = {}

    async def run(self, count: int) -> None:
        pairs = [*itertools.combinations((*MEMBERS, *SERVERS), 2)]
        pairs = [pair for pair in pairs if pair != SERVERS]
        kinds = [f"kill {each}" for each in (*MEMBERS, "leader", *SERVERS, "leader")]
        kinds += ["cut " + " ".join(pair) for pair in pairs]
        self._random.shuffle(kinds)
        for number in range(count):
            kind = kinds[number % len(kinds)]
            outage = await self._one(kind)
            self.outages[f"{number} {kind}"] = outage
            print(f"{number:3} {kind:14} longest time without an acknowledged write: {outage:.2f} s", flush=True)

    async def _one(self, kind: str) -> float:
        verb, *names = kind.split()
        if names == ["leader"]:
            names = [await self._cluster.leader()]
        began = time.monotonic()
        if verb == "cut":
            self._cluster.network.cut(*names)
            await asyncio.sleep(3)
            self._cluster.network.join(*names)
        elif names[0] in MEMBERS:
            member = self._cluster.members[names[0]]
            member.kill()
            await asyncio.sleep(2)
            await asyncio.to_thread(member.start)
        else:
            self._cluster.servers[names[0]].kill()
            await asyncio.sleep(1)
            await asyncio.to_thread(self._cluster.start_server, names[0])
        await asyncio.sleep(2)
        return self._longest(began, time.monotonic())

    def _longest(self, began: float, ended: float) -> float:
        times = [began, *(each for each in self._load.acknowledged if began < each < ended), ended]
        return max(after - before for before, after in itertools.pairwise(times))

    async def lose_majority(self) -> list[str]:
        """Writes fail clearly, reads are marked stale, and all recovers by itself."""
        faults: list[str] = []
        for name in MEMBERS[:2]:
            self._cluster.members[name].kill()
        await asyncio.sleep(5)
        for server in SERVERS:
            began = time.monotonic()
            body = {"metadata": {"name": "lost"}}
            written, read = await asyncio.gather(
                self._load.ask("POST", MAPS, server, json=body), self._load.ask("GET", MAPS, server)
            )
            if written is None or written.status_code not in (503, 504):
                faults.append(f"{server}: a write without a majority: {written and written.text}")
            if read is None or read.status_code != 200 or "stale" not in read.headers.get("warning", ""):
                faults.append(f"{server}: a read without a majority: {read and (read.status_code, read.headers)}")
            print(f"    {server} without a majority: answers after {time.monotonic() - began:.2f} s", flush=True)
        for name in MEMBERS[:2]:
            self._cluster.members[name].start(wait=False)
        count, end = len(self._load.acknowledged), time.monotonic() + 60
        while len(self._load.acknowledged) < count + 20:
            if time.monotonic() > end:
                faults.append("writes do not continue after a majority is back")
                break
            await asyncio.sleep(0.1)
        return faults


async def reference(cluster: Cluster, prefix: str, last: str) -> list[tuple[int, str, dict[str, Any] | None]]:
    """What etcd itself has: revision, name and object of every change, up to that of the name `last`."""
    client = EtcdClient(location(cluster.url))
    found: list[tuple[int, str, dict[str, Any] | None]] = []
    try:
        stream = await client.open_watch()
        root = f"/plimsoll/objects/{prefix}".encode()
        create = WatchCreateRequest(root, root[:-1] + b"0", start_revision=1)
        await stream.send(encode(WatchRequest(create=create)))
        while (message := await stream.received()) is not None:
            for event in decode(WatchResponse, message).events:
                assert event.kv is not None
                name = event.kv.key.decode().rpartition("/")[2]
                document = None if event.type == DELETE else json.loads(event.kv.value)
                found.append((event.kv.mod_revision, name, document))
                if name == last:
                    return found
    finally:
        client.close()
    return found


def binding_faults(history: list[tuple[int, str, dict[str, Any] | None]], pods: int) -> list[str]:
    """Every pod is bound once, and stays where it is."""
    faults, nodes = [], dict[str, list[str]]()
    for _, name, document in history:
        node = (document or {}).get("spec", {}).get("nodeName", "")
        bound = nodes.setdefault(name, [])
        if node and (not bound or bound[-1] != node):
            bound.append(node)
    for name, bound in nodes.items():
        if len(bound) > 1:
            faults.append(f"{name} was bound to {bound}")
        if not bound and name.startswith("p"):
            faults.append(f"{name} was not bound")
    if len([name for name in nodes if name.startswith("p")]) < pods:
        faults.append("pods are lost")
    return faults


def slowest_binding_s(history: list[tuple[int, str, dict[str, Any] | None]], names: set[str]) -> float:
    """From the creation of one of these pods until the scheduler bound it, in whole seconds."""
    waited = [0.0]
    for _, name, document in history:
        for condition in (document or {}).get("status", {}).get("conditions") or ():
            if document is not None and name in names and condition["type"] == "PodScheduled":
                created = epoch_seconds(document["metadata"]["creationTimestamp"])
                bound = epoch_seconds(condition["lastTransitionTime"])
                if condition["status"] == "True" and created is not None and bound is not None:
                    waited.append(bound - created)
    return max(waited)


async def prove(cluster: Cluster, seed: int, count: int) -> dict[str, Any]:
    chance = random.Random(seed)
    load = Load(cluster, chance)
    faults = Faults(cluster, load, chance)
    watchers = [asyncio.create_task(load.watch(number)) for number in range(WATCHERS)]
    workers = [asyncio.create_task(load.write(number)) for number in range(WRITERS)]
    workers.append(asyncio.create_task(load.create_pods()))
    node = asyncio.create_task(load.keep_nodes())
    await asyncio.sleep(2)
    await faults.run(count)
    before = {f"p{number}" for number in range(load.pods)}
    found = await faults.lose_majority()
    await asyncio.sleep(2)
    load.stopping.set()
    await asyncio.gather(*workers)
    for _ in range(60):
        listed = await load.ask("GET", PODS)
        if listed is not None and all(each["spec"].get("nodeName") for each in listed.json()["items"]):
            break
        await asyncio.sleep(0.5)
    for path, body in ((MAPS, {"data": {"v": "end"}}), (PODS, {"spec": {"containers": [{"name": "c", "image": "i"}]}})):
        name = END if path == MAPS else "z-end"
        answer = await load.ask("POST", path, json={"metadata": {"name": name}, **body})
        assert answer is not None and answer.status_code == 201, answer and answer.text
    done, pending = await asyncio.wait(watchers, timeout=60)
    found += [f"{len(pending)} watchers did not see the end"] if pending else []
    for task in (*done, *pending, node):
        task.cancel()
    async with asyncio.timeout(120):
        maps = await reference(cluster, "/configmaps/default/", END)
        pods = await reference(cluster, "/pods/default/", "z-end")
    history = [
        Event(revision, name, None if document is None else document["data"]["v"])
        for revision, name, document in maps
        if name.startswith("k") and name != "kube-root-ca.crt"
    ]
    found += linearizability_faults(history, load.operations)
    found += watch_faults(history, load.seen)
    found += binding_faults(pods, load.pods)
    bound_s = slowest_binding_s(pods, before)
    found += [f"a pod waited {bound_s:g} s for the scheduler"] if bound_s > FAIL_OVER_S + 1 else []  # of whole seconds
    slow = [f"{what}: {outage:.2f} s" for what, outage in faults.outages.items() if outage >= FAIL_OVER_S]
    found += [f"no write was acknowledged for {FAIL_OVER_S:g} s or more: {each}" for each in slow]
    await load.close()
    print("\n".join(found[:30]))
    outages = sorted(faults.outages.values())
    return {
        "faults": count,
        "writers": WRITERS,
        "watchers": WATCHERS,
        "acknowledged_writes": len(load.acknowledged),
        "consistent_reads": len(load.operations) - len(load.acknowledged),
        **load.counts,
        "changes": len(history),
        "watched": sum(len(events) for _, events in load.seen.values()),
        "pods_bound": load.pods,
        "slowest_binding_s": round(bound_s),
        "longest_outage_ms": round(outages[-1] * 1000) if outages else 0,
        "median_outage_ms": round(outages[len(outages) // 2] * 1000) if outages else 0,
        "failed": len(found),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--faults", type=int, required=True)
    options = parser.parse_args()
    network = Network(options.network)
    cluster = Cluster(options.directory, network)
    try:
        cluster.start()
        counts = asyncio.run(prove(cluster, options.seed, options.faults))
        (options.directory / "counts.json").write_text(json.dumps(counts))
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
