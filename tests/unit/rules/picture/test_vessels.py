"""The model: lines of ancestors, effective against declared, and the fills of a live tree."""

from __future__ import annotations

from plimsoll.cgroups.stats.live_tree import memory_parts
from plimsoll.rules.cgroups.view import CpuUsageView, MemoryParts, MemoryUsageView, Standing, branches
from plimsoll.rules.picture.model import Fill, Picture, Vessel
from plimsoll.rules.picture.observed import observed_picture

MI, GI = 1 << 20, 1 << 30
UID = "6f1c2a3e-0000-4000-8000-0000000000a1"
POD = f"/kubepods/burstable/pod{UID}"
ONE, TWO = f"{POD}/{'a' * 64}", f"{POD}/{'b' * 64}"


def standing(usage: int = 0, parts: MemoryParts | None = None, weight: int = 10, **lines: int) -> Standing:
    view = MemoryUsageView(usage, usage, **{f"{name}_bytes": amount for name, amount in lines.items()})
    return Standing(view, CpuUsageView(None, weight), parts=parts)


def observed(standings: dict[str, Standing]) -> Picture:
    rows = branches(standings, "/kubepods")
    return observed_picture(rows, standings, title="n", facts="", memory_bytes=8 * GI, cpu_milli=4000)


def vessel(picture: Picture, path: str) -> Vessel:
    return next(each for each in picture.everything() if each.path == path)


def test_protection_is_capped_by_the_ancestors_and_divided_among_siblings() -> None:
    """Claims of 96Mi and 32Mi below a pod with 64Mi: 48Mi and 16Mi (contention, in proportion)."""
    picture = observed(
        {
            "/kubepods": standing(min=64 * MI, max=8 * GI),
            "/kubepods/burstable": standing(min=64 * MI),
            POD: standing(min=64 * MI, max=256 * MI),
            ONE: standing(min=96 * MI, max=512 * MI),
            TWO: standing(min=32 * MI),
        }
    )
    first, second = vessel(picture, ONE), vessel(picture, TWO)
    own = first.own("min")
    assert own is not None and own.ineffective
    assert (own.declared_bytes, own.effective_bytes) == (96 * MI, 48 * MI)
    other = second.own("min")
    assert other is not None and other.effective_bytes == 16 * MI
    # The pod's 256Mi bind both: the first container's own 512Mi are never reached.
    limit = first.own("max")
    assert limit is not None and (limit.effective_bytes, limit.ineffective) == (256 * MI, True)
    assert limit.binding == f"pod {UID}"
    above = [line for line in second.lines if line.of]
    assert [(line.name, line.declared_bytes, line.of) for line in above] == [("max", 256 * MI, f"pod {UID}")]
    assert first.scale_bytes == 512 * MI and second.scale_bytes == 256 * MI


def test_nearest_of_equal_limits_binds() -> None:
    picture = observed(
        {
            "/kubepods": standing(max=GI),
            "/kubepods/burstable": standing(max=GI),
            POD: standing(),
            ONE: standing(),
        }
    )
    assert [(line.name, line.of) for line in vessel(picture, ONE).lines] == [("max", "Burstable")]


def test_fills_are_the_parts_and_what_is_left() -> None:
    parts = MemoryParts(anon_bytes=40 * MI, active_file_bytes=10 * MI, inactive_file_bytes=20 * MI, kernel_bytes=5 * MI)
    picture = observed({"/kubepods": standing(80 * MI, parts)})
    fills = vessel(picture, "/kubepods").fills
    assert fills == (
        Fill("anon", 40 * MI),
        Fill("kernel", 5 * MI),
        Fill("other", 5 * MI),
        Fill("activeFile", 10 * MI),
        Fill("inactiveFile", 20 * MI),
    )
    assert sum(fill.bytes for fill in fills) == 80 * MI


def test_parts_that_exceed_the_usage_are_cut() -> None:
    """The files are read one after the other; the picture never shows more than memory.current."""
    picture = observed({"/kubepods": standing(30 * MI, MemoryParts(anon_bytes=20 * MI, inactive_file_bytes=20 * MI))})
    assert vessel(picture, "/kubepods").fills == (Fill("anon", 20 * MI), Fill("inactiveFile", 10 * MI))


def test_memory_parts_of_both_versions() -> None:
    v2 = b"anon 1\nfile 100\nkernel 7\nkernel_stack 3\nshmem 2\ninactive_file 30\nactive_file 20\n"
    assert memory_parts(v2, 2) == MemoryParts(1, 20, 30, 2, 7)
    before_5_18 = v2.replace(b"kernel 7\n", b"pagetables 4\nslab 5\n")
    assert memory_parts(before_5_18, 2) == MemoryParts(1, 20, 30, 2, 3 + 4 + 5)
    v1 = b"rss 9\ntotal_rss 1\ntotal_active_file 20\ntotal_inactive_file 30\ntotal_shmem 2\n"
    assert memory_parts(v1, 1) == MemoryParts(1, 20, 30, 2, None)
