"""Fifty kills −9 of the agent over containerd, containerd restarted and killed; each CRI call failing in each way."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.e2e.containerd_node import own_containerd
from tests.e2e.cri_kill import run, run_faults
from tests.kernel.containerd import cgroup_parent
from tests.kernel.test_host_faulty_cri import CALLS, FAULTS, faulty, live, path
from tests.unit.net.grpc.grpc_server import Server

KILLS = {"agent": 50, "containerd ends": 5, "containerd dies": 5, "both": 5}


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        counts, faults = run(Path(directory), seed, KILLS)
    with tempfile.TemporaryDirectory() as directory:
        more, others = run_faults(Path(directory), seed)
    with tempfile.TemporaryDirectory() as directory:
        alone = asyncio.run(_calls(Path(directory)))
    print("\n".join([*faults, *others][:20]))
    found = {**counts, **{f"{name}, faulty runtime": count for name, count in more.items()}}
    return {**found, "single calls that failed": alone, "failed": len(faults) + len(others)}


async def _calls(directory: Path) -> int:
    """The runtime client by itself: a pod's life for each call and fault."""
    done = 0
    with own_containerd() as daemon, cgroup_parent() as place:
        async with Server(daemon.directory / "proxy.sock", forward_to=daemon.socket) as proxy:
            for name in CALLS:
                for fault in FAULTS:
                    proxy.handlers = {name: faulty(path(name), fault)}
                    await live(proxy, place, directory / f"{name}-{fault}")
                    done += 1
    return done
