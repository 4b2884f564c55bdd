"""What containers own, from the checkpoints of the three managers."""

from __future__ import annotations

import pytest

from plimsoll.codec.kernel.cpu_state import CpuState, cpu_state_json
from plimsoll.codec.kernel.device_state import DeviceEntry, DeviceState, device_state_json
from plimsoll.codec.kernel.memory_state import MemoryState, memory_state_json
from plimsoll.codec.owners import CPU_STATE, DEVICE_STATE, MEMORY_STATE, Owned, owned_in
from plimsoll.errors import PlimsollError
from plimsoll.rules.memorymanager.blocks import Block

CPUS = cpu_state_json(CpuState("static", frozenset({0}), {"u1": {"c": frozenset({1, 2, 5})}}))
MEMORY = memory_state_json(
    MemoryState("Static", {}, {"u1": {"c": (Block((0,), "memory", 64 << 20), Block((0, 1), "hugepages-2Mi", 4 << 20))}})
)
DEVICES = device_state_json(
    DeviceState(
        (DeviceEntry("u1", "c", "x.io/a", {0: ("d2",), 1: ("d1",)}), DeviceEntry("u2", "c", "x.io/a", {0: ("d3",)}))
    )
)


def test_all_three() -> None:
    found = owned_in({CPU_STATE: CPUS, MEMORY_STATE: MEMORY, DEVICE_STATE: DEVICES})
    memory = ("64Mi on NUMA node 0", "4Mi hugepages-2Mi on NUMA nodes 0-1")
    assert found == {
        ("u1", "c"): Owned("1-2,5", memory, {"x.io/a": ("d1", "d2")}),
        ("u2", "c"): Owned(devices={"x.io/a": ("d3",)}),
    }
    assert found["u1", "c"].words() == ["CPUs 1-2,5", *memory, "x.io/a d1 d2"]


def test_nothing() -> None:
    assert owned_in({}) == {}


@pytest.mark.parametrize("name", [CPU_STATE, MEMORY_STATE, DEVICE_STATE])
def test_a_damaged_file(name: str) -> None:
    with pytest.raises(PlimsollError):
        owned_in({name: b"{}"})
