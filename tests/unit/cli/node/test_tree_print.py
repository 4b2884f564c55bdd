"""The output of `plimsoll tree`: golden files at several widths, escaped names, colours, no line wider than the screen."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cli.node.tree_print import Picture, lines
from plimsoll.cli.terminal import Paint, display_width
from plimsoll.rules.cgroups.view import CpuUsageView, IoView, MemoryUsageView, Names, Standing, TaskStates, branches

MIB, GIB = 1 << 20, 1 << 30
G, B, E = (
    "dba294ab-05fe-4314-a6d0-f9e0b3848104",
    "3b1c0de4-9a51-4f5e-8a57-1f2e3d4c5b6a",
    "77aa12cd-0000-4314-a6d0-f9e0b3848104",
)
APP, PAUSE, SEARCH, BATCH = "4a1f" * 16, "b2c3" * 16, "c5d6" * 16, "0918" * 16
POD_G, POD_B, POD_E = f"/kubepods/pod{G}", f"/kubepods/burstable/pod{B}", f"/kubepods/besteffort/pod{E}"

STANDINGS = {
    "/kubepods": Standing(
        MemoryUsageView(1400 * MIB, 1400 * MIB, 1228 * MIB, 0, None, 7 * GIB), pids=13, pids_max=31000
    ),
    POD_G: Standing(
        MemoryUsageView(612 * MIB, 612 * MIB, GIB, 0, None, GIB), cpu=CpuUsageView(1000, 39, 1200, 4), pids=9
    ),
    f"{POD_G}/{APP}": Standing(
        MemoryUsageView(611 * MIB, 611 * MIB, GIB, 0, None, GIB), cpu=CpuUsageView(1000, 100, 1200, 4), pids=8
    ),
    f"{POD_G}/{PAUSE}": Standing(MemoryUsageView(MIB // 4, MIB // 4), cpu=CpuUsageView(None, 1), pids=1),
    "/kubepods/burstable": Standing(
        MemoryUsageView(700 * MIB, 700 * MIB, 300 * MIB), pressure={"memory": 12.3, "cpu": 44.2, "io": 0.0}
    ),
    POD_B: Standing(
        MemoryUsageView(395 * MIB, 395 * MIB, 300 * MIB, 0, None, 400 * MIB),
        cpu=CpuUsageView(500, 10, 1000, 640),
        oom_kills=2,
    ),
    f"{POD_B}/{SEARCH}": Standing(
        MemoryUsageView(395 * MIB, 395 * MIB, 300 * MIB, 0, 390 * MIB, 400 * MIB),
        cpu=CpuUsageView(500, 35, 1000, 640),
        pids=3,
        pids_max=100,
        pressure={"memory": 12.3, "cpu": 44.2, "io": 0.4},
        oom_kills=2,
        tasks=TaskStates(sleeping=2, running=1),
    ),
    "/kubepods/besteffort": Standing(MemoryUsageView(88 * MIB, 88 * MIB)),
    POD_E: Standing(MemoryUsageView(88 * MIB, 88 * MIB)),
    f"{POD_E}/{BATCH}": Standing(MemoryUsageView(88 * MIB, 88 * MIB)),
}
NAMES = Names({G: "shop/checkout-7d9f", B: "shop/search-0"}, {APP: "app", SEARCH: "elastic"})


def picture(*, notes: dict[str, list[str]] | None = None, with_tasks: bool = False) -> Picture:
    rows = branches(STANDINGS, "/kubepods", names=NAMES, sandboxes={f"{POD_G}/{PAUSE}"})
    return Picture(rows, STANDINGS, 8 * GIB, notes or {}, with_tasks)


def text(screen: int, *, notes: dict[str, list[str]] | None = None, with_tasks: bool = False) -> str:
    shown = lines(picture(notes=notes, with_tasks=with_tasks), Paint(False), screen)
    return "\n".join(line.rstrip() for line in shown)


AT_80 = """\
CGROUP                    MEMORY                 USED        MAX  THROTTLED  OOM
kubepods                  ━━╋╸╌╌╌╌╌╌╌╌╌╌╌╌    1.3 GiB    7.0 GiB          -    -
├─ shop/checkout-7d9f     ━━━━━━━━━━╌╌╌╌╌┼  612.0 MiB    1.0 GiB        1 %    -
│  ├─ app                 ━━━━━━━━━━╌╌╌╌╌┼  611.0 MiB    1.0 GiB        1 %    -
│  └─ sandbox             ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  256.0 KiB          -          -    -
├─ burstable              ╋━╌╌╌╌╌╌╌╌╌╌╌╌╌╌  700.0 MiB          -          -    -
│  └─ shop/search-0       ━━━━━━━━━━━━╋━━━  395.0 MiB  400.0 MiB       64 %    2
│     └─ elastic          ━━━━━━━━━━━━╋━━┳  395.0 MiB  400.0 MiB       64 %    2
└─ besteffort             ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   88.0 MiB          -          -    -
   └─ pod 77aa12cd…       ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   88.0 MiB          -          -    -
      └─ 091809180918     ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   88.0 MiB          -          -    -
