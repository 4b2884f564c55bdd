"""Rows of a live cgroup tree, and memory as a bar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.cgroups.view import (
    FREE,
    CpuUsageView,
    MemoryUsageView,
    Names,
    Standing,
    bar,
    branches,
    scales,
    throttled_percent,
    with_cpu_rates,
)

UID, OTHER = "dba294ab-05fe-4314-a6d0-f9e0b3848104", "00000000-05fe-4314-a6d0-f9e0b3848104"
APP, PAUSE, HELPER = "a" * 64, "0" * 64, "b" * 64
POD = f"/kubepods/pod{UID}"
PATHS = [
    "/kubepods",
    "/kubepods/besteffort",
    "/kubepods/burstable",
    f"/kubepods/burstable/pod{OTHER}",
    f"{POD}/{PAUSE}",
    f"{POD}/{HELPER}",
    f"{POD}/{APP}",
    f"{POD}/{APP}/init.scope",
    POD,
    "/kubepods/gpu",
]


def drawn(depth: int | None = None, names: Names = Names()) -> list[str]:  # noqa: B008
    rows = branches(PATHS, "/kubepods", names=names, sandboxes={f"{POD}/{PAUSE}"}, depth=depth)
    found = []
    for row in rows:
        guides = "".join("." if last else "|" for last in row.last)
        found.append(f"{guides} {row.what} {row.name}{f' +{row.hidden}' if row.hidden else ''}".strip())
    return found


def test_the_order_is_that_of_protection_and_the_sandbox_comes_last() -> None:
    assert drawn() == [
        "pods kubepods",
        f"| pod pod {UID}",
        "|| container aaaaaaaaaaaa",
        "||. cgroup init.scope",
        "|| container bbbbbbbbbbbb",
        "|. sandbox sandbox",
        "| class burstable",
        f"|. pod pod {OTHER}",
        "| class besteffort",
        ". cgroup gpu",
    ]


def test_names_where_they_are_known_decide_the_order() -> None:
    names = Names({UID: "shop/web-0"}, {APP: "zebra", HELPER: "ant"})
    assert drawn(names=names)[:6] == [
        "pods kubepods",
        "| pod shop/web-0",
        "|| container ant",
        "|| container zebra",
        "||. cgroup init.scope",
        "|. sandbox sandbox",
    ]


def test_what_the_depth_leaves_out_is_counted() -> None:
    assert drawn(depth=1) == [
        "pods kubepods",
        f"| pod pod {UID} +4",
        "| class burstable +1",
        "| class besteffort",
        ". cgroup gpu",
    ]
    assert drawn(depth=0) == ["pods kubepods +9"]


def test_any_cgroup_can_be_the_root_also_the_top() -> None:
    assert [row.name for row in branches(["/", "/a", "/a/b"], "/")] == ["/", "a", "b"]
    assert [row.name for row in branches(["/a", "/a/b"], "/a")] == ["a", "b"]


GIB = 1 << 30
BARS = [
    ("empty", MemoryUsageView(0, 0, max_bytes=GIB), GIB, 8, "╌╌╌╌╌╌╌╌"),
    ("a byte shows", MemoryUsageView(1, 1, max_bytes=GIB), GIB, 8, "╸╌╌╌╌╌╌╌"),
    ("half", MemoryUsageView(GIB // 2, GIB // 2, max_bytes=GIB), GIB, 8, "━━━━╌╌╌╌"),
    ("full", MemoryUsageView(GIB, GIB, max_bytes=GIB), GIB, 8, "━━━━━━━━"),
    ("over", MemoryUsageView(2 * GIB, 2 * GIB, max_bytes=GIB), GIB, 8, "━━━━━━━━"),
    ("min is the limit", MemoryUsageView(GIB // 2, GIB // 2, min_bytes=GIB, max_bytes=GIB), GIB, 8, "━━━━╌╌╌┼"),
    ("min below usage", MemoryUsageView(GIB // 2, GIB // 2, min_bytes=GIB // 4, max_bytes=GIB), GIB, 8, "━━╋━╌╌╌╌"),
    ("low", MemoryUsageView(GIB // 2, GIB // 2, low_bytes=GIB // 4, max_bytes=GIB), GIB, 8, "━━┻━╌╌╌╌"),
    ("high", MemoryUsageView(GIB // 2, GIB // 2, high_bytes=3 * GIB // 4, max_bytes=GIB), GIB, 8, "━━━━╌╌┬╌"),
    ("above high", MemoryUsageView(7 * GIB // 8, 7 * GIB // 8, high_bytes=3 * GIB // 4, max_bytes=GIB), GIB, 8, "━━━━━━┳╌"),
    ("high that equals max says nothing", MemoryUsageView(0, 0, high_bytes=GIB, max_bytes=GIB), GIB, 8, "╌╌╌╌╌╌╌╌"),
    ("a mark beyond the scale", MemoryUsageView(0, 0, min_bytes=2 * GIB), GIB, 8, "╌╌╌╌╌╌╌╌"),
    ("cache beyond the working set", MemoryUsageView(GIB // 4, GIB // 2, max_bytes=GIB), GIB, 8, "━━──╌╌╌╌"),
    ("no room", MemoryUsageView(GIB, GIB), GIB, 0, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "scale", "width", "wanted"), [row[1:] for row in BARS], ids=[row[0] for row in BARS]
)
def test_bar(memory: MemoryUsageView, scale: int, width: int, wanted: str) -> None:
    assert "".join(text for _, text in bar(memory, scale, width)) == wanted


amounts = st.integers(0, 1 << 45)


@given(
    st.builds(MemoryUsageView, amounts, amounts, amounts, amounts, st.none() | amounts, st.none() | amounts),
    st.integers(0, 1 << 45),
    st.integers(0, 60),
)
def test_a_bar_is_as_wide_as_asked_and_never_empty_for_what_is_used(
    memory: MemoryUsageView, scale: int, width: int
) -> None:
    text = "".join(piece for _, piece in bar(memory, scale, width))
    assert len(text) == width
    if memory.working_set_bytes and width:
        assert text[0] != FREE


def test_a_scale_is_ones_own_limit_or_the_nearest_above_or_the_machine() -> None:
    rows = branches(["/k", "/k/a", "/k/a/x", "/k/b", "/k/b/y"], "/k")
    standings = {
        "/k": Standing(MemoryUsageView(0, 0)),
        "/k/a": Standing(MemoryUsageView(0, 0, max_bytes=100)),
        "/k/a/x": Standing(MemoryUsageView(0, 0)),
        "/k/b": Standing(),
        "/k/b/y": Standing(MemoryUsageView(0, 0, max_bytes=5000)),
    }
    assert scales(rows, standings, 1000) == {"/k": 1000, "/k/a": 100, "/k/a/x": 100, "/k/b": 1000, "/k/b/y": 1000}


@pytest.mark.parametrize(
    ("cpu", "percent"),
    [
        (CpuUsageView(), None),
        (CpuUsageView(1, 1, 10, 0), 0),
        (CpuUsageView(1, 1, 1000, 1), 1),
        (CpuUsageView(1, 1, 3, 3), 100),
    ],
)
def test_throttled_percent(cpu: CpuUsageView, percent: int | None) -> None:
    assert throttled_percent(cpu) == percent


def test_cpu_rates() -> None:
    """50 ms of CPU time within 100 ms are half a CPU; a cgroup that is new or has no figure has no rate."""
    before = {"/a": Standing(cpu=CpuUsageView(usage_us=1_000_000)), "/b": Standing(cpu=CpuUsageView())}
    after = {
        "/a": Standing(cpu=CpuUsageView(usage_us=1_050_000)),
        "/b": Standing(cpu=CpuUsageView(usage_us=5)),
        "/new": Standing(cpu=CpuUsageView(usage_us=5)),
        "/none": Standing(),
    }
    rates = {path: each.cpu and each.cpu.usage_milli for path, each in with_cpu_rates(before, after, 0.1).items()}
    assert rates == {"/a": 500, "/b": None, "/new": None, "/none": None}
