"""Reclaim before eviction, on cgroups of plain files: what is written, how long it may take, what counts as gained."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from plimsoll.linux.cgroup_files import CgroupError, Directory
from plimsoll.node.pressure.reclaim import BOUND_S, LEAST_BYTES, PART_BYTES, MemoryReclaim
from tests.unit.node.played_node import MIB, PODS, PlayedCgroups


class Kernel(PlayedCgroups):
    """Each part that is written takes a time and gives memory back, as long as there is some to be had."""

    def __init__(self, root: Path, *, cached: int, swap_kib: int = 0, part_s: float = 0.001) -> None:
        super().__init__(root / "cgroup")
        self.now_s, self.part_s, self.cached, self.asked = 1000.0, part_s, cached, list[int]()
        self.proc, self.refusal, self.used, self.grows = root / "proc", errno.EAGAIN, 100 * MIB, 0
        self.proc.mkdir()
        (self.proc / "meminfo").write_text(f"MemTotal: 1000 kB\nSwapFree: {swap_kib} kB\n")
        self.put(PODS, memory_reclaim="")
        self._emit()

    def _emit(self) -> None:
        self.use(PODS, cpu_us=0, memory_bytes=self.used + self.cached)
        self.put(PODS, memory_stat=f"anon 1\nfile 1\ninactive_file 0\nactive_file {self.cached}\nslab_reclaimable 0\n")

    def directory(self, path: str, file: str) -> Directory:
        found = super().directory(path, file)
        if file == "memory.reclaim":
            return _Reclaiming(found, self)
        return found

    def write(self, path: str, text: str) -> None:
        part = int(text)
        self.asked.append(part)
        self.now_s += self.part_s
        gained = min(part, self.cached)
        self.cached -= gained
        self.used += self.grows
        self._emit()
        if gained < part:
            raise CgroupError("write", path, text, self.refusal)

    def reclaim(self) -> MemoryReclaim:
        return MemoryReclaim(self, PODS, clock=lambda: self.now_s, proc=self.proc)


class _Reclaiming(Directory):
    """A file that was written to is a kernel at work, which a plain file cannot be."""

    def __init__(self, found: Directory, kernel: Kernel) -> None:
        super().__init__(found.fd, found.path)
        self._kernel = kernel

    def write(self, file: str, data: str) -> None:
        self._kernel.write(f"{self.path}/{file}", data)


async def test_in_parts_and_no_more_than_was_wanted(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cached=50 * MIB)
    reclaim = kernel.reclaim()
    wanted = 2 * PART_BYTES + 5
    assert await reclaim(wanted) == wanted
    assert kernel.asked == [PART_BYTES, PART_BYTES, 5]
    assert await reclaim(7) == 7
    assert reclaim.gained_bytes == wanted + 7


async def test_not_for_longer_than_its_bound(tmp_path: Path) -> None:
    """The clock is read between two parts: the last may end after the bound, none starts after it."""
    kernel = Kernel(tmp_path, cached=500 * MIB, part_s=0.02)
    gained = await kernel.reclaim()(400 * MIB)
    assert gained == 3 * PART_BYTES
    assert BOUND_S <= kernel.now_s - 1000.0 < BOUND_S + kernel.part_s


async def test_what_the_kernel_found_counts_although_it_was_less(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cached=PART_BYTES + MIB)
    assert await kernel.reclaim()(100 * MIB) == PART_BYTES + MIB
    assert kernel.asked == [PART_BYTES] * 2


async def test_any_other_refusal_is_an_error(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cached=LEAST_BYTES)
    kernel.refusal = errno.EINVAL
    with pytest.raises(CgroupError):
        await kernel.reclaim()(PART_BYTES)


@pytest.mark.parametrize(
    ("cached", "swap_kib", "is_asked"),
    [(LEAST_BYTES, 0, True), (LEAST_BYTES - 1, 0, False), (0, 4, True)],
    ids=["page cache", "hardly any", "swap"],
)
async def test_the_kernel_is_asked_where_there_may_be_something(
    cached: int, swap_kib: int, is_asked: bool, tmp_path: Path
) -> None:
    kernel = Kernel(tmp_path, cached=cached, swap_kib=swap_kib)
    assert await kernel.reclaim()(PART_BYTES) == (cached if is_asked else 0)
    assert bool(kernel.asked) == is_asked


async def test_pods_that_grow_meanwhile_are_no_gain(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cached=LEAST_BYTES)
    kernel.grows = 5 * MIB
    assert await kernel.reclaim()(MIB) == 0
    assert kernel.asked


async def test_one_container(tmp_path: Path) -> None:
    """Page cache is not checked: the caller knows that the container has too much."""
    kernel = Kernel(tmp_path, cached=0)
    kernel.put(f"{PODS}/c1", memory_reclaim="")
    await kernel.reclaim().of(f"{PODS}/c1", 3)
    assert kernel.asked == [3]
