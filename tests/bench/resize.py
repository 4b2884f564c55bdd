"""`./dev bench resize`: how long a resize takes, from the PATCH to the kernel and from the PATCH to the status.

Three real nodes, each with an API server, run below cgroup roots of their own, with 1, 50 and 110 pods. On each of them,
some dozens at a time so that a slow minute of the machine meets all three, one pod gets another CPU limit by a plain
PATCH over a kept connection. Measured is the time until the new quota is in its container's `cpu.cfs_quota_us` (read
again every 0.2 ms), and until a watch shows the finished status. At last the largest node's pods are resized one after
the other. The machine factor is that of `api.py`, taken before and after.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from plimsoll.kube import kubeconfig  # noqa: E402
from tests.bench.api import machine_factor  # noqa: E402
from tests.e2e.real_node import RealNode, real_node  # noqa: E402
from tests.e2e.waiting import until  # noqa: E402

PODS = tuple(int(each) for each in os.environ.get("PODS", "1 50 110").split())
RESIZES = int(os.environ.get("RESIZES", "1000"))
AT_A_TIME = 25  # on one node, then the next
PAUSE_S = 0.0002  # the reader must not take a core from the others
WAIT_S = 60.0
Document = dict[str, Any]


class Api:
    """One kept connection."""

    def __init__(self, node: RealNode) -> None:
        access = kubeconfig.load(node.kubeconfig)
        assert access.ca is not None and access.certificate is not None and access.key is not None
        tls = ssl.create_default_context(cadata=access.ca.decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(access.certificate + b"\n" + access.key)
            pair.flush()
            tls.load_cert_chain(pair.name)
        self._connection = http.client.HTTPSConnection(access.server.removeprefix("https://"), context=tls)

    def ask(self, method: str, path: str, body: Document | None = None, kind: str = "application/json") -> Document:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": kind})
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        found: Document = json.loads(text)
        return found

    def lines(self, path: str) -> http.client.HTTPResponse:
        self._connection.request("GET", path)
        return self._connection.getresponse()


class Watch:
    """When each pod's status was first seen to say something, by a watch of its own."""

    def __init__(self, node: RealNode) -> None:
        self._changed = threading.Condition()
        self._done: dict[str, tuple[str, float]] = {}  # pod → CPU limit of its finished status, and when
        self._answer = Api(node).lines("/api/v1/namespaces/default/pods?watch=true")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := self._answer.readline():
            now_s = time.perf_counter()
            pod = json.loads(line)["object"]
            status = pod.get("status", {})
            (container,) = status.get("containerStatuses") or [{}]
            busy = status.get("resize") or any(
                each["type"].startswith("PodResize") for each in status.get("conditions", ())
            )
            actual = container.get("resources", {}).get("limits", {}).get("cpu", "")
            if container.get("state", {}).get("running") and not busy:
                with self._changed:
                    if self._done.get(pod["metadata"]["name"], ("", 0.0))[0] != actual:
                        self._done[pod["metadata"]["name"]] = (actual, now_s)
                    self._changed.notify_all()

    def running(self, pod: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: pod in self._done, WAIT_S), pod

    def moment(self, pod: str, cpu: str) -> float:
        with self._changed:
            assert self._changed.wait_for(lambda: self._done.get(pod, ("", 0.0))[0] == cpu, WAIT_S), (pod, cpu)
            return self._done[pod][1]


def manifest(name: str) -> Document:
    size = {"cpu": "50m", "memory": "8Mi"}
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "1000000"],
        "resources": {"requests": size, "limits": size},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def changed_s(file: int, text: bytes) -> float:
    deadline_s = time.perf_counter() + WAIT_S
    while os.pread(file, 32, 0).strip() != text:
        assert time.perf_counter() < deadline_s, text
        time.sleep(PAUSE_S)
    return time.perf_counter()


