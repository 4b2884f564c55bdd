"""Attacks of users on an API server with 5,000 pods, of containers on their node (here and in UML v2), and of a server.

An administrator's GETs stay fast and the server's memory bounded; no container gets further than its limits; agent and
scheduler survive any answer.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.e2e.api_process import ApiProcess
from tests.e2e.attacks_api import HarmedError, Target, attack, attacks
from tests.kernel import attacks_node
from tests.outcomes import outcomes

PODS, SECONDS, GETS = 5_000, 4.0, 200
GOAL_P99_MS, GOAL_RSS_MB = 100.0, 300.0


def main(seed: int) -> dict[str, int]:
    node, guest, server, clients = attacks_node.main(seed), in_guest(), attacked_server(), attacked_clients()
    failed = server["failed"] + node["broken"] + guest["failed in the guest"] + clients["failed by a hostile server"]
    on_node = {f"on the node: {name}": count for name, count in node.items()}
    return server | on_node | guest | clients | {"failed": failed}


def in_guest() -> dict[str, int]:
    """The attacks on the node again, with cgroup v2; $PLIMSOLL_UML_KERNEL names another kernel than Debian's."""
    tests, failed = outcomes("-m", "", "-k", "v2-attacks", "tests/kernel/test_guests.py")
    return {"tests in a guest with cgroup v2": len(tests), "failed in the guest": len(failed)}


def attacked_clients() -> dict[str, int]:
    tests, failed = outcomes("-m", "long", "tests/e2e/test_hostile_api.py")
    return {"tests with a hostile server": len(tests), "failed by a hostile server": len(failed)}


def attacked_server() -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-attack-") as directory:
        server = ApiProcess(Path(directory) / "state", Path(directory) / "api.log", "--no-scheduler").ready()
        try:
            return asyncio.run(_attacked(server, Path(directory)))
        finally:
            server.kill()


async def _attacked(server: ApiProcess, scratch: Path) -> dict[str, int]:
    Target.furnish(server.state, scratch)
    target = Target(server.url, scratch)
    await target.fill(PODS)
    names = (
        "attacks",
        "failed",
        "GETs of the administrator",
        "highest p99 ms",
        "highest p99 ms on new connections",
        "highest p99 CPU ms",
        "highest RSS MB",
    )
    counts = dict.fromkeys(names, 0)
    print(
        f"{'':22}{'GETs':>6}{'CPU p50':>9}{'CPU p99':>9}{'worst':>9}{'p99 ms':>10}{'new CPU':>9}{'new p99':>9}{'RSS MB':>8}"
    )
    for name in attacks():
        counts["attacks"] += 1
        try:
            found = await attack(target, server.process.pid, name, SECONDS, PODS, GETS)
        except HarmedError as error:
            print(f"{name:22}FAILED: {error}", flush=True)
            counts["failed"] += 1
            continue
        is_met = max(found.wall_p99_ms, found.new_p99_ms) <= GOAL_P99_MS and found.rss_mb <= GOAL_RSS_MB
        print(
            f"{name:22}{found.gets:6}{found.p50_ms:9.1f}{found.p99_ms:9.1f}{found.worst_ms:9.1f}"
            f"{found.wall_p99_ms:10.1f}{found.new_cpu_p99_ms:9.1f}{found.new_p99_ms:9.1f}"
            f"{found.rss_mb:8.0f}{'' if is_met else '   MISSED'}",
            flush=True,
        )
        counts["failed"] += not is_met
        counts["GETs of the administrator"] += found.gets
        counts["highest p99 ms"] = max(counts["highest p99 ms"], round(found.wall_p99_ms))
        counts["highest p99 ms on new connections"] = max(
            counts["highest p99 ms on new connections"], round(found.new_p99_ms)
        )
        counts["highest p99 CPU ms"] = max(counts["highest p99 CPU ms"], round(found.p99_ms))
        counts["highest RSS MB"] = max(counts["highest RSS MB"], round(found.rss_mb))
    assert server.process.poll() is None, "the server has ended"
    return counts
