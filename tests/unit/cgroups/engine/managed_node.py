"""Shared by the tests of the cgroup manager: one simulated node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.node.node_config import NodeConfig
from tests.faulty_driver import FaultyDriver
from tests.node_scenarios import (
    BURSTABLE,
    RESERVED,
    node_setting,
)

MI = 1 << 20


TOP = "/plimsoll-test/kubepods"


BURSTABLE_POD = f"{TOP}/burstable/pod{BURSTABLE.metadata.uid}"


class Node:
    def __init__(
        self,
        state_dir: Path,
        version: CgroupVersion = 2,
        name: DriverName = "cgroupfs",
        setting: NodeConfig | None = None,
    ) -> None:
        self.setting = setting or node_setting(version, name)
        self.kernel = SimulatedKernel(version, name, swap=False)
        self.driver = FaultyDriver(self.kernel)
        self.state_dir = state_dir
        asyncio.run(self.kernel.make(RESERVED))
        self.tree = self.another()

    def another(self, **options: object) -> CgroupManager:
        return CgroupManager(self.driver, self.setting, self.state_dir, **options)  # type: ignore[arg-type]

    def run(self, *deeds: Callable[[CgroupManager], Awaitable[object]]) -> None:
        async def all_of_them() -> None:
            for deed in deeds:
                await deed(self.tree)

        asyncio.run(all_of_them())

    def text(self, path: str, file: str) -> str:
        seen = self.kernel.read(path, (file,))
        assert seen is not None, path
        return seen.files[file]
