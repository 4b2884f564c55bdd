"""Exclusive CPUs: whole parts first, reserved ones never, none twice; the shared pool is the rest (02 §10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from plimsoll.rules.config.manager_options import CpuOptions
from plimsoll.rules.cpumanager.assignment import (
    CpuPlan,
    NotWholeCoresError,
    state_error,
)
from plimsoll.rules.cpumanager.creation import reserved_set
from plimsoll.rules.cpumanager.packing import NotEnoughCpusError, packed
from plimsoll.rules.cpumanager.pools import CpuPools, taken_by
from plimsoll.rules.cpumanager.topology import NO_CPUS, CpuTopology, LogicalCpu, flat
from plimsoll.rules.cpuset import cpu_numbers, cpu_text
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.examples import examples
from tests.unit.rules.cpumanager.machines import assigned_cpus
from tests.unit.strategies import Json, lean

POLICY = NodePolicy(1 << 33, static_cpus=True)


def machine(sockets: int, cores: int, threads: int, numa_per_socket: int = 1) -> CpuTopology:
    """As Linux numbers them: all first threads, then all second ones; cores of socket 0 before those of socket 1."""
    places = {}
    total = sockets * cores
    for cpu in range(total * threads):
        core = cpu % total
        numa = core * numa_per_socket * sockets // total
        places[cpu] = LogicalCpu(core, core // cores, numa)
    return CpuTopology(places)


HT8 = machine(1, 4, 2)  # siblings i, i+4
DUAL = machine(2, 4, 2)  # 16 CPUs; socket 0: 0-3,8-11
NUMA4 = machine(2, 4, 1, numa_per_socket=2)  # 8 CPUs, NUMA nodes of two


def cpus(text: str) -> frozenset[int]:
    return frozenset(cpu_numbers(text) or ())


TAKEN = [
    pytest.param(HT8, "0-7", 2, "0,4", id="a whole core, the lowest (the spec's example)"),
    pytest.param(HT8, "1-3,5-7", 1, "1", id="a single thread"),
    pytest.param(HT8, "2-3,5-7", 1, "5", id="a thread of a core that is in use, before a whole one"),
    pytest.param(HT8, "1-3,5-7", 3, "1-2,5", id="a core and a thread"),
    pytest.param(HT8, "1,3,6-7", 2, "3,7", id="the only whole core"),
    pytest.param(HT8, "1,2,6-7", 2, "2,6", id="a whole core before two halves"),
    pytest.param(HT8, "1-3", 2, "1-2", id="no whole core"),
    pytest.param(HT8, "0-7", 8, "0-7", id="everything"),
    pytest.param(DUAL, "0-15", 8, "0-3,8-11", id="a whole socket"),
    pytest.param(DUAL, "1-3,9-11,4-7,12-15", 8, "4-7,12-15", id="the socket that is whole"),
    pytest.param(DUAL, "0-15", 10, "0-4,8-12", id="a socket and a core of the other"),
    pytest.param(DUAL, "1-3,9-11,4-7,12-15", 2, "1,9", id="a core of the socket that is in use"),
    pytest.param(NUMA4, "0-7", 2, "0-1", id="a whole NUMA node"),
    pytest.param(NUMA4, "1-7", 2, "2-3", id="the first NUMA node that is whole"),
    pytest.param(NUMA4, "1-7", 1, "1", id="one of a NUMA node that is in use"),
    pytest.param(flat(4), "0-3", 0, "", id="none"),
]


@pytest.mark.parametrize(("topology", "available", "count", "expected"), TAKEN)
def test_whole_parts_first(topology: CpuTopology, available: str, count: int, expected: str) -> None:
    assert cpu_text(packed(topology, cpus(available), count)) == expected


def test_not_enough() -> None:
    with pytest.raises(NotEnoughCpusError) as caught:
        packed(HT8, cpus("1,2"), 3)
    assert str(caught.value) == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=3, available=2, which is unexpected"
    )
    assert caught.value.reason == "UnexpectedAdmissionError"


def test_the_reserved_ones() -> None:
    assert reserved_set(CpuPlan(HT8, NO_CPUS), (), 2) == {0, 4}
    assert reserved_set(CpuPlan(HT8, NO_CPUS), (), 1) == {0}
    assert reserved_set(CpuPlan(HT8, NO_CPUS), (3, 7), 2) == {3, 7}


# --- pods ---


def container(name: str, cpu: str, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "64Mi"}}, **more}


def pod(uid: str, *containers: Json, inits: tuple[Json, ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(inits)}
    return defaulted(lean({"metadata": {"uid": uid, "name": uid}, "spec": spec}))


PLAN = CpuPlan(HT8, cpus("0,4"))


def texts(found: dict[str, frozenset[int]]) -> dict[str, str]:
    return {name: cpu_text(each) for name, each in found.items()}


def test_containers_of_one_pod() -> None:
    found = assigned_cpus(pod("a", container("x", "2"), container("y", "500m"), container("z", "1")), {}, PLAN, POLICY)
    assert texts(found) == {"x": "1,5", "z": "2"}
    assert cpu_text(PLAN.pools({"a": found}).shared) == "0,3-4,6-7"
    assert (
        cpu_text(CpuPlan(HT8, cpus("0,4"), CpuOptions(strict_cpu_reservation=True)).pools({"a": found}).shared)
        == "3,6-7"
    )


def test_again_is_the_same() -> None:
    asked = pod("a", container("x", "2"), inits=(container("i", "3"),))
    first = assigned_cpus(asked, {}, PLAN, POLICY)
    assert assigned_cpus(asked, {"a": first}, PLAN, POLICY) == first


INITS = [
    pytest.param((container("i", "2"),), "2", {"i": "1,5", "x": "1,5"}, id="handed on"),
    pytest.param((container("i", "3"),), "2", {"i": "1-2,5", "x": "1,5"}, id="a part is handed on, the rest lies idle"),
    pytest.param((container("i", "1"),), "2", {"i": "1", "x": "1,5"}, id="handed on and added to"),
    pytest.param((container("i", "2"), container("j", "1")), "2", {"i": "1,5", "j": "1", "x": "1,5"}, id="one init after the other"),
    pytest.param((container("s", "2", restartPolicy="Always"),), "2", {"s": "1,5", "x": "2,6"}, id="a sidecar keeps its own"),
    pytest.param((container("i", "2"), container("s", "1", restartPolicy="Always")), "2", {"i": "1,5", "s": "1", "x": "2,6"}, id="a sidecar may take an init's"),
]  # fmt: skip


@pytest.mark.parametrize(("inits", "cpu", "expected"), INITS)
def test_init_containers(inits: tuple[Json, ...], cpu: str, expected: dict[str, str]) -> None:
    assert texts(assigned_cpus(pod("a", container("x", cpu), inits=inits), {}, PLAN, POLICY)) == expected


def owned(**containers: str) -> dict[str, frozenset[int]]:
    return {name: cpus(text) for name, text in containers.items()}


RESIZED = [
    pytest.param("3", {"x": "1"}, {"x": "1-2,6"}, id="grows by a whole core"),
    pytest.param("2", {"x": "1"}, {"x": "1,5"}, id="grows by the other thread of its core"),
    pytest.param("1", {"x": "1-2,6"}, {"x": "1"}, id="shrinks to a part of its own"),
    pytest.param("2", {"x": "1-2,6"}, {"x": "2,6"}, id="keeps the whole core"),
]


@pytest.mark.parametrize(("cpu", "before", "after"), RESIZED)
def test_resizes_keep_what_they_can(cpu: str, before: dict[str, str], after: dict[str, str]) -> None:
    found = assigned_cpus(pod("a", container("x", cpu)), {"a": owned(**before), "b": owned(y="3")}, PLAN, POLICY)
    assert texts(found) == after


def test_one_container_grows_by_what_another_one_of_the_pod_gives_up() -> None:
    taken = {"a": owned(x="1-2,5", y="6"), "b": owned(z="3,7")}
    found = assigned_cpus(pod("a", container("x", "1"), container("y", "3")), taken, PLAN, POLICY)
    assert texts(found) == {"x": "2", "y": "1,5-6"}


FULL = [
    pytest.param("3", "", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", id="no multiple"),
    pytest.param(
        "4",
        "1-2,5-6",
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2",
        id="not enough whole cores",
    ),
]


@pytest.mark.parametrize(("cpu", "taken", "text"), FULL)
def test_full_pcpus_only(cpu: str, taken: str, text: str) -> None:
    plan = CpuPlan(HT8, cpus("0,4"), CpuOptions(full_pcpus_only=True))
    with pytest.raises(NotWholeCoresError) as caught:
        assigned_cpus(pod("a", container("x", cpu)), {"b": {"y": cpus(taken)}}, plan, POLICY)
    assert (caught.value.reason, str(caught.value)) == ("SMTAlignmentError", text)


STATE_ERRORS = [
    pytest.param("0-2,4-7", {"x": "3"}, False, "", id="as it should be"),
    pytest.param("1-7", {"x": "3"}, False, 'not all reserved cpus: "0,4" are present in defaultCpuSet: "1-7"', id="reserved"),
    pytest.param("0-7", {"x": "3"}, False, 'pod: a, container: x cpuset: "3" overlaps with default cpuset "0-7"', id="overlap"),
    pytest.param("0-2,4-6", {"x": "3"}, False, 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-6"', id="another number"),
    pytest.param("0-7", {}, True, 'some of strictly reserved cpus: "0,4" are present in defaultCpuSet: "0-7"', id="strict"),
    pytest.param("1-2,5-7", {"x": "3"}, True, "", id="strict, as it should be"),
    pytest.param("", {"x": "3"}, True, "default cpuset cannot be empty", id="empty"),
    pytest.param("", {"x": "1-3,5-7"}, True, "", id="strict, and every CPU is owned"),
    pytest.param("", {}, True, "", id="fresh"),
]  # fmt: skip


def test_a_kubelet_never_starts_with_an_empty_pool() -> None:
    """CM-28."""
    plan = CpuPlan(HT8, cpus("0,4"), CpuOptions(strict_cpu_reservation=True), profile_named("1.36"))
    assert state_error(plan.pools({"a": owned(x="1-3,5-7")}), plan) == "default cpuset cannot be empty"


@pytest.mark.parametrize(("shared", "entries", "strict", "error"), STATE_ERRORS)
def test_a_state_that_does_not_fit(shared: str, entries: dict[str, str], strict: bool, error: str) -> None:
    plan = CpuPlan(HT8, cpus("0,4"), CpuOptions(strict_cpu_reservation=strict))
    assert state_error(CpuPools({"a": owned(**entries)} if entries else {}, cpus(shared)), plan) == error


# --- for every machine and every sequence of pods ---

machines = st.builds(machine, st.integers(1, 2), st.sampled_from([1, 2, 4]), st.integers(1, 2), st.just(1))
sizes = st.sampled_from(["1", "2", "3", "4", "500m"])
small_pods = st.tuples(st.lists(sizes, min_size=1, max_size=3), st.lists(st.tuples(sizes, st.booleans()), max_size=2))
changes = st.lists(st.tuples(st.integers(0, 4), small_pods, st.booleans()), max_size=12)


@settings(max_examples=examples(150), deadline=None)
@given(machines, st.integers(1, 2), changes, st.booleans(), st.booleans())
def test_properties(topology: CpuTopology, reserve: int, steps: list[Any], strict: bool, full_cores: bool) -> None:
    assume(reserve < len(topology.cpus))
    options = CpuOptions(full_pcpus_only=full_cores, strict_cpu_reservation=strict)
    plan = CpuPlan(topology, reserved_set(CpuPlan(topology, NO_CPUS, options), (), reserve), options)
    taken: dict[str, dict[str, frozenset[int]]] = {}
    sidecars: dict[str, list[bool]] = {}
    for number, (sizes_of, inits_of), leaves in steps:
        uid = f"u{number}"
        if leaves:
            taken.pop(uid, None)
            sidecars.pop(uid, None)
            continue
        if sidecars.setdefault(uid, [each for _, each in inits_of]) != [each for _, each in inits_of]:
            continue  # a pod may change its sizes, not what its containers are
        inits = tuple(
            container(f"i{n}", size, **({"restartPolicy": "Always"} if sidecar else {}))
            for n, (size, sidecar) in enumerate(inits_of)
        )
        asked = pod(uid, *(container(f"c{n}", size) for n, size in enumerate(sizes_of)), inits=inits)
        before = {key: dict(each) for key, each in taken.items()}
        try:
            found = assigned_cpus(asked, taken, plan, POLICY)
        except (NotEnoughCpusError, NotWholeCoresError):
            event("refused")
            assert taken == before
            continue
        event("assigned" if found else "assigned nothing: no exclusive CPUs")
        taken[uid] = found
        # What runs at the same time never shares a CPU: containers and sidecars of a pod, and all pods.
        lasting = [found[f"c{n}"] for n in range(len(sizes_of)) if f"c{n}" in found]
        lasting += [found[f"i{n}"] for n, (_, sidecar) in enumerate(inits_of) if sidecar and f"i{n}" in found]
        assert sum(map(len, lasting)) == len(frozenset().union(*lasting)), found
        others = taken_by({key: each for key, each in taken.items() if key != uid})
        assert not others & taken_by({uid: found})
        assert not plan.reserved & taken_by(taken)
        shared = plan.pools(taken).shared
        assert shared == topology.cpus - taken_by(taken) - (plan.reserved if strict else NO_CPUS)
        assert state_error(CpuPools(taken, shared), plan) == ""
        if full_cores:
            assert all(len(each) % topology.threads_per_core == 0 for each in found.values())


@settings(max_examples=examples(100), deadline=None)
@given(machines, st.data())
def test_a_choice_breaks_as_few_cores_as_can_be(topology: CpuTopology, data: st.DataObject) -> None:
    available = frozenset(data.draw(st.sets(st.sampled_from(sorted(topology.cpus)), min_size=1)))
    count = data.draw(st.integers(0, len(available)))
    taken = packed(topology, available, count)
    assert len(taken) == count and taken <= available
    cores: dict[int, set[int]] = {}
    for cpu in available:
        cores.setdefault(topology.places[cpu].core, set()).add(cpu)
    whole = [each for each in cores.values() if len(each) == topology.threads_per_core]
    used = [each for each in whole if each & taken]
    broken = [each for each in used if not each <= taken]
    assert len(broken) <= 1, "at most one whole core is broken up"
