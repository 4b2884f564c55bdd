"""`./dev bench dashboard`: what the dashboard costs with 110 pods: in the browser, in the API server and in the agent.

One `up` on this machine's kernel with 110 pods of one container, ten of which use some CPU and memory all the time; one
Chromium on the hull, which draws every cgroup. Goals (per open dashboard): script in the browser below 16 ms per update
on average, API server at most 0.5 % of a core; history in the agent at most 0.1 % of a core and 8 MiB.

    browser   the time from a message to the end of rendering, as the page measures it
    server    CPU time of the API server with a dashboard, less without one
    agent     CPU time of the agent with a dashboard, less without one
    history   CPU time of one sample of these cgroups in this process, at the pace that it leads to; bytes of a full ring
    scrapes   the time of each metrics page of the node through the API server, and the agent's CPU time for it
    page      the scripts of every view with 110 pods, and with 500 pods and 50 nodes, from a played server

Goals of the metrics: 50 ms for a page. `--part` measures only `cluster` or only `page`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host  # noqa: E402
from plimsoll.cgroups.stats.live_tree import live_tree  # noqa: E402
from plimsoll.kube import request  # noqa: E402
from plimsoll.kube.client import Client  # noqa: E402
from plimsoll.node.live.history import History  # noqa: E402
from plimsoll.node.live.readers import CgroupReaders  # noqa: E402
from plimsoll.node.live.source import HISTORY_LEAST_S, HISTORY_SHARE  # noqa: E402
from plimsoll.node.live.state import LiveState  # noqa: E402
from tests.bench import dashboard_page  # noqa: E402
from tests.e2e.dashboard_browser import Cluster, Tab, chromium, missing  # noqa: E402
from tests.e2e.up_process import Up  # noqa: E402
from tests.e2e.waiting import until  # noqa: E402

PAGES = ("metrics", "metrics/cadvisor", "metrics/resource", "metrics/probes")
BUSY = "while :; do head -c 2000000 /dev/zero | tail -c 1 >/dev/null; sleep 0.2; done"
SAMPLES = 40


def cpu_s(pid: int) -> float:
    """Of all threads, in nanoseconds; the ticks of /proc/PID/stat are twice what an update costs."""
    return time.clock_gettime(~pid << 3 | 2)  # CPUCLOCK_SCHED in the kernel's include/linux/posix-timers.h


def child(up: Up, word: str) -> int:
    """The API server or the agent of an `up`."""
    for pid in up.processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if word.encode() in words:
            return pid
    raise SystemExit(f"no process {word}")


def shares(pids: tuple[int, ...], seconds: float) -> list[float]:
    """Of one core, in percent."""
    before, began = [cpu_s(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return [100 * (cpu_s(pid) - was) / passed for pid, was in zip(pids, before, strict=True)]


def started(cluster: Cluster, count: int) -> None:
    for number in range(count):
        script = BUSY if number % 11 == 0 else "exec sleep 100000"
        resources = {"requests": {"cpu": "10m", "memory": "4Mi"}, "limits": {"memory": "64Mi"}} if number % 3 else {}
        container = {"name": "app", "image": "busybox", "command": ["sh", "-c", script], "resources": resources}
        metadata = {"name": f"pod-{number:03d}", "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        cluster.ask(request.create(request.PODS, pod, "default"))

    def running() -> bool:
        pods = cluster.ask(request.listing(request.PODS, namespace="default"))["items"]
        return sum(pod["status"].get("phase") == "Running" for pod in pods) >= count

    until(running, pause_s=1.0)


def sampled(root: str) -> dict[str, float]:
    """The cost of samples of these cgroups, and of keeping them."""
    driver = open_cgroupfs(this_host())
    paths = list(live_tree(driver, root))
    readers, state, history = CgroupReaders(driver), LiveState("bench"), History()
    listed = [{"id": f"c{n}", "parent": "", "level": "pod", "name": path, "path": path} for n, path in enumerate(paths)]
    costs = []
    for _ in range(SAMPLES):
        time.sleep(0.25)
        began_s = time.thread_time()
        state.begin(time.time())
        if not state.vessels:
            state.set_vessels(listed)
        for number, path in enumerate(paths):
            row = readers.read(path, state.at_s)
            if row is not None:
                state.set_row(f"c{number}", row)
        history.add(state.frame(0 if history.wants_complete else state.seq - 1))
        costs.append(time.thread_time() - began_s)
    readers.close()
    cost_s = sum(costs[1:]) / (len(costs) - 1)
    pace_s = max(HISTORY_LEAST_S, cost_s / HISTORY_SHARE)
    return {
        "cgroups": len(paths),
        "sampleMs": round(1000 * cost_s, 2),
        "everySeconds": round(pace_s, 1),
        "historyPercent": round(100 * cost_s / pace_s, 3),
        "bytesPerSample": round(history.bytes / SAMPLES),
    }


def scraped(cluster: Cluster, agent: int, times: int = 10) -> dict[str, dict[str, float]]:
    """Each page of the node; the first reading opens the files and does not count."""

    async def read(path: str) -> tuple[list[float], int]:
        transport = cluster.up.transport()
        took: list[float] = []
        try:
            node = (await Client(transport).ask(request.listing(request.NODES)))["items"][0]["metadata"]["name"]
            for _ in range(times + 1):
                began_s = time.perf_counter()
                answer = await transport.send(request.Request("GET", f"/api/v1/nodes/{node}/proxy/{path}"))
                took.append(time.perf_counter() - began_s)
                if answer.status != 200:
                    raise SystemExit(f"{path}: HTTP {answer.status}")
                await asyncio.sleep(1.1)  # a page within a second would be answered from the last reading
            return took[1:], len(answer.body)
        finally:
            await transport.close()

    found = {}
    for path in PAGES:
        before_s = cpu_s(agent)
        took, size = asyncio.run(read(path))
        found[path] = {
            "medianMs": round(1000 * statistics.median(took), 1),
            "worstMs": round(1000 * max(took), 1),
            "agentCpuMs": round(1000 * (cpu_s(agent) - before_s) / (times + 1), 1),
            "KB": size // 1000,
        }
    return found


def measured(pods: int, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        root = f"/plimsoll-test-{secrets.token_hex(4)}"
        up = Up(Path(directory), "--no-demo", "--capacity", "cpu=16,memory=3Gi", root=root)
        try:
            cluster = Cluster(up.ready())
            started(cluster, pods)
            server, agent = child(up, "api"), child(up, "node")
            time.sleep(20)
            idle = shares((server, agent), seconds)
            with chromium() as browser:
                tab = Tab(browser, cluster)
                page = tab.open("hull")
                page.wait_for_selector("[data-vessel]")
                time.sleep(5)
                page.evaluate("() => { globalThis.plimsollDashboard.scriptMs.length = 0; }")
                watched = shares((server, agent), seconds)
                took = page.evaluate("() => globalThis.plimsollDashboard.scriptMs")
                tab.close()
            return {
                "pods": pods,
                "updates": len(took),
                "scriptMsMean": round(sum(took) / max(1, len(took)), 2),
                "scriptMsWorst": round(max(took, default=0), 1),
                "serverPercent": round(watched[0] - idle[0], 2),
                "serverIdlePercent": round(idle[0], 2),
                "agentPercent": round(watched[1] - idle[1], 2),
                "agentIdlePercent": round(idle[1], 2),
                "scrapes": scraped(cluster, agent),
                **sampled(f"{root}/kubepods"),
            }
        finally:
            up.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--part", choices=("cluster", "page"))
    options = parser.parse_args()
    if missing():
        raise SystemExit(f"bench dashboard: {missing()}")
    if options.part != "page":
        print(json.dumps(measured(options.pods, options.seconds), indent=1), flush=True)
    if options.part != "cluster":
        with chromium() as browser:
            for count, nodes in ((options.pods, 1), (500, 50)):
                print(json.dumps(dashboard_page.measured(browser, count, nodes)), flush=True)


if __name__ == "__main__":
    main()
