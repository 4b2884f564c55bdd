"""`./dev bench upgrade`: `plimsoll upgrade-check` over a dump of 5,000 pods on 100 nodes, one core.

The pods are those of `plan`'s bench: no two have the same amounts, so nothing is gained by equal pods. With the argument
`all` every two adjacent releases and every other kind of upgrade are measured, which takes five minutes.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from plimsoll.rules.profile import FIRST_MINOR, LAST_MINOR

HERE = Path(__file__).parent
PODS, NODES = 5000, 100
MOST_CPU_S, MOST_MIB = 20.0, 300
RELEASES = [f"1.{minor}" for minor in range(FIRST_MINOR, LAST_MINOR + 1)]
PAIRS = (("1.36", "1.37"), ("1.27", "1.37"), ("v1", "v2"))
OTHERS = (("cgroupfs", "systemd"), ("systemd", "cgroupfs"), ("runc 1.1", "runc 1.3"), ("runc 1.2", "runc 1.3"))


def dump(pods: int = PODS, nodes: int = NODES) -> dict[str, Any]:
    """As `kubectl get nodes,pods -A -o json` prints it."""
    lines = gzip.decompress((HERE / "bench_pods.jsonl.gz").read_bytes()).splitlines()[:pods]
    items = [_node(f"n{index}") for index in range(nodes)]
    for index, line in enumerate(lines):
        pod = json.loads(line)
        pod.setdefault("metadata", {}).update(name=f"p{index}", namespace=f"team{index % 20}")
        pod["kind"] = "Pod"
        pod["spec"]["nodeName"] = f"n{index % nodes}"
        items.append(pod)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "48", "memory": "263192560Ki", "pods": "110"}
    status = {"capacity": capacity, "allocatable": capacity, "nodeInfo": {"kubeletVersion": "v1.36.4"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "dump.json")
        file.write_text(json.dumps(dump()))
        print(f"{PODS} pods on {NODES} nodes, {file.stat().st_size >> 20} MiB, CPU time on one core")
        pairs = (*PAIRS, *OTHERS, *pairwise(RELEASES[:-1])) if sys.argv[1:] == ["all"] else PAIRS
        kept = [measure(file, *pair) for pair in pairs]
        if not all(kept):
            sys.exit(f"more than {MOST_CPU_S:g} s or {MOST_MIB} MiB")


def measure(file: Path, old: str, new: str) -> bool:
    """Whether it took less than is allowed."""
    words = ["upgrade-check", str(file), "--from", old, "--to", new, "-o", "json"]
    command = [str(Path(sys.executable).parent / "plimsoll"), *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s, mib = used.ru_utime + used.ru_stime, used.ru_maxrss >> 10
    title = f"{old} → {new}"
    print(f"upgrade-check {title:22} {cpu_s:6.1f} s  {mib:4d} MiB  exit code {process.returncode}", flush=True)
    return cpu_s <= MOST_CPU_S and mib <= MOST_MIB


if __name__ == "__main__":
    main()
