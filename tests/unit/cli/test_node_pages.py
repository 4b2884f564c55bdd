"""`plimsoll pressure` and `plimsoll oom`: the text of the agent's pages."""

from __future__ import annotations

import msgspec
import pytest

from plimsoll.cli.node import oom, pressure
from plimsoll.cli.terminal import Paint
from plimsoll.codec.node_pages import OomPage, PressurePage, oom_page, pressure_page
from plimsoll.rules.config.thresholds import parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.eviction.decision import EvictionCandidate, EvictionDecision
from plimsoll.rules.oom.report import OomKill, Victim
from plimsoll.rules.quantity import parse

PLAIN = Paint(False)
HOG = EvictionCandidate("u1", "shop", "hog", 0, 2 << 30, "0", True, before="larger excess")
SMALL = EvictionCandidate("u2", "shop", "small\x1b[2J", 0, 300 << 20, "200Mi", True)
CRITICAL = EvictionCandidate("u3", "kube-system", "etcd", 2_000_001_000, 1 << 30, "0", True, critical=True, before="x")
EVICTED = EvictionDecision(
    "memory.available", "memory", "100Mi", "90Mi", True, 1.0, (HOG, SMALL), HOG,
    message="The node was low on resource: memory. ", time_s=1000.0, pods=3, exempt=1, following=SMALL,
)  # fmt: skip

THRESHOLDS = parsed_thresholds(
    {"memory.available": "100Mi", "pid.available": "5000"}, {"memory.available": "1Gi"}, {"memory.available": "90s"}
)
SEEN = {
    "memory.available": Observation(parse("612Mi"), parse("16Gi")),
    "pid.available": Observation(parse("9000"), parse("32768")),
}
PAGE = pressure_page(("MemoryPressure",), THRESHOLDS, SEEN, (EVICTED,), {"memory.available": (HOG, CRITICAL, SMALL)})


def decoded() -> PressurePage:
    return msgspec.json.decode(msgspec.json.encode(PAGE), type=PressurePage)


def test_pressure() -> None:
    assert list(pressure.lines(decoded(), 5, 1090.0, PLAIN)) == [
        "conditions: MemoryPressure",
        "SIGNAL            AVAILABLE  OF        THRESHOLD  GRACE  DISTANCE",
        "memory.available  612.0 MiB  16.0 GiB  100.0 MiB  hard   512.0 MiB",
        "                                       1.0 GiB    90 s   met",
        "pid.available     9000       32768     5000       hard   4000",
        "",
        "next to be evicted for memory.available",
        "#  POD                PRIORITY    USES       REQUESTS   OVER       BEFORE THE NEXT BECAUSE",
        "1  shop/hog           0           2.0 GiB    0 B        2.0 GiB    larger excess",
        "-  kube-system/etcd   2000001000  1.0 GiB    0 B        1.0 GiB    exempt: critical",
        "2  shop/small\\x1b[2J  0           300.0 MiB  200.0 MiB  100.0 MiB",
        "",
        "evicted",
        "       90s  shop/hog  memory.available",
        "            The node was low on resource: memory.",
        "            memory.available is 90Mi and should be 100Mi: chosen before 1 other pod, 1 exempt; priority 0, uses "
        "2Gi, requests 0; before shop/small\\x1b[2J (priority 0, uses 300Mi, requests 200Mi) because: larger excess",
    ]


def test_signals_with_one_order_are_shown_once() -> None:
    page = decoded()
    order = {**page.order, "allocatableMemory.available": page.order["memory.available"], "pid.available": (HOG,)}
    page = msgspec.structs.replace(page, order=order)
    titles = [
        line
        for line in pressure.lines(page, 5, 0.0, PLAIN, everything=True)
        if line.startswith("next to be evicted for")
    ]
    assert titles == [
        "next to be evicted for memory.available, allocatableMemory.available",
        "next to be evicted for pid.available",
    ]
    titles = [line for line in pressure.lines(page, 5, 0.0, PLAIN) if line.startswith("next to be evicted for")]
    assert titles == ["next to be evicted for memory.available"]


def test_few_candidates_and_no_pressure() -> None:
    assert "and 2 more" in list(pressure.lines(decoded(), 1, 0.0, PLAIN))
    assert not any("next to be evicted for" in line for line in pressure.lines(decoded(), 0, 0.0, PLAIN))
    assert list(pressure.lines(PressurePage(), 5, 0.0, PLAIN)) == ["conditions: no pressure"]


KILL = OomKill(
    1000.0, "kernel log", "container", "u1", "shop", "hog", "app", process="stress", pid=77, container_lives=True,
    limit_path="/kubepods/podu1/c", limit_bytes=256 << 20, usage_bytes=256 << 20, oom_score_adj=1000,
    stat={"anon": 250 << 20, "file": 0},
    candidates=(Victim(1, "sh", 1 << 20, 1000), Victim(77, "stress", 250 << 20, 1000)),
)  # fmt: skip
COUNTED = OomKill(
    2000.0, "counters", "pod", "u2", "", "", killed=2, while_away=True, usage_bytes=10 << 20, sample_age_s=1.5
)

KILLS = [
    (
        "from the kernel's log",
        KILL,
        [
            "1970-01-01T00:16:40Z  90s ago  shop/hog app",
            "  Process stress (pid 77) in container app was killed by the kernel: out of memory at the container's "
            "memory limit (256Mi); the container continues",
            "  process    stress (pid 77), oom_score_adj 1000",
            "  limit of   /kubepods/podu1/c",
            "  limit      256.0 MiB",
            "  used       256.0 MiB",
            "  memory     anon 250.0 MiB",
            "  source     kernel log",
            "    PID  CANDIDATE  RESIDENT   ADJ",
            "    77   stress     250.0 MiB  1000",
            "    1    sh         1.0 MiB    1000",
        ],
    ),
    (
        "from counters",
        COUNTED,
        [
            "1970-01-01T00:33:20Z  <invalid> ago  u2",
            "  2 processes were killed by the kernel: out of memory at the pod's memory limit, while no agent was "
            "running; known from the kernel's counters (usage 10Mi, last seen 1.5 s before)",
            "  used       10.0 MiB, 1.5 s before",
            "  source     counters",
        ],
    ),
]


@pytest.mark.parametrize(("kill", "lines"), [row[1:] for row in KILLS], ids=[row[0] for row in KILLS])
def test_kills(kill: OomKill, lines: list[str]) -> None:
    page = msgspec.json.decode(msgspec.json.encode(oom_page([kill], {})), type=OomPage)
    assert list(oom.lines(page.kills, 1090.0, PLAIN)) == lines


def test_no_kills() -> None:
    assert list(oom.lines([], 0.0, PLAIN)) == ["No OOM kills found."]
