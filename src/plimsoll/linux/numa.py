"""The memory of this machine's NUMA nodes and the distances between them, read from /sys/devices/system/node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.linux.machine import text_or_empty

NODES = Path("/sys/devices/system/node")


class NumaMemory(msgspec.Struct, frozen=True):
    """`memory`: NUMA node → resource → bytes, huge pages by size. `distances`: node → distance to each node."""

    memory: Mapping[int, Mapping[str, int]]
    distances: Mapping[int, tuple[int, ...]]


def this_numa(nodes: Path = NODES) -> NumaMemory:
    memory: dict[int, dict[str, int]] = {}
    distances = {}
    for path in sorted(nodes.glob("node[0-9]*")):
        number = int(path.name.removeprefix("node"))
        total = _total_bytes(text_or_empty(path / "meminfo"))
        if not total:
            continue  # a node of CPUs without memory
        memory[number] = {"memory": total}
        for pages in sorted((path / "hugepages").glob("hugepages-*kB")):
            size = int(pages.name.removeprefix("hugepages-").removesuffix("kB"))
            count = text_or_empty(pages / "nr_hugepages").strip()
            memory[number][f"hugepages-{_binary(size)}"] = int(count or 0) * size * 1024
        distances[number] = tuple(int(word) for word in text_or_empty(path / "distance").split())
    return NumaMemory(memory, distances)


def _total_bytes(meminfo: str) -> int:
    for line in meminfo.splitlines():
        words = line.split()
        if len(words) >= 4 and words[2] == "MemTotal:":  # Node 0 MemTotal: 16 kB
            return int(words[3]) * 1024
    return 0


def _binary(kib: int) -> str:
    for unit, size in (("Gi", 1 << 20), ("Mi", 1 << 10)):
        if kib % size == 0:
            return f"{kib // size}{unit}"
    return f"{kib}Ki"
