"""Topologies from `lscpu -J`, `lscpu -J -e`, a Node, and the own form."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.kernel.topology_file import topology_from
from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cpumanager.topology import LogicalCpu

EXTENDED = [
    {"cpu": cpu, "node": 0 if cpu % 4 < 2 else 1, "socket": 0, "core": cpu % 4, "l1d:l1i:l2:l3": f"{cpu}:{cpu}:{cpu}:7"}
    for cpu in range(8)
]


def test_each_cpu() -> None:
    found = topology_from({"cpus": [*EXTENDED, {"cpu": 8, "online": False}]})
    assert found.cpus.places[6] == LogicalCpu(2, 0, 1, 7)
    assert (len(found.cpus.cpus), found.cpus.threads_per_core, found.cpus.numa_nodes) == (8, 2, 2)


def test_a_summary() -> None:
    fields = {
        "On-line CPU(s) list:": "0-7",
        "Thread(s) per core:": "2",
        "Socket(s):": "2",
        "NUMA node0 CPU(s):": "0,1,4,5",
        "NUMA node1 CPU(s):": "2,3,6,7",
    }
    nested = [
        {"field": "CPU(s):", "data": "8", "children": [{"field": name, "data": text} for name, text in fields.items()]}
    ]
    found = topology_from({"lscpu": nested})
    assert found.cpus.places[6] == LogicalCpu(2, 1, 1)
    assert found.notes


def test_a_node() -> None:
    node = {
        "kind": "Node",
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "example.com/gpu": "2", "pods": "110"}},
    }
    found = topology_from(node)
    assert (len(found.cpus.cpus), found.memory, list(found.devices["example.com/gpu"])) == (4, {0: {"memory": 1 << 33}}, ["0", "1"])  # fmt: skip


def test_the_own_form() -> None:
    devices = {"example.com/gpu": [{"id": "a", "nodes": [1]}, {"id": "b", "healthy": False}]}
    found = topology_from(
        {"cpus": EXTENDED, "memory": {"0": {"memory": "8Gi"}}, "distances": {"0": [10, 21]}, "devices": devices}
    )
    assert found.memory == {0: {"memory": 1 << 33}}
    assert found.distances == {0: (10, 21)}
    assert found.devices["example.com/gpu"]["a"].nodes == (1,)
    assert not found.devices["example.com/gpu"]["b"].healthy


WRONG: list[tuple[Any, str]] = [
    ([], "must be an object"),
    ({}, "cpus: required"),
    ({"cpus": []}, "at least one CPU"),
    ({"cpus": [{"cpu": "x"}]}, r"cpus\[0\].cpu: must be a whole number"),
    ({"cpus": [{"cpu": -1}]}, r"cpus\[0\].cpu: must be a whole number"),
    ({"lscpu": []}, "On-line"),
    ({"cpus": [{"cpu": 0}], "memory": {"0": {"memory": "much"}}}, r"memory\[0\]\[memory\]"),
    ({"cpus": [{"cpu": 0}], "devices": {"gpu": []}}, r"devices\[gpu\]"),
    ({"kind": "Node"}, r"status.capacity\[cpu\]"),
]


@pytest.mark.parametrize(("document", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_is_wrong_is_named(document: Any, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        topology_from(document)
