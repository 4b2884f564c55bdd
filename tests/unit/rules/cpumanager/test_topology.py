"""The kernel's words about CPUs → which of them share a core, a socket, a NUMA node."""

from __future__ import annotations

import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cpumanager.topology import CpuTexts, CpuTopology, LogicalCpu, details, flat

# Two sockets of two cores with two threads: core ids restart in each socket, CPU numbers go round the cores first.
PACKAGES = {0: "0\n", 1: "1\n", 2: "0\n", 3: "1\n", 4: "0\n", 5: "1\n", 6: "0\n", 7: "1\n"}
SIBLINGS = {cpu: f"{cpu % 4},{cpu % 4 + 4}\n" for cpu in range(8)}
TEXTS = {cpu: CpuTexts(PACKAGES[cpu], SIBLINGS[cpu]) for cpu in range(8)}


def test_two_sockets_with_two_threads_per_core() -> None:
    found = details("0-7\n", TEXTS, {0: "0,2,4,6\n", 1: "1,3,5,7\n"})
    assert found.places[5] == LogicalCpu(core=1, socket=1, numa=1)
    assert found.places[2] == LogicalCpu(core=2, socket=0, numa=0)
    assert (found.threads_per_core, found.sockets, found.numa_nodes) == (2, 2, 2)


ODD = [
    pytest.param("0-1", {}, {}, {0: LogicalCpu(0, 0, 0), 1: LogicalCpu(1, 0, 0)}, id="a kernel that tells nothing"),
    pytest.param("0,2", {0: CpuTexts("-1", "0"), 2: CpuTexts("-1", "2")}, {}, {0: LogicalCpu(0, 0, 0), 2: LogicalCpu(2, 0, 0)}, id="no package known, CPU 1 offline"),
    pytest.param("4-5", {4: CpuTexts("0", "0,4"), 5: CpuTexts("0", "1,5")}, {0: "0-7"}, {4: LogicalCpu(4, 0, 0), 5: LogicalCpu(5, 0, 0)}, id="siblings that are offline"),
]  # fmt: skip


@pytest.mark.parametrize(("online", "texts", "nodes", "places"), ODD)
def test_odd_machines(
    online: str, texts: dict[int, CpuTexts], nodes: dict[int, str], places: dict[int, LogicalCpu]
) -> None:
    assert details(online, texts, nodes) == CpuTopology(places)


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="online is '0-', which is not a list of CPUs"):
        details("0-\n", {}, {})


def test_flat_and_part() -> None:
    assert flat(4).only([2, 1]).cpus == {1, 2}
    assert flat(4).threads_per_core == 1
