"""The static policy: worked examples 20 to 29 of 07 §9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.cpumanager.assignment import (
    CpuAllocation,
    CpuPlan,
    NotWholeCoresError,
    cpu_hints,
)
from plimsoll.rules.cpumanager.creation import reserved_set
from plimsoll.rules.cpumanager.packing import NotEnoughCpusError
from plimsoll.rules.cpumanager.pools import taken_by
from plimsoll.rules.cpumanager.topology import NO_CPUS, CpuTopology, LogicalCpu
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.numa import Hint, mask_of
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.exclusive_cpus import pod_exclusive_cpus
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.unit.rules.cpumanager.machines import D, M, T, assigned_cpus, cpus, plan, text
from tests.unit.strategies import Json, lean

POLICY = NodePolicy(1 << 33, static_cpus=True)


def container(name: str, cpu: int, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": {"cpu": str(cpu), "memory": "64Mi"}}, **more}


def pod(uid: str, *sizes: int, inits: tuple[Json, ...] = ()) -> Pod:
    spec = {"containers": [container(f"c{n}", size) for n, size in enumerate(sizes)], "initContainers": list(inits)}
    return defaulted(lean({"metadata": {"uid": uid, "name": uid}, "spec": spec}))


def near(asked: CpuPlan, taken: dict[str, dict[str, frozenset[int]]], size: int, *nodes: int) -> frozenset[int]:
    """CPUs for a new pod with one container and a stored hint."""
    allocation = CpuAllocation(new := pod(f"u{len(taken)}", size), asked.pools(taken), asked, POLICY)
    allocation.allocate(new.spec.containers[0], Hint(mask_of(nodes), preferred=True))
    taken[new.metadata.uid] = allocation.result
    return allocation.result["c0"]


@pytest.mark.parametrize(
    ("count", "reserved", "physical"), [(1, "0", "0,4"), (2, "0,4", "0,4"), (3, "0-1,4", "0-1,4-5")]
)
def test_20_reserved(count: int, reserved: str, physical: str) -> None:
    found = reserved_set(plan(T), (), count)
    assert (text(found), text(CpuPlan(T, found).reserved_physical)) == (reserved, physical)
    assert text(plan(T, "0,4", strict_cpu_reservation=True).pools({}).shared) == "1-3,5-7"
    assert text(reserved_set(plan(T, distribute_cpus_across_cores=True), (), 2)) == "0-1"  # 9, CM-5


def test_21_init_containers() -> None:
    asked, machine = pod("a", 2, 3, inits=(container("i", 4), container("j", 2))), plan(T, "0,4")
    found = assigned_cpus(asked, {}, machine, POLICY)
    assert [text(found[name]) for name in ("i", "j", "c0", "c1")] == ["1-2,5-6", "1,5", "1,5", "2-3,6"]
    assert text(machine.pools({"a": found}).shared) == "0,4,7"


def test_22_sidecars() -> None:
    inits = (container("i", 2), container("s", 1, restartPolicy="Always"), container("j", 3))
    asked, machine = pod("a", 2, inits=inits), plan(T, "0,4")
    found = assigned_cpus(asked, {}, machine, POLICY)
    assert [text(found[name]) for name in ("i", "s", "j", "c0")] == ["1,5", "1", "2,5-6", "2,6"]
    assert text(machine.pools({"a": found}).shared) == "0,3-4,7"
    assert pod_exclusive_cpus(asked, "Guaranteed", POLICY) == 4
    rest = {name: each for name, each in found.items() if name not in ("i", "c0")}
    assert taken_by({"a": rest}) == taken_by({"a": found})  # removing these two frees nothing


def test_23_whole_cores_only() -> None:
    machine = plan(T, "0", full_pcpus_only=True)
    with pytest.raises(NotWholeCoresError, match="requested 3 cpus not multiple cpus per core = 2"):
        assigned_cpus(pod("a", 3), {}, machine, POLICY)
    first = assigned_cpus(pod("a", 4), {}, machine, POLICY)
    assert text(first["c0"]) == "1-2,5-6"
    few = "available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2"
    with pytest.raises(NotWholeCoresError, match=few):
        assigned_cpus(pod("b", 4), {"a": first}, machine, POLICY)
    with pytest.raises(NotWholeCoresError, match=few):  # after a restart; fixed in 1.37
        assigned_cpus(pod("a", 4), {"a": first}, machine, POLICY)
    for profile in ("documents", "1.37"):
        kept = msgspec.structs.replace(machine, profile=profile_named(profile))
        assert assigned_cpus(pod("a", 4), {"a": first}, kept, POLICY) == first


def test_23_the_text_of_1_27() -> None:
    machine = CpuPlan(T, cpus("0"), plan(T, full_pcpus_only=True).options, profile_named("1.27"))
    with pytest.raises(NotWholeCoresError, match="requested 2 cpus not multiple cpus per core = 2"):
        machine.check_whole_cores(2, NO_CPUS)


def test_24_too_few() -> None:
    with pytest.raises(NotEnoughCpusError) as caught:
        assigned_cpus(pod("a", 7), {}, plan(T, "0,4"), POLICY)
    assert (caught.value.reason, str(caught.value)) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to not enough cpus available to satisfy request: requested=7, available=6, "
        "which is unexpected",
    )


def test_25_the_mask_does_not_confine() -> None:
    taken: dict[str, dict[str, frozenset[int]]] = {}
    machine = plan(D, "0")
    assert text(near(machine, taken, 2, 1)) == "1,7"
    assert text(near(machine, taken, 7, 1)) == "2-3,5-6,8-9,11"


def test_25_too_few_beside_the_mask() -> None:
    """CM-14: CPUs of the mask's nodes are taken first; the error counts only what is missing then."""
    with pytest.raises(NotEnoughCpusError, match="requested=7, available=6,"):
        near(plan(D, "0"), {}, 12, 0)
    with pytest.raises(NotEnoughCpusError, match="requested=12, available=11,"):
        assigned_cpus(pod("a", 12), {}, plan(D, "0"), POLICY)