class Resized:
    """A node with so many pods, and what was measured there: milliseconds to the file and to the status."""

    def __init__(self, node: RealNode, count: int) -> None:
        self.count, self._node = count, node
        self._api, self._watch = Api(node), Watch(node)
        self._names = [f"p{number}" for number in range(count)]
        self._milli = dict.fromkeys(self._names, 50)
        self._quotas: dict[str, int] = {}
        self.to_file: list[float] = []
        self.to_status: list[float] = []
        self.used_s = [0.0, 0.0]  # CPU of the API server and the node

    def fill(self) -> None:
        for name in self._names:
            self._api.ask("POST", "/api/v1/namespaces/default/pods", manifest(name))
        for name in self._names:
            self._watch.running(name)
            pod = self._api.ask("GET", f"/api/v1/namespaces/default/pods/{name}")
            container_id = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("plimsoll://")
            top = f"/sys/fs/cgroup/cpu{self._node.cgroup_root}/kubepods/pod{pod['metadata']['uid']}/{container_id}"
            self._quotas[name] = os.open(f"{top}/cpu.cfs_quota_us", os.O_RDONLY)
        until(self._all_is_reported)

    def _all_is_reported(self) -> bool:
        """The events of the start, which the node sends when it has nothing else to do."""
        events = self._api.ask("GET", "/api/v1/namespaces/default/events")["items"]
        return len([each for each in events if each["reason"] == "Started"]) == self.count

    def measure(self, count: int, *, spread: bool = False) -> None:
        before_s = self._spent_s()
        for number in range(count):
            self._resize(self._names[number % self.count if spread else 0])
        self.used_s = [
            used + now - before for used, now, before in zip(self.used_s, self._spent_s(), before_s, strict=True)
        ]

    def empty(self) -> None:
        for name, file in self._quotas.items():
            os.close(file)
            self._api.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        until(lambda: not self._api.ask("GET", "/api/v1/namespaces/default/pods")["items"])

    def report(self, title: str) -> None:
        print(f"{title:24} to the file   {shown(self.to_file)}")
        print(f"{'':24} to the status {shown(self.to_status)}")
        api, node = (each * 1000 / len(self.to_file) for each in self.used_s)
        print(f"{'':24} CPU of each: API {api:.1f} ms, node {node:.1f} ms", flush=True)

    def forget(self) -> None:
        self.to_file, self.to_status, self.used_s = [], [], [0.0, 0.0]

    def _resize(self, name: str) -> None:
        milli = self._milli[name] = 60 if self._milli[name] == 70 else 70
        size = {"cpu": f"{milli}m"}
        body = {"spec": {"containers": [{"name": "c", "resources": {"requests": size, "limits": size}}]}}
        found: list[float] = []
        reading = threading.Thread(target=lambda: found.append(changed_s(self._quotas[name], b"%d" % (milli * 100))))
        reading.start()
        begin_s = time.perf_counter()
        self._api.ask(
            "PATCH", f"/api/v1/namespaces/default/pods/{name}", body, "application/strategic-merge-patch+json"
        )
        reading.join()
        self.to_file.append((found[0] - begin_s) * 1000)
        self.to_status.append((self._watch.moment(name, f"{milli}m") - begin_s) * 1000)

    def _spent_s(self) -> list[float]:
        return [cpu_s(each) for each in (self._node.api, self._node.node)]


def shown(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return f"p50 {cuts[49]:6.2f} ms   p99 {cuts[98]:6.2f} ms   ({cuts[98] / cuts[49]:.1f} ×)"


def cpu_s(process: subprocess.Popen[str] | None) -> float:
    """What a process has used so far: on a busy machine the steadier figure."""
    assert process is not None
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = [Resized(stack.enter_context(real_node(folder / f"with{count}")), count) for count in PODS]
        for place in places:
            place.fill()
        factor = machine_factor()
        for begin in range(0, RESIZES, AT_A_TIME):
            for place in places:
                place.measure(min(AT_A_TIME, RESIZES - begin))
        for place in places:
            place.report(f"{place.count} pods")
        largest = places[-1]
        largest.forget()
        largest.measure(RESIZES, spread=True)
        largest.report(f"{largest.count} pods, one after the other")
        print(f"machine factor {(factor + machine_factor()) / 2:.2f}")
        for place in places:
            place.empty()


if __name__ == "__main__":
    main()
