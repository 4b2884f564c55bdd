"""The rows of `plimsoll top`: levels, orders, filter, and throttling of the interval."""

from __future__ import annotations

import pytest

from plimsoll.rules.cgroups.busiest import GUARANTEED, LEVELS, Level, SortKey, line_share, listed, ranked, since
from plimsoll.rules.cgroups.view import CpuUsageView, MemoryUsageView, Names, Standing, branches

MI, GI = 1 << 20, 1 << 30
UIDS = [f"6f1c2a3e-0000-4000-8000-00000000000{index}" for index in range(4)]
IDS = [f"{index}" * 64 for index in range(4)]
PLACES = ["", "", "/burstable", "/besteffort"]
PODS = [f"/kubepods{place}/pod{uid}" for place, uid in zip(PLACES, UIDS, strict=True)]


def standing(used: int, limit: int | None = None, high: int | None = None, milli: int = 0, **more: object) -> Standing:
    cpu = CpuUsageView(None, 10, 100, int(str(more.get("throttled", 0))), usage_milli=milli)
    pressure = {"memory": float(str(more.get("pressure", 0)))}
    return Standing(MemoryUsageView(used * MI, used * MI, 0, 0, high, limit), cpu, 1, None, pressure, 0)


FIGURES = [
    standing(90, 100 * MI, milli=10),  # 90 % of its limit
    standing(10, milli=900, throttled=20),  # no line: of the machine
    standing(50, 500 * MI, 51 * MI, milli=50),  # 98 % of memory.high
    standing(400, milli=5, pressure=30),
]
TREE = {
    "/kubepods": standing(560),
    "/kubepods/burstable": standing(50),
    "/kubepods/besteffort": standing(400),
    **dict(zip(PODS, FIGURES, strict=True)),
    **{f"{pod}/{each}": figure for pod, each, figure in zip(PODS, IDS, FIGURES, strict=True)},
}
NAMES = Names({uid: f"shop/{'abcd'[index]}" for index, uid in enumerate(UIDS)}, dict.fromkeys(IDS, "app"))
ROWS = branches(TREE, "/kubepods", names=NAMES)


def test_each_level_has_its_rows() -> None:
    names = {level: [row.name for row in listed(ROWS, TREE, level, "n1")[0]] for level in LEVELS}
    assert names["node"] == ["n1"]
    assert names["classes"] == ["guaranteed", "burstable", "besteffort"]
    assert sorted(names["pods"]) == ["shop/a", "shop/b", "shop/c", "shop/d"]
    assert sorted(names["containers"]) == ["shop/a/app", "shop/b/app", "shop/c/app", "shop/d/app"]


def test_the_guaranteed_class_is_the_sum_of_its_pods() -> None:
    """They have no class cgroup (document 004, 3.3.3)."""
    _, standings = listed(ROWS, TREE, "classes")
    memory, cpu = standings[GUARANTEED].memory, standings[GUARANTEED].cpu
    assert memory is not None and memory.working_set_bytes == 100 * MI and memory.max_bytes is None
    assert cpu is not None and cpu.usage_milli == 910


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("line", "cadb"),
        ("memory", "dacb"),
        ("cpu", "bcad"),
        ("throttled", "bacd"),
        ("pressure", "dabc"),
        ("name", "abcd"),
    ],
)
def test_orders(key: SortKey, expected: str) -> None:
    rows, standings = listed(ROWS, TREE, "pods")
    assert "".join(row.name[-1] for row in ranked(rows, standings, key, machine_bytes=8 * GI)) == expected


@pytest.mark.parametrize(("text", "expected"), [("", 4), ("SHOP/", 4), ("/c", 1), ("none", 0)])
def test_filter(text: str, expected: int) -> None:
    rows, standings = listed(ROWS, TREE, "pods")
    assert len(ranked(rows, standings, "name", text=text)) == expected


def test_nearest_line() -> None:
    assert line_share(FIGURES[2], 8 * GI) == pytest.approx(50 / 51)
    assert line_share(FIGURES[1], 8 * GI) == pytest.approx(10 * MI / (8 * GI))


def test_throttling_is_that_of_the_interval() -> None:
    """100 of 1000 periods so far, 5 of the last 10: 50 %, not 10 %."""
    before = {"/p": Standing(cpu=CpuUsageView(500, 10, 1000, 100))}
    after = {"/p": Standing(cpu=CpuUsageView(500, 10, 1010, 105)), "/new": Standing(cpu=CpuUsageView(500, 10, 7, 1))}
    found = since(before, after)
    cpu, new = found["/p"].cpu, found["/new"].cpu
    assert cpu is not None and (cpu.periods, cpu.throttled_periods) == (10, 5)
    assert new is not None and new.periods == 7


def test_levels_are_those_of_the_option() -> None:
    level: Level
    for level in LEVELS:
        assert listed(ROWS, TREE, level)[0]
