"""The embedded runtime inside a guest: another kernel, cgroup v2, a root that is itself an overlay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kernel.embedded_runtime import Cgroups, Pod, a_pod, a_runtime, host_mounts
from tests.kernel.runtime_checks import CHECKS, Check


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    cgroups, mounts = Cgroups(), host_mounts(tmp_path)
    async with a_runtime(tmp_path / "state", cgroups) as runtime, a_pod(runtime, cgroups, tmp_path / "logs") as made:
        assert runtime.isolation, runtime.limitations
        yield made
    assert host_mounts(tmp_path) == mounts
    cgroups.remove()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_check(check: Check, pod: Pod) -> None:
    await check(pod)
