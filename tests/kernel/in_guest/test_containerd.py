"""containerd on cgroup v2, in a guest with an ext4 disk (an overlay cannot stand on the guest's own overlay)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import CriResources
from tests.kernel import containerd_checks as checks
from tests.kernel.containerd import Containerd, private_containerd
from tests.kernel.containerd_checks import MIB, Bench, cgroup_directory
from tests.kernel.guest import GUEST_VARIABLE

SYSTEMD = "systemd" in os.environ[GUEST_VARIABLE]
HANDLER = os.environ.get("PLIMSOLL_CRI_HANDLER", "")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Containerd]:
    with private_containerd(systemd=SYSTEMD, below="/scratch") as started:
        yield started


@pytest.fixture
async def bench(daemon: Containerd, tmp_path: Path) -> AsyncIterator[Bench]:
    runtime = CriRuntime(daemon.socket, handler=HANDLER)
    await runtime.open()
    yield Bench(runtime, "/plimsolltest", tmp_path, systemd=SYSTEMD)
    await runtime.close()


async def test_the_life_of_a_pod(bench: Bench) -> None:
    assert bench.runtime.configured_driver == ("systemd" if SYSTEMD else "cgroupfs")
    await checks.check_life_of_a_pod(bench)


async def test_commands_beside_a_container(bench: Bench) -> None:
    await checks.check_commands(bench)


async def test_an_oom_kill_is_reported_as_such(bench: Bench) -> None:
    await checks.check_oom(bench, sees_reason=not SYSTEMD)


async def test_unified_files_are_written_and_changed(bench: Bench) -> None:
    """Memory QoS travels in `unified`: at create, at update, and back in the status."""
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    first = CriResources(
        cpu_shares=512,
        cpu_quota_us=50000,
        cpu_period_us=100000,
        memory_limit_bytes=64 * MIB,
        oom_score_adj=968,
        unified={"memory.min": str(16 * MIB), "memory.high": str(48 * MIB), "memory.oom.group": "1"},
    )
    main = await bench.run(spec, sandbox_id, "main", ("sleep", "1000"), resources=first)
    directory = cgroup_directory(main.pid, "")
    if directory.name == "container":  # crun with systemd puts the processes one deeper
        directory = directory.parent

    def text(name: str) -> str:
        return (directory / name).read_text().strip()

    assert [text(name) for name in ("memory.min", "memory.high", "memory.max")] == [
        str(size * MIB) for size in (16, 48, 64)
    ]
    assert (text("cpu.max"), text("memory.oom.group")) == ("50000 100000", "1")
    reported = await runtime.container_resources(main.id)
    assert reported is not None
    assert reported.unified == first.unified
    second = CriResources(
        cpu_shares=1024,
        cpu_quota_us=-1,
        cpu_period_us=100000,
        memory_limit_bytes=96 * MIB,
        oom_score_adj=968,
        unified={"memory.min": "0", "memory.high": "max", "memory.oom.group": "1"},
    )
    await runtime.update_container(main.id, second)
    assert [text(name) for name in ("memory.min", "memory.high", "memory.max")] == ["0", "max", str(96 * MIB)]
    assert text("cpu.max") == "max 100000"
    assert (await bench.seen(main.id)).pid == main.pid
    await runtime.remove_sandbox(sandbox_id)
