"""Attacks of users on an API server with 5,000 pods, of containers on their node (here and in UML v2), and of a server.

An administrator's GETs stay fast and the server's memory bounded while a viewer attacks; attacks of a user who may edit
a namespace may exceed that goal, and are counted apart. No container gets further than its limits; agent and scheduler
survive any answer.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.e2e import attacks_editor
from tests.e2e.api_process import ApiProcess
from tests.e2e.attacks_api import HarmedError, Target, attack, viewers_attacks
from tests.kernel import attacks_node
from tests.outcomes import outcomes

PODS, SECONDS, GETS = 5_000, 4.0, 200
GOAL_P99_MS, GOAL_RSS_MB = 100.0, 300.0
ATTACKS, HARMED, ABOVE, GETS_MADE = "attacks", "harmed", "above the goal", "GETs of the administrator"
P99, NEW_P99, CPU_P99 = "highest p99 ms", "highest p99 ms on new connections", "highest p99 CPU ms"
RSS = "highest RSS MB"


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
    print(
        f"{'':22}{'GETs':>6}{'CPU p50':>9}{'CPU p99':>9}{'worst':>9}{'p99 ms':>10}{'new CPU':>9}{'new p99':>9}{'RSS MB':>8}"
    )
    viewer = await _attacked_by(target, server.process.pid, viewers_attacks())
    editor = await _attacked_by(target, server.process.pid, attacks_editor.attacks())
    assert server.process.poll() is None, "the server has ended"
    failed = viewer[HARMED] + viewer[ABOVE] + editor[HARMED]
    return viewer | {f"editor: {name}": count for name, count in editor.items()} | {"failed": failed}


async def _attacked_by(target: Target, pid: int, names: Iterable[str]) -> dict[str, int]:
    counts = dict.fromkeys((ATTACKS, HARMED, ABOVE, GETS_MADE, P99, NEW_P99, CPU_P99, RSS), 0)
    for name in names:
        counts[ATTACKS] += 1
        try:
            found = await attack(target, pid, name, SECONDS, PODS, GETS)
        except HarmedError as error:
            print(f"{name:22}FAILED: {error}", flush=True)
            counts[HARMED] += 1
            continue
        is_met = max(found.wall_p99_ms, found.new_p99_ms) <= GOAL_P99_MS and found.rss_mb <= GOAL_RSS_MB
        print(
            f"{name:22}{found.gets:6}{found.p50_ms:9.1f}{found.p99_ms:9.1f}{found.worst_ms:9.1f}"
            f"{found.wall_p99_ms:10.1f}{found.new_cpu_p99_ms:9.1f}{found.new_p99_ms:9.1f}"
            f"{found.rss_mb:8.0f}{'' if is_met else '   MISSED'}",
            flush=True,
        )
        counts[ABOVE] += not is_met
        counts[GETS_MADE] += found.gets
        for highest, value in (
            (P99, found.wall_p99_ms),
            (NEW_P99, found.new_p99_ms),
            (CPU_P99, found.p99_ms),
            (RSS, found.rss_mb),
        ):
            counts[highest] = max(counts[highest], round(value))
    return counts
