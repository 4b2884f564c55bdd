"""Lowering a memory limit of a cgroup with processes: it is set, or follows the usage; no process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.shrink import Shrinker, ShrinkError, check_as_kubernetes, usage_bytes
from plimsoll.rules.cgroups.desired_files import DesiredCgroup
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.cgroups.steps import Write
from plimsoll.rules.model.kernel import CgroupVersion
from tests.faulty_driver import FaultyDriver

MI = 1 << 20
FILE = {2: "memory.max", 1: "memory.limit_in_bytes"}


class Room:
    """A cgroup with one process; time passes only in `sleep`, which calls `while_asleep`."""

    def __init__(self, version: CgroupVersion, *, while_asleep: Callable[[Room], None] | None = None) -> None:
        self.kernel = SimulatedKernel(version)
        asyncio.run(self.kernel.make("/a"))
        self.pid = self.kernel.spawn("/a")
        self.driver = FaultyDriver(self.kernel)
        self.while_asleep = while_asleep
        self.seconds = 0.0
        self.file = FILE[version]

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.while_asleep is not None:
            self.while_asleep(self)

    def lower(self, limit_bytes: int, policy: ShrinkPolicy | None = None) -> None:
        shrinker = Shrinker(self.driver, clock=lambda: self.seconds, sleep=self.sleep, policy=policy)
        asyncio.run(shrinker("/a", self.file, str(limit_bytes)))

    def text(self, file: str) -> str:
        seen = self.kernel.read("/a", (file,))
        assert seen is not None
        return seen.files[file]

    @property
    def is_alive(self) -> bool:
        return self.kernel.members("/a") == [self.pid]

    @property
    def writes(self) -> list[str]:
        return [f"{step.file}={step.value}" for step in self.driver.made if isinstance(step, Write)]


versions = pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])


@versions
def test_room_enough(version: CgroupVersion) -> None:
    room = Room(version)
    room.kernel.use("/a", anon_bytes=10 * MI, cache_bytes=5 * MI)
    room.lower(20 * MI)
    assert room.writes == [f"{room.file}={20 * MI}"] and room.is_alive and room.seconds == 0


@versions
def test_page_cache_makes_room(version: CgroupVersion) -> None:
    room = Room(version)
    room.kernel.use("/a", anon_bytes=10 * MI, cache_bytes=50 * MI)
    room.lower(20 * MI)
    assert room.text(room.file) == str(20 * MI) and room.is_alive
    # No more than the target needs: v1 reclaims by itself when the limit is written.
    first = {2: f"memory.reclaim={40 * MI + 65536}", 1: f"memory.limit_in_bytes={20 * MI}"}
    assert room.writes[0] == first[version]
    assert usage_bytes(room.kernel, "/a") >= 20 * MI - 65536


@versions
def test_it_waits_for_the_process_to_free_memory(version: CgroupVersion) -> None:
    def freed(room: Room) -> None:
        if room.seconds > 1:
            room.kernel.use("/a", anon_bytes=10 * MI)

    room = Room(version, while_asleep=freed)
    room.kernel.use("/a", anon_bytes=30 * MI)
    room.lower(20 * MI)
    assert room.text(room.file) == str(20 * MI) and room.is_alive and 1 < room.seconds < 1.5
    if version == 2:
        assert f"memory.high={20 * MI}" in room.writes and room.text("memory.high") == "max"
        assert room.text("cgroup.freeze") == "0"


@versions
def test_a_limit_that_cannot_be_reached_follows_the_usage_down(version: CgroupVersion) -> None:
    room = Room(version)
    if version == 2:
        asyncio.run(room.kernel.write("/a", "memory.high", str(100 * MI)))
    asyncio.run(room.kernel.write("/a", room.file, str(300 * MI)))
    for used, limit in ((160, 170), (64, 68), (30, 34)):
        room.kernel.use("/a", anon_bytes=used * MI)
        before = room.kernel.read("/a", ("memory.high", "cgroup.freeze"))
        text = rf"{used}\.0 MiB are still in use after .*, not less than 20\.0 MiB; the limit is {limit}\.0 MiB"
        with pytest.raises(ShrinkError, match=text):
            room.lower(20 * MI, ShrinkPolicy(deadline_s=2.0))
        assert room.text(room.file) == str(limit * MI) and room.is_alive
        assert room.kernel.read("/a", ("memory.high", "cgroup.freeze")) == before
    with pytest.raises(ShrinkError, match=r"not less than 20\.0 MiB$"):
        room.lower(20 * MI, ShrinkPolicy(deadline_s=2.0))
    room.kernel.use("/a", anon_bytes=10 * MI)
    room.lower(20 * MI)
    assert room.text(room.file) == str(20 * MI) and room.is_alive


def test_a_process_that_grows_until_the_freeze_is_not_killed() -> None:
    room = Room(2)
    room.kernel.use("/a", anon_bytes=10 * MI)
    freeze = room.driver.freeze

    async def grow_first(path: str, *, frozen: bool) -> None:
        if frozen:
            room.kernel.use("/a", anon_bytes=30 * MI)
        await freeze(path, frozen=frozen)

    room.driver.freeze = grow_first  # type: ignore[method-assign]
    with pytest.raises(ShrinkError):
        room.lower(20 * MI, ShrinkPolicy(deadline_s=1.0))
    assert room.is_alive and room.text("memory.max") == str(34 * MI) and room.text("cgroup.freeze") == "0"


def test_a_cgroup_that_cannot_be_frozen_in_time_is_thawed() -> None:
    room = Room(2)
    freeze = room.driver.freeze

    async def never(path: str, *, frozen: bool) -> None:
        await freeze(path, frozen=frozen)
        if frozen:
            await asyncio.get_running_loop().create_future()

    room.driver.freeze = never  # type: ignore[method-assign]
    with pytest.raises(ShrinkError, match="could not be frozen within 10 ms"):
        room.lower(20 * MI, ShrinkPolicy(deadline_s=0.2, frozen_s=0.01))
    assert room.text("cgroup.freeze") == "0" and room.text("memory.max") == "max"


def test_the_freeze_of_another_process_stays() -> None:
    room = Room(2)
    asyncio.run(room.kernel.freeze("/a", frozen=True))
    room.lower(20 * MI)
    assert room.text("cgroup.freeze") == "1" and room.text("memory.max") == str(20 * MI)


def test_the_check_of_the_kubelet() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(2)
        for path in ("/pod", "/pod/app"):
            await kernel.make(path)
        kernel.spawn("/pod/app")
        kernel.use("/pod/app", anon_bytes=20 * MI)
        plan = {"/pod": DesiredCgroup("pod", "p", {}), "/pod/app": DesiredCgroup("container", "app", {})}
        lowered = [Write("/pod/app", "memory.max", str(20 * MI), "max")]
        with pytest.raises(ShrinkError) as container:
            check_as_kubernetes(kernel, lowered, plan)
        assert str(container.value) == (
            'cannot decrease memory limits: attempting to set container "app" memory limit (20971520) '
            "below current usage (20971520)"
        )
        with pytest.raises(ShrinkError) as pod:
            check_as_kubernetes(kernel, [Write("/pod", "memory.max", "4096", "8192")], plan)
        assert str(pod.value) == (
            "cannot decrease memory limits: attempting to set pod memory limit (4096) below current usage (20971520)"
        )
        check_as_kubernetes(
            kernel, [Write("/pod", "memory.max", "8192", "4096")], plan
        )  # a raised limit is not checked
        check_as_kubernetes(kernel, [Write("/pod/app", "memory.max", str(21 * MI), "max")], plan)
        assert usage_bytes(kernel, "/nowhere") == 0

    asyncio.run(scenario())
