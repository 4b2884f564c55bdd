"""`./dev bench audit`: `plimsoll audit --from-dump` over one node of 110 pods and over 10,000 pods, one core.

The dumps contain pods, nodes and the cgroup tree of each node as Plimsoll makes it, with one bent file per node, and
a process per container. The pods are those of `plan`'s bench: no two have the same amounts.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.unit.rules.audit.nodes import bent, container_id, healthy, node_object, with_file  # noqa: E402

PER_NODE = 110
# pods, most seconds of CPU, most MiB
SIZES = ((PER_NODE, 1.0, 60), (10_000, 30.0, 400))
KUBELET = "v1.36.1"


def pods(count: int) -> list[dict[str, Any]]:
    lines = gzip.decompress((HERE / "bench_pods.jsonl.gz").read_bytes()).splitlines()[:count]
    found = []
    for index, line in enumerate(lines):
        pod = json.loads(line)
        spec, name = pod["spec"], f"p{index}"
        spec["nodeName"] = f"n{index // PER_NODE}"
        statuses = {
            kind: [
                {
                    "name": each["name"],
                    "containerID": f"containerd://{container_id(name, each['name'])}",
                    "state": {"running": {}},
                }
                for each in spec.get(field) or ()
                if kind == "containerStatuses" or each.get("restartPolicy") == "Always"
            ]
            for kind, field in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers"))
        }
        metadata = {"name": name, "namespace": f"team{index % 20}", "uid": f"dba294ab-05fe-4314-a6d0-{index:012x}"}
        found.append(
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": metadata,
                "spec": spec,
                "status": {"phase": "Running", **statuses},
            }
        )
    return found


def node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "48", "memory": "263192560Ki", "pods": "110"}
    info = {"kubeletVersion": KUBELET, "containerRuntimeVersion": "containerd://2.1.0"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": capacity, "nodeInfo": info},
    }


def write(folder: Path, count: int) -> None:
    from plimsoll.audit.dump import write_dump

    listed = pods(count)
    names = [f"n{index}" for index in range((count + PER_NODE - 1) // PER_NODE)]
    records = {}
    for index, name in enumerate(names):
        own = listed[index * PER_NODE : (index + 1) * PER_NODE]
        evidence = healthy(*own, node=node_object(cpu="48", memory="263192560Ki"))
        records[name] = bent(evidence, with_file("container", "memory.max", "123456768")).record
    write_dump(folder, [node(name) for name in names], listed, records)


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for count, most_cpu_s, most_mib in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder, "dump")
            write(directory, count)
            size = sum(file.stat().st_size for file in directory.rglob("*.json"))
            measure(directory, count, size, most_cpu_s, most_mib)


def measure(directory: Path, count: int, size: int, most_cpu_s: float, most_mib: int) -> None:
    command = [str(Path(sys.executable).parent / "plimsoll"), "audit", "--from-dump", str(directory), "-o", "json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s, mib = used.ru_utime + used.ru_stime, used.ru_maxrss >> 10
    print(
        f"{count:6,} pods, dump of {size / 2**20:.1f} MiB: {cpu_s:6.2f} s of CPU, {mib:4d} MiB, exit code {process.returncode}"
    )
    if process.returncode != 1:
        sys.exit("the bent files are not found")
    if cpu_s > most_cpu_s or mib > most_mib:
        sys.exit(f"more than {most_cpu_s:g} s or {most_mib} MiB")


if __name__ == "__main__":
    main()
