"""The CPU allocators: worked examples 1 to 19 of 07 §9, and a second implementation by literal steps."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.rules.config.manager_options import CpuOptions
from plimsoll.rules.cpumanager.assignment import CpuPlan
from plimsoll.rules.cpumanager.distribution import DistributionError, distributed, standard_deviation
from plimsoll.rules.cpumanager.packing import NotEnoughCpusError, packed
from plimsoll.rules.cpumanager.topology import NO_CPUS, CpuTopology, LogicalCpu
from plimsoll.rules.profile import profile_named
from tests.examples import examples
from tests.unit.rules.cpumanager.machines import SIX, D, E, M, N, T, U, cpus, plan, text

ALL = {id(each): text(each.cpus) for each in (T, D, M, E, U, N, SIX)}

PACKED = [
    *(pytest.param(T, "0-7", n, want, id=f"1-{n}") for n, want in [(1, "0"), (2, "0,4"), (3, "0-1,4")]),
    *(pytest.param(T, "1-3,5-7", n, want, id=f"2-{n}") for n, want in [(1, "1"), (3, "1-2,5")]),
    *(pytest.param(T, "1-3,6-7", n, want, id=f"3-{n}") for n, want in [(1, "1"), (3, "1-2,6")]),
    *(
        pytest.param(D, "0-11", n, want, id=f"4-{n}")
        for n, want in [(3, "0,2,6"), (6, "0,2,4,6,8,10"), (7, "0-2,4,6,8,10")]
    ),
    *(
        pytest.param(D, "1-11", n, want, id=f"5-{n}")
        for n, want in [(2, "2,8"), (5, "2,4,6,8,10"), (6, "1,3,5,7,9,11")]
    ),
    *(pytest.param(M, "0-31", n, want, id=f"6-{n}") for n, want in [(8, "0-3,16-19"), (20, "0-9,16-25")]),
    pytest.param(M, "1-31", 20, "1-2,8-15,17-18,24-31", id="6-busy"),
    *(pytest.param(N, "1-7", n, want, id=f"7-{n}") for n, want in [(2, "2-3"), (3, "1-3"), (6, "2-7")]),
    *(
        pytest.param(T.only(range(7)), "0-6", n, want, id=f"8-{n}")
        for n, want in [(1, "3"), (2, "0,3"), (4, "0-1,3-4")]
    ),
]


@pytest.mark.parametrize(("topology", "available", "count", "expected"), PACKED)
def test_packed(topology: CpuTopology, available: str, count: int, expected: str) -> None:
    assert text(packed(topology, cpus(available), count)) == expected


def test_too_many() -> None:
    with pytest.raises(NotEnoughCpusError, match="requested=7, available=6"):
        packed(T, cpus("1-3,5-7"), 7)


@pytest.mark.parametrize(
    ("topology", "available", "count", "expected"),
    [
        pytest.param(D, "0-11", 4, "0,2,4,6", id="9-D"),
        pytest.param(M, "1-15,17-31", 6, "1-6", id="9-M"),
        pytest.param(T, "0-7", 2, "0-1", id="9-T-reserved"),
        pytest.param(T, "2-7", 3, "2-4", id="9-T-3"),
        pytest.param(T, "5-7", 2, "5-6", id="9-T-2"),
    ],
)
def test_across_cores(topology: CpuTopology, available: str, count: int, expected: str) -> None:
    asked = plan(topology, distribute_cpus_across_cores=True)
    assert text(asked.take(cpus(available), count)) == expected


HALF = "1-15,17-31"  # M: 6, 8, 8, 8 per node
DISTRIBUTED = [
    pytest.param(M, HALF, 6, 1, "4-6,20-22", id="10-6"),
    pytest.param(M, HALF, 8, 1, "4-7,20-23", id="10-8"),
    pytest.param(M, HALF, 9, 1, "4-6,8-9,20-21,24-25", id="11-1"),
    pytest.param(M, HALF, 9, 2, "1,4-7,20-23", id="11-2"),
    pytest.param(M, HALF, 10, 1, "4-6,8-10,20-21,24-25", id="12-1"),
    pytest.param(M, HALF, 10, 2, "4-6,8-9,20-22,24-25", id="12-2"),
    pytest.param(M, HALF, 14, 2, "4-10,20-26", id="13-2"),
    pytest.param(M, HALF, 14, 1, "4-11,20-22,24-26", id="13-1"),
    pytest.param(M, HALF, 18, 1, "4-6,8-10,12-14,20-22,24-26,28-30", id="14-18"),
    pytest.param(M, HALF, 20, 2, "4-10,12-14,20-26,28-30", id="14-20"),
    pytest.param(M, HALF, 24, 1, "4-15,20-31", id="14-24"),
    pytest.param(E, "0-63", 24, 2, "0-11,32-43", id="15-24"),
    pytest.param(E, "0-63", 32, 2, "0-11,28-43,60-63", id="15-32"),
    pytest.param(E, "0-63", 40, 2, "0-19,32-51", id="15-40"),
    pytest.param(E, "0-63", 48, 2, "0-19,28-51,60-63", id="15-48"),
    pytest.param(E, "0-63", 26, 2, "0-6,8-10,28-30,32-38,40-42,60-62", id="15-26"),
    pytest.param(SIX, "0-47", 32, 2, "0-11,20-35,44-47", id="16"),
]


@pytest.mark.parametrize(("topology", "available", "count", "group", "expected"), DISTRIBUTED)
def test_distributed(topology: CpuTopology, available: str, count: int, group: int, expected: str) -> None:
    asked = plan(topology, distribute_cpus_across_numa=True, full_pcpus_only=group == 2)
    assert text(asked.take(cpus(available), count)) == expected


def test_the_search_always_ends() -> None:
    """A real kubelet never returns from this request (07 §10)."""
    four = CpuTopology({cpu: LogicalCpu(cpu % 32, 0, cpu % 32 // 8) for cpu in range(64)})
    available = four.cpus - {0, 8}  # two nodes with 15 CPUs
    try:
        found = distributed(four, available, 54, 2)
    except DistributionError:
        return
    assert len(found) == 54


UNCORE = [
    *(
        pytest.param("0-31", n, want, id=f"17-{n}")
        for n, want in [(5, "0-2,16-17"), (9, "0-4,16-19"), (12, "0-5,16-21"), (17, "0-8,16-23")]
    ),
    *(
        pytest.param("1-15,17-31", n, want, id=f"18-{n}")
        for n, want in [
            (6, "1-3,17-19"),
            (7, "4-7,20-22"),
            (8, "4-7,20-23"),
            (10, "1,4-7,17,20-23"),
            (14, "1-7,17-23"),
        ]
    ),
    pytest.param("2-3,6-7,10-11,14-15,18-19,22-23,26-27,30-31", 6, "2-3,6,18-19,22", id="19-6"),
    pytest.param("1,3,5-7,17,21-23", 3, "1,3,17", id="19-3"),
]


@pytest.mark.parametrize(("available", "count", "expected"), UNCORE)
def test_by_uncore_cache(available: str, count: int, expected: str) -> None:
    assert text(plan(U, prefer_align_cpus_by_uncorecache=True).take(cpus(available), count)) == expected


def test_without_the_option() -> None:
    assert text(plan(U).take(cpus("1-15,17-31"), 10)) == "1-5,17-21"


def test_standard_deviation_is_rounded() -> None:
    assert standard_deviation([1, 2, 2]) == 0.471
    assert standard_deviation([4, 4, 4]) == 0


# --- properties ---


@st.composite
def topologies(draw: st.DrawFn) -> CpuTopology:
    sockets, nodes, cores, threads = (draw(st.integers(1, most)) for most in (2, 3, 3, 2))
    total = sockets * nodes * cores
    return CpuTopology(
        {
            cpu: LogicalCpu(cpu % total, cpu % total // (nodes * cores), cpu % total // cores, cpu % total // 2)
            for cpu in range(total * threads)
        }
    )


def literal(topology: CpuTopology, available: frozenset[int], count: int) -> frozenset[int]:
    """The packed allocator again, by its words: elements in order of (CPUs left in each level, number)."""
    levels = ["numa", "socket"] if topology.sockets >= topology.numa_nodes else ["socket", "numa"]
    left, taken = set(available), set[int]()

    def key(cpu: int) -> list[tuple[int, int]]:
        place = topology.places[cpu]
        keys = []
        for level in (*levels, "core"):
            mine = getattr(place, level)
            keys.append((sum(getattr(topology.places[each], level) == mine for each in left), mine))
        return [*keys, (0, cpu)]

    for level in (*levels, "core"):
        order = list(dict.fromkeys(getattr(topology.places[cpu], level) for cpu in sorted(left, key=key)))
        size = {"socket": topology.cpus_per_socket, "core": topology.threads_per_core}
        parts = {part: {cpu for cpu, at in topology.places.items() if getattr(at, level) == part} for part in order}
        whole = [part for part in order if len(parts[part] & left) == size.get(level, len(parts[part]))]
        for part in whole:
            if len(parts[part]) <= count - len(taken):
                taken |= parts[part]
                left -= parts[part]
    for cpu in sorted(left, key=key)[: count - len(taken)]:
        taken.add(cpu)
    return frozenset(taken)


@settings(max_examples=examples(300))
@given(st.data(), topologies())
def test_packed_is_the_literal_one(data: st.DataObject, topology: CpuTopology) -> None:
    available = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    count = data.draw(st.integers(0, len(available)))
    assert packed(topology, available, count) == literal(topology, available, count)


@settings(max_examples=examples(300))
@given(st.data(), topologies(), st.sampled_from(["", "across_numa", "full", "across_cores", "uncore"]))
def test_as_many_as_asked_and_only_available_ones(data: st.DataObject, topology: CpuTopology, option: str) -> None:
    options = CpuOptions(
        distribute_cpus_across_numa=option in ("across_numa", "full"),
        full_pcpus_only=option == "full",
        distribute_cpus_across_cores=option == "across_cores",
        prefer_align_cpus_by_uncorecache=option == "uncore",
    )
    asked = CpuPlan(topology, NO_CPUS, options)
    available = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    count = data.draw(st.integers(0, len(available)))
    assume(count > 0)
    try:
        found = asked.take(available, count)
    except DistributionError:
        assert topology.numa_nodes >= 4  # only through the buffer quirk of CM-13
        return
    assert len(found) == count and found <= available


def test_a_cpu_of_another_container() -> None:
    """CM-2: seven of eight CPUs are online, so a core has one thread on average, and core {0, 4} looks free without 4."""
    seven = T.only(range(7))
    available = cpus("0-3,5-6")
    assert text(plan(seven).take(available, 2)) == "0,4"  # as a kubelet does
    found = CpuPlan(seven, NO_CPUS).take(available, 2)
    assert len(found) == 2 and found <= available


@pytest.mark.parametrize(
    ("available", "count", "release", "align_by_socket", "expected"),
    [
        ("0-2,4-5", 3, "1.36", True, "1-2,5"),  # 1.36: nodes 1 and 2 are left most balanced
        ("0-2,4-5", 3, "1.37", True, "0-1,4"),  # 1.37: nodes 0 and 1 are of one socket; node 0 gives what it has
        ("0-2,4-5", 3, "1.37", False, "1-2,5"),
        ("0-1,4-5", 2, "1.37", True, "1,4"),
    ],
)
def test_nodes_of_one_socket_win_since_1_37(
    available: str, count: int, release: str, align_by_socket: bool, expected: str
) -> None:
    """CM-13, 07 §8: nodes 0 and 1 are socket 0, node 2 is socket 1; one core of two threads each."""
    machine = CpuTopology({cpu: LogicalCpu(cpu % 3, cpu % 3 // 2, cpu % 3) for cpu in range(6)})
    options = CpuOptions(distribute_cpus_across_numa=True, align_by_socket=align_by_socket)
    asked = CpuPlan(machine, NO_CPUS, options, profile_named(release))
    assert text(asked.take(cpus(available), count)) == expected


def test_odd_counts_in_a_cache_since_1_34() -> None:
    """CM-12: socket 0 has cores {0, 1}, {2, 3}, {4, 5}, socket 1 {6, 7}, {8, 9}; all share one cache."""
    machine = CpuTopology({cpu: LogicalCpu(cpu // 2 * 2, cpu // 6, 0, 1000) for cpu in range(10)})
    options = CpuOptions(prefer_align_cpus_by_uncorecache=True)
    found = [CpuPlan(machine, NO_CPUS, options, profile_named(each)).take(machine.cpus, 3) for each in ("1.33", "1.34")]
    assert list(map(text, found)) == ["6-8", "0-2"]


def test_the_error_of_1_28_has_no_numbers() -> None:
    with pytest.raises(NotEnoughCpusError, match=r"satisfy request, which is unexpected$"):
        CpuPlan(T, NO_CPUS, profile=profile_named("1.28")).take(cpus("0"), 2)