╋ min  ┻ low  ┳ high"""

PLAIN = """\
CGROUP                                          MEMORY                         USED        MAX        MIN       HIGH  CPU LIMIT  THROTTLED  PRESSURE               PIDS  OOM
kubepods                                        ━━━━╋╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌    1.3 GiB    7.0 GiB    1.1 GiB          -          -          -  -                13 / 31000    -
├─ shop/checkout-7d9f                           ━━━━━━━━━━━━━━╸╌╌╌╌╌╌╌╌┼  612.0 MiB    1.0 GiB    1.0 GiB          -          1        1 %  -                         9    -
│  ├─ app                                       ━━━━━━━━━━━━━━╸╌╌╌╌╌╌╌╌┼  611.0 MiB    1.0 GiB    1.0 GiB          -          1        1 %  -                         8    -
│  └─ sandbox                                   ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  256.0 KiB          -          -          -          -          -  -                         1    -
├─ burstable                                    ━╋╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  700.0 MiB          -  300.0 MiB          -          -          -  mem 12% cpu 44%           -    -
│  └─ shop/search-0                             ━━━━━━━━━━━━━━━━━━╋━━━━━  395.0 MiB  400.0 MiB  300.0 MiB          -        0.5       64 %  -                         -    2
│     └─ elastic                                ━━━━━━━━━━━━━━━━━━╋━━━━┳  395.0 MiB  400.0 MiB  300.0 MiB  390.0 MiB        0.5       64 %  mem 12% cpu 44%     3 / 100    2
└─ besteffort                                   ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   88.0 MiB          -          -          -          -          -  -                         -    -
   └─ pod 77aa12cd-0000-4314-a6d0-f9e0b3848104  ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   88.0 MiB          -          -          -          -          -  -                         -    -
      └─ 091809180918                           ╸╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   88.0 MiB          -          -          -          -          -  -                         -    -"""


@pytest.mark.parametrize(("screen", "wanted"), [(80, AT_80), (0, PLAIN)], ids=["80 columns", "no terminal"])
def test_golden(screen: int, wanted: str) -> None:
    assert text(screen) == wanted


@pytest.mark.parametrize("screen", [140, 100, 80, 60, 40, 20, 10])
@pytest.mark.parametrize("with_tasks", [False, True])
def test_no_row_is_wider_than_the_screen(screen: int, with_tasks: bool) -> None:
    shown = text(screen, with_tasks=with_tasks).splitlines()
    if screen < 20:  # the legend is wider than that
        shown = shown[: len(STANDINGS) + 1]
    assert max(map(display_width, shown)) <= screen


def test_used_and_max_are_dropped_last() -> None:
    assert "USED" in text(60)
    assert "MAX" in text(60)
    assert "612.0 MiB" in text(60)


def test_an_empty_column_is_left_out() -> None:
    calm = {path: Standing(standing.memory) for path, standing in STANDINGS.items()}
    shown = list(lines(Picture(branches(calm, "/kubepods"), calm, GIB), Paint(False), 0))
    assert shown[0].split() == ["CGROUP", "MEMORY", "USED", "MAX", "MIN", "HIGH"]
    bare = {"/a": Standing(), "/a/b": Standing()}
    assert list(lines(Picture(branches(bare, "/a"), bare, GIB), Paint(False), 80)) == ["CGROUP", "a", "└─ b"]


def test_tasks_and_differences() -> None:
    note = "want memory.max 536870912, have 419430400"
    shown = text(0, notes={POD_B: [note]}, with_tasks=True)
    assert "1 running, 2 sleeping" in shown
    at = shown.splitlines().index(f"│     │  {note}")
    assert "search-0" in shown.splitlines()[at - 1]


def test_classes_have_colours_and_problems_are_red() -> None:
    shown = list(lines(picture(), Paint(True), 140))
    row = next(line for line in shown if "elastic" in line)
    assert "\x1b[33m━" in row  # Burstable
    assert "\x1b[1;31m395.0 MiB\x1b[0m" in row  # within 10 % of its limit
    assert "\x1b[31mcpu 44%" in re.sub(r"\x1b\[31m cpu", "\x1b[31mcpu", row)
    assert any("\x1b[32m━" in line for line in shown if "checkout" in line)


def test_control_characters_in_names_are_escaped() -> None:
    path = "/kubepods/\x1b[2Jx\u202e"
    standings = {"/kubepods": Standing(), path: Standing()}
    shown = "\n".join(lines(Picture(branches(standings, "/kubepods"), standings, GIB), Paint(True), 80))
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown


@given(st.integers(1, 200), st.lists(st.text(max_size=30), max_size=6, unique=True))
def test_any_names_fit_any_width(screen: int, names: list[str]) -> None:
    paths = {"/k"} | {f"/k/{name}" for name in names if name and "/" not in name}
    standings = {path: Standing(MemoryUsageView(MIB, MIB)) for path in paths}
    shown = list(lines(Picture(branches(paths, "/k"), standings, GIB), Paint(False), screen))
    assert len(shown) == len(paths) + 1
    assert all(display_width(line) <= max(screen, 6) for line in shown[1:])


def test_cpu_columns_are_labelled() -> None:
    """1.5 CPUs in use of 2; the limit alone reads like usage."""
    standings = {
        "/kubepods": Standing(MemoryUsageView(MIB, MIB, 0, 0, None, GIB), CpuUsageView(2000, usage_milli=1500))
    }
    rows = branches(standings, "/kubepods")
    head, first = lines(Picture(rows, standings, GIB), Paint(False), 0)
    assert head.split("  ")[-2:] == ["CPU USED", "CPU LIMIT"]
    assert first.split()[-2:] == ["1.50", "2"]


@pytest.mark.parametrize(("version", "title"), [(1, "LIMIT"), (2, "MAX")])
def test_the_memory_limit_has_the_name_of_the_kernel(version: int, title: str) -> None:
    standings = {"/kubepods": Standing(MemoryUsageView(MIB, MIB, 0, 0, None, GIB))}
    head, _ = lines(Picture(branches(standings, "/kubepods"), standings, GIB, version=version), Paint(False), 0)
    assert head.split() == ["CGROUP", "MEMORY", "USED", title]


def test_io_is_shown_where_it_is_not_at_its_default() -> None:
    io = {
        "/kubepods": IoView(500),
        POD_G: IoView(None, {"254:0": {"wbps": 10 * MIB, "riops": 7}}, {"254:0": 9500}),
        POD_B: IoView(None, {"254:0": {"rbps": MIB}, "254:16": {"rbps": 2 * MIB}}),
    }
    standings = {path: Standing(io=io.get(path)) for path in STANDINGS}
    rows = branches(STANDINGS, "/kubepods", names=NAMES, sandboxes={f"{POD_G}/{PAUSE}"})
    shown = [
        re.split(r" {2,}", line.lstrip("│ ")) for line in lines(Picture(rows, standings, 8 * GIB), Paint(False), 0)
    ]
    cells = {row[0]: row[1:] for row in shown}
    assert cells["CGROUP"] == ["IO WEIGHT", "IO MAX"]
    assert cells["kubepods"] == ["500", "-"]
    assert cells["├─ shop/checkout-7d9f"] == ["-", "w 10.0 MiB/s, r 7/s, latency 9.5 ms"]
    assert cells["└─ shop/search-0"] == ["-", "254:0 r 1.0 MiB/s, 254:16 r 2.0 MiB/s"]
