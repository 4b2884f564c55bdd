"""`./dev bench resize`: how long a resize takes, from the PATCH to the kernel and from the PATCH to the status.

A real API server and a real node run below a cgroup root of their own, with 1, 50 and 110 pods. One pod after the other
gets another CPU limit by a plain PATCH over a kept connection. Taken is the time until the new quota stands in its
container's `cpu.cfs_quota_us` (read again every 0.2 ms), and until a watch shows the finished status. The machine factor
is that of `api.py`, taken before and after each row.
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
PAUSE_S = 0.0002  # who looks shall not take a core from those that work
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


def measure(api: Api, watch: Watch, node: RealNode, names: list[str]) -> tuple[list[float], list[float]]:
    """Milliseconds to the file and to the status."""
    quotas = {}
    for name in names:
        pod = api.ask("GET", f"/api/v1/namespaces/default/pods/{name}")
        container_id = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("plimsoll://")
        top = f"/sys/fs/cgroup/cpu{node.cgroup_root}/kubepods/pod{pod['metadata']['uid']}/{container_id}"
        quotas[name] = os.open(f"{top}/cpu.cfs_quota_us", os.O_RDONLY)
    to_file, to_status = [], []
    for number in range(RESIZES):
        name, milli = names[number % len(names)], 60 + 10 * (number // len(names) % 2)
        size = {"cpu": f"{milli}m"}
        body = {"spec": {"containers": [{"name": "c", "resources": {"requests": size, "limits": size}}]}}
        found: list[float] = []
        looking = threading.Thread(
            target=lambda name=name, milli=milli, found=found: found.append(
                changed_s(quotas[name], b"%d" % (milli * 100))
            )
        )
        looking.start()
        begin_s = time.perf_counter()
        api.ask("PATCH", f"/api/v1/namespaces/default/pods/{name}", body, "application/strategic-merge-patch+json")
        looking.join()
        to_file.append((found[0] - begin_s) * 1000)
        to_status.append((watch.moment(name, f"{milli}m") - begin_s) * 1000)
    for file in quotas.values():
        os.close(file)
    return to_file, to_status


def shown(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return f"p50 {cuts[49]:6.2f} ms   p99 {cuts[98]:6.2f} ms   ({cuts[98] / cuts[49]:.1f} ×)"


def cpu_s(process: subprocess.Popen[str] | None) -> float:
    """What a process has used so far: on a busy machine the steadier figure."""
    assert process is not None
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, real_node(Path(folder) / "bench") as node:
        api, watch = Api(node), Watch(node)
        names: list[str] = []
        for count in PODS:
            for number in range(len(names), count):
                names.append(f"p{number}")
                api.ask("POST", "/api/v1/namespaces/default/pods", manifest(names[-1]))
            for name in names:
                watch.running(name)
            factor = machine_factor()
            before_s = [cpu_s(each) for each in (node.api, node.node)]
            to_file, to_status = measure(api, watch, node, names)
            used = [
                (cpu_s(each) - before) * 1000 / RESIZES
                for each, before in zip((node.api, node.node), before_s, strict=True)
            ]
            factor = (factor + machine_factor()) / 2
            print(f"{count:4d} pods   to the file   {shown(to_file)}")
            print(f"            to the status {shown(to_status)}")
            print(
                f"            machine factor {factor:.2f}; CPU of each: API {used[0]:.1f} ms, node {used[1]:.1f} ms",
                flush=True,
            )
        for name in names:
            api.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        until(lambda: not api.ask("GET", "/api/v1/namespaces/default/pods")["items"], WAIT_S)


if __name__ == "__main__":
    main()
