"""Memory blocks: worked examples 38 to 43 of 07 §9; properties over sequences of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.reserved_memory import ReservedMemory, reserved_by_node, reserved_errors
from plimsoll.rules.memorymanager.allocation import MemoryAllocation, MemoryAssignmentError, finished_inits
from plimsoll.rules.memorymanager.blocks import (
    Blocks,
    Machine,
    fresh_machine,
    numa_text,
    release,
    state_error,
)
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.numa import NO_HINT, Hint, mask_of
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.examples import examples
from tests.unit.strategies import Json, lean

POLICY = NodePolicy(1 << 36)
GI = 1 << 30
HUGE = "hugepages-1Gi"


def container(name: str, gib: int, huge: int = 0, **more: Any) -> Json:
    amounts = {"cpu": "1", "memory": f"{gib}Gi"} | ({HUGE: f"{huge}Gi"} if huge else {})
    return {"name": name, "resources": {"limits": amounts}, **more}


def pod(uid: str, *containers: Json, inits: tuple[Json, ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(inits)}
    return defaulted(lean({"metadata": {"uid": uid, "name": uid}, "spec": spec}))


class Node:
    """A memory manager that keeps what it assigned."""

    def __init__(self, machine: Machine) -> None:
        self.fresh = self.machine = machine
        self.owned: dict[str, dict[str, Blocks]] = {}

    def allocation(self, asked: Pod) -> MemoryAllocation:
        return MemoryAllocation(asked, self.owned, self.machine, POLICY)

    def hints(self, asked: Pod) -> dict[str, str]:
        found = self.allocation(asked).hints(asked.spec.containers[0])
        return {kind: "".join(map(str, hints or ())) for kind, hints in found.items()}

    def add(self, asked: Pod, hint: Hint = NO_HINT) -> dict[str, Blocks]:
        allocation = self.allocation(asked)
        for each in (*asked.spec.init_containers, *asked.spec.containers):
            allocation.allocate(each, hint)
        self.machine, self.owned[asked.metadata.uid] = allocation.machine, allocation.result
        return allocation.result

    def remove(self, uid: str) -> None:
        for blocks in self.owned.pop(uid).values():
            self.machine = release(self.machine, blocks)

    def free(self, kind: str = "memory") -> list[float]:
        return [node.memory[kind].free / GI for node in self.machine.values()]


def node(count: int, huge: int = 0, reserved: int | None = None) -> Node:
    """Nodes of 10Gi with 1Gi reserved on each, or only on node 0."""
    amounts = {"memory": 10 * GI} | ({HUGE: huge * GI} if huge else {})
    withheld = range(count) if reserved is None else range(reserved)
    return Node(fresh_machine(dict.fromkeys(range(count), amounts), {key: {"memory": GI} for key in withheld}))


def hint(*nodes: int, preferred: bool = True) -> Hint:
    return Hint(mask_of(nodes), preferred)


def test_more_reserved_than_memory() -> None:
    """MM-4: 4Gi, 3Gi of them huge pages, and 2Gi reserved leave nothing, not less."""
    machine = fresh_machine({0: {"memory": 4 * GI, HUGE: 3 * GI}}, {0: {"memory": 2 * GI}})
    assert (machine[0].memory["memory"].allocatable, machine[0].memory[HUGE].free) == (0, 3 * GI)


def test_38() -> None:
    two = node(2, huge=2)
    assert (two.free(), two.free(HUGE)) == ([7, 7], [2, 2])
    first = pod("a", container("c", 4))
    assert two.hints(first) == {"memory": "{[0] T}{[1] T}{[0 1] F}"}
    assert two.add(first)["c"][0].nodes == (0,)
    assert two.hints(pod("b", container("c", 8))) == {}
    with pytest.raises(MemoryAssignmentError) as caught:
        two.add(pod("b", container("c", 8)))
    assert (caught.value.reason, str(caught.value)) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough "
        "memory is available, which is unexpected",
    )
    third = pod("c", container("c", 5, huge=1))
    assert two.hints(third) == {"memory": "{[1] T}", HUGE: "{[1] T}"}
    two.add(third)
    assert two.machine[1].assignments == 2
    assert two.hints(pod("d", container("c", 3))) == {"memory": "{[0] T}"}


def test_39_groups() -> None:
    two = node(2)
    first, second = pod("a", container("c", 12)), pod("b", container("c", 2))
    assert two.hints(first) == {"memory": "{[0 1] T}"}
    two.add(first)
    assert [each.memory["memory"].reserved / GI for each in two.machine.values()] == [9, 3]
    assert [each.cells for each in two.machine.values()] == [(0, 1), (0, 1)]
    assert two.hints(second) == {"memory": "{[0 1] F}"}
    with pytest.raises(MemoryAssignmentError, match="failed to find the default preferred hint"):
        two.add(second, Hint(None, preferred=True))
    assert numa_text(two.add(second)["c"]) == "0,1"
    two.remove("a")
    two.remove("b")
    assert ([each.cells for each in two.machine.values()], two.free()) == ([(0,), (1,)], [9, 9])


def test_40_extension() -> None:
    four = node(4, reserved=1)
    assert four.add(pod("a", container("c", 12)), hint(1, preferred=False))["c"][0].nodes == (0, 1)
    with pytest.raises(MemoryAssignmentError, match="failed to find NUMA nodes to extend the current topology hint"):
        four.add(pod("b", container("c", 10)), hint(0))
    assert four.add(pod("c", container("c", 10)), hint(2))["c"][0].nodes == (2,)
    with pytest.raises(MemoryAssignmentError, match="preferred hint violates NUMA node allocation"):
        four.add(pod("d", container("c", 1)), hint(2, 3))


def test_41_init_containers() -> None:
    one, free = node(1), []
    asked = pod("a", container("x", 3), container("y", 2), inits=(container("i", 4), container("j", 2)))
    allocation = one.allocation(asked)
    for each in (*asked.spec.init_containers, *asked.spec.containers):
        allocation.allocate(each)
        free.append(allocation.machine[0].memory["memory"].free / GI)
    assert free == [5, 5, 5, 4]
    assert [allocation.result[name][0].size / GI for name in "ijxy"] == [0, 0, 3, 2]
    assert allocation.machine[0].assignments == 4
    assert finished_inits(asked, "x", allocation.result) == ("i", "j")
    after = allocation.machine
    for name in ("i", "j"):
        after = release(after, allocation.result[name])
    assert after[0].assignments == 2


def test_42_full() -> None:
    two = node(2)
    two.add(pod("a", container("c", 8)))
    two.add(pod("b", container("c", 8)))
    assert two.hints(pod("c", container("c", 2))) == {}
    with pytest.raises(MemoryAssignmentError, match="no NUMA nodes with enough memory is available"):
        two.add(pod("c", container("c", 2)))


def amounts(**limits: str) -> Mapping[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in limits.items()}


def test_43_reserved_memory() -> None:
    expected = amounts(memory="1124Mi")
    found = reserved_by_node(
        [ReservedMemory(0, amounts(memory="1Gi")), ReservedMemory(1, amounts(memory="100Mi"))], (0, 1), expected
    )
    assert found == {0: {"memory": GI}, 1: {"memory": 100 << 20}}
    with pytest.raises(InvalidConfigError) as caught:
        reserved_by_node([ReservedMemory(0, amounts(memory="1Gi"))], (0, 1), expected)
    assert caught.value.reason == (
        'the total amount "1Gi" of type "memory" is not equal to the value "1124Mi" determined by Node Allocatable '
        "feature"
    )
    with pytest.raises(InvalidConfigError, match="references a NUMA node 5 that does not exist on this machine"):
        reserved_by_node([ReservedMemory(5, amounts(memory="1124Mi"))], (0, 1), expected)
    with pytest.raises(InvalidConfigError, match="you should specify the system reserved memory"):
        reserved_by_node([], (0, 1), {})


@pytest.mark.parametrize(
    ("reserved", "expected", "text"),
    [
        (["1500m"], "2", 'the total amount "1500m" of type "memory" is not equal to the value "2" determined'),
        (["1500m"], "1500m", "could not covert a variable of type Quantity to int64"),
        (["1Gi", "1073741824"], "1024Mi", 'the total amount "2147483648" of type "memory" is not equal to the value "1Gi"'),
        (["1073741824", "1Gi"], "1024Mi", 'the total amount "2Gi" of type "memory" is not equal to the value "1Gi"'),
    ],
)  # fmt: skip
def test_reserved_memory_in_the_words_of_a_kubelet(reserved: list[str], expected: str, text: str) -> None:
    """MM-3: amounts are compared exactly, and printed in the format of the last entry. Answers of 1.36.4."""
    entries = [ReservedMemory(number, amounts(memory=each)) for number, each in enumerate(reserved)]
    with pytest.raises(InvalidConfigError) as caught:
        reserved_by_node(entries, (0, 1), amounts(memory=expected))
    assert caught.value.reason.startswith(text)


def test_reserved_memory_itself() -> None:
    entries = [
        ReservedMemory(0, amounts(cpu="1", memory="0")),
        ReservedMemory(0, amounts(memory="1Gi")),
    ]
    assert [error.reason for error in reserved_errors(entries)] == [
        'invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory '
        "hugepages-<HugePageSize>] is accepted",
        'invalid configuration: reserved memory may not be zero for NUMA node 0 and resource "memory"',
        'invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "memory"',
    ]


def test_only_guaranteed_pods() -> None:
    asked = pod("a", {"name": "c", "resources": {"requests": {"memory": "1Gi"}}})
    assert node(2).hints(asked) == {}
    assert node(2).add(asked) == {}


def test_hints_after_a_restart() -> None:
    two = node(2)
    asked = pod("a", container("c", 4))
    two.add(asked)
    assert two.hints(asked) == {"memory": "{[0] T}"}
    assert two.hints(pod("a", container("c", 5))) == {}  # another size: no preference
    many = pod("b", container("c", 2), container("d", 2))
    two.add(many)
    assert two.allocation(many).pod_hints() == {}  # the first container against the whole pod (MM-8)


# --- for every sequence of pods ---

sizes = st.integers(1, 12)
steps = st.lists(
    st.tuples(st.integers(0, 3), st.lists(sizes, min_size=1, max_size=2), st.lists(sizes, max_size=2), st.booleans()),
    max_size=10,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 3), steps, st.sampled_from([0, 2]))
def test_properties(count: int, lives: list[Any], huge: int) -> None:
    machine = node(count, huge=huge)
    for number, apps, inits, leaves in lives:
        uid = f"u{number}"
        if uid in machine.owned:
            if leaves:
                machine.remove(uid)
            continue
        asked = pod(
            uid,
            *(container(f"c{n}", size, huge and n) for n, size in enumerate(apps)),
            inits=tuple(container(f"i{n}", size) for n, size in enumerate(inits)),
        )
        before = machine.machine
        try:
            machine.add(asked)
        except MemoryAssignmentError:
            event("refused")
            assert machine.machine is before
            continue
        event("assigned")
        for each in machine.machine.values():
            for table in each.memory.values():
                assert table.free + table.reserved == table.allocatable and table.free >= 0
        blocks = [each for mine in machine.owned.values() for own in mine.values() for each in own]
        for kind in ("memory", HUGE):
            reserved = sum(each.memory[kind].reserved for each in machine.machine.values() if kind in each.memory)
            assert reserved == sum(each.size for each in blocks if each.type == kind)
        assert state_error(machine.machine, machine.owned, machine.fresh) == ""
    for uid in list(machine.owned):
        machine.remove(uid)
    assert machine.machine == machine.fresh