def test_a_socket_counts_as_free_by_the_average() -> None:
    """CM-2, CM-14: nodes of 6, 2, 2, 2 CPUs, sockets of 8 and 4, so 6 on average: a hint of nodes 0 and 3 offers 6
    CPUs of socket 0, which is taken as a whole, node 1 included."""
    sizes = {0: (0, 6), 1: (6, 8), 2: (8, 10), 3: (10, 12)}
    machine = CpuTopology(
        {cpu: LogicalCpu(cpu // 2 * 2, node // 2, node) for node, span in sizes.items() for cpu in range(*span)}
    )
    assert text(near(plan(machine, "8-9"), {}, 8, 0, 3)) == "0-7"
    taken = {"x": {"c0": cpus("7")}}  # … with the CPU of another container, in `documents` without it
    assert text(near(plan(machine, "8-9"), dict(taken), 8, 0, 3)) == "0-7"
    assert text(near(CpuPlan(machine, cpus("8-9")), taken, 8, 0, 3)) == "0-5,10-11"


def test_26_align_by_socket() -> None:
    assert text(near(plan(M, "0,16", align_by_socket=True), {}, 10, 0)) == "1,4-7,17,20-23"
    assert text(near(plan(M, "0,16"), {}, 10, 0)) == "1-5,17-21"


def test_27_whole_cores_across_nodes() -> None:
    machine, taken = plan(M, "0", full_pcpus_only=True, distribute_cpus_across_numa=True), {}
    first = assigned_cpus(pod("a", 10), taken, machine, POLICY)
    assert text(first["c0"]) == "4-6,8-9,20-22,24-25"
    assert text(assigned_cpus(pod("b", 2), {"a": first}, machine, POLICY)["c0"]) == "12,28"


def hints(machine: CpuPlan, count: int, reusable: str = "", taken: str = "") -> str:
    available = machine.assignable(machine.pools({"x": {"y": cpus(taken)}})) - cpus(reusable)
    return "".join(map(str, cpu_hints(machine, available, cpus(reusable), count)))


@pytest.mark.parametrize(
    ("count", "reusable", "expected"),
    [
        (2, "", "{[0] T}{[1] T}{[0 1] F}"),
        (6, "", "{[1] T}{[0 1] F}"),
        (7, "", "{[0 1] T}"),
        (12, "", ""),
        (2, "1,7", "{[1] T}{[0 1] F}"),
    ],
)
def test_28_hints(count: int, reusable: str, expected: str) -> None:
    assert hints(plan(D, "0"), count, reusable) == expected


def test_29_hints_by_socket() -> None:
    machine = plan(M, "0,16", align_by_socket=True)
    preferred = {count: [str(each) for each in cpu_hints(machine, machine.assignable(machine.pools({})), NO_CPUS, count) if each.preferred] for count in (4, 10)}  # fmt: skip
    assert preferred[4] == ["{[0] T}", "{[1] T}", "{[2] T}", "{[3] T}", "{[0 1] T}", "{[2 3] T}"]
    assert preferred[10] == ["{[0 1] T}", "{[0 2] T}", "{[0 3] T}", "{[1 2] T}", "{[1 3] T}", "{[2 3] T}"]


def test_hints_of_a_container_that_has_its_cpus() -> None:
    machine, taken = plan(D, "0"), {"a": {"c0": cpus("1,7")}}
    same, other = pod("a", 2), pod("a", 4)
    assert [str(each) for each in CpuAllocation(same, machine.pools(taken), machine, POLICY).hints(same.spec.containers[0])["cpu"] or ()] == ["{[1] T}", "{[0 1] F}"]  # fmt: skip
    assert CpuAllocation(other, machine.pools(taken), machine, POLICY).hints(other.spec.containers[0]) == {"cpu": ()}
    assert CpuAllocation(other, machine.pools(taken), machine, POLICY).pod_hints() == {"cpu": ()}
    small = pod("b", 0)
    assert CpuAllocation(small, machine.pools(taken), machine, POLICY).hints(small.spec.containers[0]) == {}
