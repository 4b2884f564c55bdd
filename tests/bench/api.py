"""The API server under load: throughput and latency of each kind of request, delivery to watchers, memory.

The server is `plimsoll api` with its loops on a disk that is really written to; the client is a process of its own that
drops bodies (`api_client.py`). The machine factor is `json.loads` of the benchmark's pods in the same run against the
8.0 µs of the machine on which kube-apiserver and etcd were measured: rates are multiplied by it and times divided by it
before they are compared with a goal.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.bench.api_client import CommandLine  # noqa: E402
from tests.bench.api_writes import measure as measure_writes  # noqa: E402
from tests.e2e.api_process import ApiProcess  # noqa: E402

REFERENCE_US = 8.0
PODS, MORE_PODS = 5_000, 20_000
SECONDS = 3.0
LOADS = (
    # what, concurrency, goal per second
    ("list", 4, 23.0),
    ("page", 4, None),
    ("get", 4, 1766.0),
    ("get", 16, None),
    ("post", 4, 638.0),
    ("post", 16, 638.0),
    ("resize", 1, None),
    ("resize", 4, 593.0),
    ("resize", 16, 593.0),
)
NAMES = {
    "list": "LIST all",
    "page": "LIST ?limit=500",
    "get": "GET",
    "post": "POST",
    "resize": "PATCH resize",
}
DELIVERY_GOAL_MS = 18.0
RSS_GOAL_MB = 160


def machine_factor() -> float:
    """How much slower this machine is right now than the one of the reference; other users of it count, too."""
    lines = gzip.decompress((HERE / "bench_pods.jsonl.gz").read_bytes()).splitlines()[:5000]
    began = time.perf_counter()
    for _ in range(4):
        for line in lines:
            json.loads(line)
    return (time.perf_counter() - began) / (4 * len(lines)) * 1e6 / REFERENCE_US


def resident_mb(server: ApiProcess) -> float:
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_s(server: ApiProcess) -> float:
    """What the server has used so far: unlike the rates, it depends little on who else is busy."""
    user, system = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def verdict(is_met: bool) -> str:
    return "ok" if is_met else "MISSED"


def measure(server: ApiProcess, client: CommandLine) -> None:
    empty_mb = resident_mb(server)
    client(do="fill", first=0, last=PODS)
    filled_mb = resident_mb(server)
    print(
        f"{'':18}{'conc.':>6}{'factor':>8}{'req/s':>10}{'× factor':>10}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>8}   goal"
    )
    for what, concurrency, goal in LOADS:
        before, used_s = machine_factor(), cpu_s(server)
        found = client(do="load", requests=what, concurrency=concurrency, seconds=SECONDS, pods=PODS)
        each_ms = (cpu_s(server) - used_s) / found["count"] * 1000
        factor = (before + machine_factor()) / 2
        judged = found["per_s"] * factor
        goal_text = "" if goal is None else f"≥ {goal:g}: {verdict(judged >= goal)}"
        print(
            f"{NAMES[what]:18}{concurrency:6}{factor:8.2f}{found['per_s']:10.1f}{judged:10.1f}"
            f"{found['p50_ms']:9.2f}{found['p99_ms']:9.2f}{each_ms:8.3f}   {goal_text}",
            flush=True,
        )
        if what == "list":
            print(f"{'':18}{found['bytes'] / 1e6:.1f} MB, {found['bytes'] / PODS:.0f} bytes per pod")
    for watchers in (1, 50, 200):
        factor = machine_factor()
        found = client(do="watch", watchers=watchers, changes=100)
        met = verdict(found["p99_ms"] / factor < DELIVERY_GOAL_MS)
        print(
            f"{'watch delivery':18}{watchers:6}{factor:8.2f}{'':20}{found['p50_ms']:9.2f}{found['p99_ms']:9.2f}{'':8}"
            f"   p99 / factor {found['p99_ms'] / factor:.2f} < {DELIVERY_GOAL_MS:g}: {met}",
            flush=True,
        )
    loaded_mb = resident_mb(server)
    print(
        f"RSS empty {empty_mb:.0f} MB, with {PODS} pods {filled_mb:.0f} MB (≤ {RSS_GOAL_MB}: "
        f"{verdict(filled_mb <= RSS_GOAL_MB)}), after the load {loaded_mb:.0f} MB",
        flush=True,
    )
    client(do="fill", first=PODS, last=MORE_PODS)
    grown_mb = resident_mb(server)
    per_pod = (grown_mb - loaded_mb) * 1024 / (MORE_PODS - PODS)
    print(f"RSS with {MORE_PODS} pods more or less {grown_mb:.0f} MB: {per_pod:.1f} KiB for each further pod")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory:
        state = Path(directory) / "state"
        began = time.perf_counter()
        server = ApiProcess(state, Path(directory) / "api.log", "--no-scheduler").ready()
        print(f"API server, TLS, store in {directory}; ready after {time.perf_counter() - began:.2f} s")
        client = CommandLine(server.url, server.kubeconfig)
        try:
            measure(server, client)
        finally:
            client.close()
            server.stop()
    measure_writes()


if __name__ == "__main__":
    main()
