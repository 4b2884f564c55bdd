"""CPUs that the allocators of real releases take from random machines (CM-11 to CM-13).

`real_allocators.jsonl.gz` has one answer per line: `release`; `cpus`: number, core, socket, NUMA node and cache of each;
`available`; `count`; `group`: with `distribute-cpus-across-numa`, the size in which CPUs are given out, otherwise null;
`align`, `spread`, `uncore`: options align-by-socket, distribute-cpus-across-cores, prefer-align-cpus-by-uncorecache;
`taken`: the CPUs, or the release's error.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

from plimsoll.rules.cpumanager.distribution import DistributionError, distributed
from plimsoll.rules.cpumanager.packing import NotEnoughCpusError, packed
from plimsoll.rules.cpumanager.topology import CpuTopology, LogicalCpu
from plimsoll.rules.profile import profile_named
from tests.unit.rules.cpumanager.machines import cpus, text
from tests.unit.strategies import Json

SAMPLE = Path(__file__).with_name("real_allocators.jsonl.gz")


def taken(asked: Json) -> str:
    machine = CpuTopology({cpu: LogicalCpu(*place) for cpu, *place in asked["cpus"]})
    available, count, group = cpus(asked["available"]), asked["count"], asked["group"]
    capped = profile_named(asked["release"]).distribution_by_socket
    try:
        if group is None:
            return text(packed(machine, available, count, spread=asked["spread"], by_uncore=asked["uncore"]))
        by_socket = capped and asked["align"]
        return text(distributed(machine, available, count, group, capped=capped, by_socket=by_socket))
    except (DistributionError, NotEnoughCpusError) as error:
        return str(error).removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")


def test_every_answer() -> None:
    with gzip.open(SAMPLE, "rt") as lines:
        answers = [json.loads(line) for line in lines]
    assert min(Counter(each["release"] for each in answers).values()) >= 200
    for each in answers:
        assert taken(each) == each["taken"], each
