"""`./dev bench`: how fast the batch form is, as ratios within one run.

The work: decode each of 10,000 pods, default it, compute QoS class, effective requests and limits, oom_score_adj, pod
and container cgroup values with Memory QoS on, and encode the line that `plimsoll plan` prints. The baseline:
`json.loads` of the same lines, measured alternately with it, so that a noisy machine disturbs both alike. One core.

`./dev bench scheduler` and `./dev bench api` are in files of their own; without a name all parts are run.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from plimsoll.cli.explain.plan import blocks, planned_block, tuned_collector
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.plan import Placement, placement
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resources.node_policy import NodePolicy

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROUNDS = 40


def policy_and_place() -> tuple[NodePolicy, Placement]:
    document = {"featureGates": {"MemoryQoS": True}, "memoryReservationPolicy": "TieredReservation"}
    machine = machine_from_capacity({"cpu": QUANTITIES["48"], "memory": QUANTITIES["263192560Ki"]})
    setting = resolved(machine, reading(document, profile_named("1.36")).config, profile_named("1.36"))
    return setting.policy, placement(setting.pods_root, setting.driver)


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    lines = gzip.decompress((HERE / "bench_pods.jsonl.gz").read_bytes()).splitlines(keepends=True)
    policy, place = policy_and_place()
    tuned_collector()

    def planned(stream: io.BytesIO) -> None:
        stream.seek(0)
        for block, first in blocks(stream):
            planned_block(block, first, policy, place)

    def load(chosen: list[bytes]) -> None:
        for line in chosen:
            json.loads(line)

    print(f"{len(lines)} pods, {sum(map(len, lines)) // len(lines)} bytes each, {ROUNDS} rounds, CPU time on one core")
    baseline, plan, whole = [], [], io.BytesIO(b"".join(lines))
    for _ in range(ROUNDS):
        baseline.append(seconds(lambda: load(lines)))
        plan.append(seconds(lambda: planned(whole)))
    per_pod = 1e6 / len(lines)
    ratios = sorted(mine / theirs for mine, theirs in zip(plan, baseline, strict=True))
    print(
        f"json.loads   best {min(baseline) * per_pod:6.2f} µs   median {statistics.median(baseline) * per_pod:6.2f} µs"
    )
    print(f"plan         best {min(plan) * per_pod:6.2f} µs   median {statistics.median(plan) * per_pod:6.2f} µs")
    print(f"ratio        best/best {min(plan) / min(baseline):.2f}   per round median {statistics.median(ratios):.2f}")
    for part in (len(lines) // 4, len(lines) // 2, len(lines)):
        some = io.BytesIO(b"".join(lines[:part]))
        best = min(seconds(partial(planned, some)) for _ in range(5))
        print(f"linear       {part:6d} pods {best / part * 1e6:6.2f} µs each")
    for words in (["--help"], ["explain", "examples/documents/002-qos-demo.yaml", "--capacity", "cpu=4,memory=8Gi"]):
        print(f"start        {start_cpu_ms(words):6.0f} ms CPU, best of 7: plimsoll {' '.join(words[:2])}")


def start_cpu_ms(words: list[str]) -> float:
    """CPU time of one command, the least of seven."""
    command = [str(Path(sys.executable).parent / "plimsoll"), *words]
    best = float("inf")
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best * 1000


BY_NAME = ("fleet",)  # minutes
PARTS = (
    *("plan", "upgrade", "audit", "cgroups", "scheduler", "api", "dashboard", "node", "pressure", "resize"),
    "containerd",
)

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PARTS)
    if not set(chosen) <= {*PARTS, *BY_NAME}:
        sys.exit(f"parts: {', '.join((*PARTS, *BY_NAME))}; without any, all but {', '.join(BY_NAME)}")
    for part in chosen:
        if part == "plan":
            gc.collect()
            main()
        else:  # in a process of its own, so that no part disturbs another
            subprocess.run([sys.executable, str(HERE / f"{part}.py")], cwd=ROOT, check=True)
