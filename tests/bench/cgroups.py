"""`./dev bench`, the part about real cgroups: what a pod costs to create, to read and to keep.

On this machine's kernel, below a root of its own. Costs are per pod at two sizes, so that one sees whether they grow
with the number of pods.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from plimsoll.cgroups.drivers.detect import (
    CgroupsUnusableError,
    check_required,
    default_root,
    open_cgroupfs,
    this_host,
    writable,
)
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import from_document
from plimsoll.linux.machine import this_machine
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import profile_named

SIZES = (125, 250, 500)
ROOT = Path(__file__).resolve().parents[2]


def pods(count: int) -> list[Pod]:
    """A third of each class, two containers each."""
    requests = (
        {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
        {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "50m", "memory": "32Mi"}},
        {},
    )
    return [
        from_document(
            {
                "metadata": {"name": f"p{index}", "namespace": "bench", "uid": f"00000000-0000-4000-8000-{index:012d}"},
                "spec": {"containers": [{"name": name, "resources": requests[index % 3]} for name in ("a", "b")]},
            },
            Pod,
        )
        for index in range(count)
    ]


async def measured(tree: CgroupManager, count: int) -> tuple[float, float, int]:
    """Seconds to make that many pods, seconds to find that nothing is to be done, and how much was done then."""
    wanted = pods(count)
    begin = time.perf_counter()
    await tree.apply(wanted)
    made = time.perf_counter() - begin
    begin = time.perf_counter()
    again = await tree.apply(wanted)
    return made, time.perf_counter() - begin, len(again.steps)


def tree_seconds(root: str) -> tuple[float, int]:
    """Wall time of `plimsoll tree` as a whole process, best of three; how many containers it showed."""
    command = [str(Path(sys.executable).parent / "plimsoll"), "tree", f"{root}/kubepods", "-o", "json"]
    best, output = float("inf"), b""
    for _ in range(3):
        begin = time.perf_counter()
        output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        best = min(best, time.perf_counter() - begin)
    return best, output.count(b'"container"')


def main() -> None:
    try:
        found = this_host()
        check_required(found)
        default_root(found, writable(found))
    except CgroupsUnusableError as error:
        print(f"cgroups      not measured: {error}")
        return
    root = f"/plimsoll-test-{os.getpid()}"
    config = reading({"cgroupRoot": root, "failCgroupV1": False, "maxPods": 1000}, profile_named("1.36")).config
    setting = resolved(this_machine(), config, profile_named("1.36"), cgroup_version=found.version, runtime="process")
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as state:
        tree = CgroupManager(open_cgroupfs(found), setting, Path(state) / "node")
        try:
            for count in SIZES:
                made, again, steps = asyncio.run(measured(tree, count))
                print(
                    f"cgroups      {count:4d} pods × 2: made in {made / count * 1000:5.2f} ms each; "
                    f"unchanged: {steps} writes, {again / count * 1000:5.2f} ms each"
                )
                if count != SIZES[-1]:
                    asyncio.run(tree.teardown(kill=True))
            seconds, shown = tree_seconds(root)
            print(f"tree         {SIZES[-1]} pods × 2: {seconds:.2f} s, {json.dumps(shown)} mentions of a container")
        finally:
            asyncio.run(tree.teardown(kill=True))


if __name__ == "__main__":
    main()
