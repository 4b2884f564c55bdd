"""Three etcd members and two API servers in network namespaces: kills and cut links under load, and a checked history."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from tests.e2e.etcd_cluster import Network, reexecuted

FAULTS = 50


def main(seed: int) -> dict[str, int]:
    count = int(os.environ.get("PLIMSOLL_ETCD_FAULTS", FAULTS))
    network = Network()
    with tempfile.TemporaryDirectory(prefix="plimsoll-etcd-") as directory:
        network.start()
        try:
            words = ["-m", "tests.e2e.etcd_faults", "--network", network.name, "--directory", directory]
            code = reexecuted(network, [*words, "--seed", str(seed), "--faults", str(count)])
            if code:
                for log in sorted(Path(directory).glob("*.log")):
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
                raise AssertionError(f"ended with {code}")
            counts: dict[str, int] = json.loads((Path(directory) / "counts.json").read_text())
        finally:
            network.close()
    return counts
