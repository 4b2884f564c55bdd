"""kubectl, the scheduler and a real node on two API servers and three etcd members in network namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.etcd_cluster import HUB, Network


def main(seed: int) -> dict[str, int]:
    network = Network()
    with tempfile.TemporaryDirectory(prefix="plimsoll-etcd-") as directory:
        network.start()
        try:
            hub = f"--net=/run/netns/{network.namespace(HUB)}"
            words = ["-m", "tests.e2e.etcd_real_node", "--network", network.name, "--directory", directory]
            done = subprocess.run(["nsenter", hub, sys.executable, *words], check=False)
            if done.returncode:
                for log in sorted(Path(directory).rglob("*.log")):
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
                raise AssertionError(f"ended with {done.returncode}")
            counts: dict[str, int] = json.loads((Path(directory) / "counts.json").read_text())
        finally:
            network.close()
    return counts
