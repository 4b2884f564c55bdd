"""What is left of a value on a full machine: ancestors' limits, divided protection, CPU floors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile, Effective, desired_tree, workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.contention import memory_limit, quota_milli, with_effective
from plimsoll.rules.explain.explanation import explanation
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, valid_pods


def cgroup(level: str, name: str, *children: Cgroup, cpus: int = 0, stage: Any = "", **files: Any) -> Cgroup:
    listed = tuple(DesiredFile(key.replace("__", "."), value) for key, value in files.items())
    return Cgroup(level, name, f"/{name}", listed, exclusive_cpus=cpus, stage=stage, children=children)


def effective(tree: Cgroup, cpu_milli: int = 4000, shared: int | None = None) -> dict[str, Effective]:
    def each(parent: Cgroup) -> Iterator[tuple[str, Effective]]:
        for child in parent.children:
            assert child.effective is not None
            yield child.name, child.effective
            yield from each(child)

    return dict(each(with_effective(tree, cpu_milli, shared)))


def node(*children: Cgroup, **files: Any) -> Cgroup:
    return cgroup("node", "n", cgroup("pods", "pods", *children, **files))


def test_cpu_floors_follow_the_weights_all_the_way_down() -> None:
    tree = node(
        cgroup("pod", "g", cgroup("container", "g1", cpu__weight=100), cpu__weight=30),
        cgroup(
            "class", "Burstable",
            cgroup("pod", "b", cgroup("container", "b1", cpu__weight=1), cgroup("container", "b2", cpu__weight=3), cpu__weight=5),
            cgroup("pod", "c", cpu__weight=5),
            cpu__weight=9,
        ),
        cgroup("class", "BestEffort", cgroup("pod", "e", cpu__weight=1), cpu__weight=1),
    )  # fmt: skip
    found = {name: each.cpu_floor_milli for name, each in effective(tree).items()}
    # 4000 · 30/40, 9/40, 1/40; then halves of 900; then a quarter and three quarters of 450
    assert found == {
        "pods": 4000,
        "g": 3000,
        "g1": 3000,
        "Burstable": 900,
        "b": 450,
        "c": 450,
        "b1": 112,
        "b2": 337,
        "BestEffort": 100,
        "e": 100,
    }


def test_an_empty_class_weighs_nothing() -> None:
    tree = node(
        cgroup("pod", "g", cpu__weight=1),
        cgroup("class", "Burstable", cpu__weight=99),
        cgroup("class", "BestEffort", cpu__weight=1),
    )
    found = effective(tree)
    assert (found["g"].cpu_floor_milli, found["Burstable"].cpu_floor_milli) == (4000, 0)


def test_init_containers_do_not_run_beside_the_app() -> None:
    """01 §6: one init container at a time, beside the sidecars; afterwards the app beside the sidecars."""
    containers = [
        cgroup("container", "init", stage="init", cpu__weight=30),
        cgroup("container", "side", stage="sidecar", cpu__weight=10),
        cgroup("container", "app", stage="app", cpu__weight=70),
    ]
    found = effective(node(cgroup("pod", "p", *containers, cpu__weight=1)))
    # init: all, the sidecar starts after it; app and sidecar: 70 and 10 of 80
    assert [found[name].cpu_floor_milli for name in ("init", "side", "app")] == [4000, 500, 3500]
    containers[:2] = [containers[1], containers[0]]
    found = effective(node(cgroup("pod", "p", *containers, cpu__weight=1)))
    assert found["init"].cpu_floor_milli == 3000  # 30 of 40: the sidecar is there already


def test_v1_weighs_by_shares() -> None:
    tree = node(cgroup("pod", "a", cpu__shares=1024), cgroup("pod", "b", cpu__shares=3072))
    assert [each.cpu_floor_milli for each in effective(tree).values()] == [4000, 1000, 3000]


def test_a_quota_is_a_ceiling_for_everything_below() -> None:
    inner = cgroup("container", "c", cpu__weight=1, cpu__max="max 100000")
    other = cgroup("container", "d", cpu__weight=1, cpu__max="20000 100000")
    tree = node(cgroup("pod", "p", inner, other, cpu__weight=1, cpu__max="50000 100000"))
    found = effective(tree)
    assert (found["p"].cpu_floor_milli, found["p"].cpu_ceiling_milli, found["p"].cpu_ceiling_from) == (500, 500, "p")
    assert (found["c"].cpu_floor_milli, found["c"].cpu_ceiling_milli, found["c"].cpu_ceiling_from) == (250, 500, "p")
    assert (found["d"].cpu_floor_milli, found["d"].cpu_ceiling_milli, found["d"].cpu_ceiling_from) == (200, 200, "d")


def test_the_lowest_memory_limit_counts_and_of_equals_the_highest() -> None:
    same = cgroup("container", "same", memory__max=100)
    lower = cgroup("container", "lower", memory__max=50)
    found = effective(node(cgroup("pod", "p", same, lower, memory__max=100), memory__max=1000))
    got = {name: (each.memory_limit_bytes, each.memory_limit_from) for name, each in found.items()}
    assert got == {"pods": (1000, "pods"), "p": (100, "p"), "same": (100, "p"), "lower": (50, "lower")}


PROTECTION = [
    ("enough", 400, (100, 300), (100, 300)),
    ("divided by claims", 200, (100, 300), (50, 150)),
    ("nothing above", 0, (100, 300), (0, 0)),
    ("one claims nothing", 200, (0, 300), (0, 200)),
]


@pytest.mark.parametrize(
    ("parent", "claims", "kept"), [row[1:] for row in PROTECTION], ids=[row[0] for row in PROTECTION]
)
@pytest.mark.parametrize("kind", ["min", "low"])
def test_protection_is_capped_and_divided(
    kind: str, parent: int, claims: tuple[int, int], kept: tuple[int, int]
) -> None:
    pods = [cgroup("pod", f"p{i}", **{f"memory__{kind}": claim}) for i, claim in enumerate(claims)]
    found = effective(node(*pods, **{f"memory__{kind}": parent}))
    assert tuple(getattr(found[f"p{i}"], f"memory_{kind}_bytes") for i in range(2)) == kept


QUOTAS = [
    ("none", {}, None),
    ("v2", {"cpu__max": "50000 100000"}, 500),
    ("v2 max", {"cpu__max": "max 100000"}, None),
    ("v1", {"cpu__cfs_quota_us": 50_000, "cpu__cfs_period_us": 200_000}, 250),
    ("v1 unlimited", {"cpu__cfs_quota_us": -1, "cpu__cfs_period_us": 200_000}, None),
    ("v1 without a quota", {"cpu__cfs_period_us": 200_000}, None),
]


@pytest.mark.parametrize(("files", "milli"), [row[1:] for row in QUOTAS], ids=[row[0] for row in QUOTAS])
def test_quota_milli(files: dict[str, Any], milli: float | None) -> None:
    assert quota_milli(cgroup("pod", "p", **files)) == milli


def test_memory_limit_of_either_version() -> None:
    assert memory_limit(cgroup("pod", "p", memory__max=5)) == 5
    assert memory_limit(cgroup("pod", "p", memory__limit_in_bytes=6)) == 6
    assert memory_limit(cgroup("pod", "p")) is None


# --- exclusive CPUs (02 §10) ---


def test_owners_are_out_of_the_contest() -> None:
    """4 CPUs, 2 owned: the owner has its 2, the others share the rest, and may use no more than that."""
    tree = node(
        cgroup("pod", "owner", cgroup("container", "o", cpus=2, cpu__weight=1), cpus=2, cpu__weight=79),
        cgroup("pod", "g", cpu__weight=10),
        cgroup("class", "BestEffort", cgroup("pod", "e", cpu__weight=1), cpu__weight=10),
    )
    found = effective(tree, 4000, 2)
    assert (found["owner"].cpu_floor_milli, found["owner"].cpu_ceiling_milli) == (2000, 2000)
    assert (found["o"].cpu_floor_milli, found["o"].cpu_ceiling_milli) == (2000, 2000)
    assert (found["g"].cpu_floor_milli, found["e"].cpu_floor_milli) == (1000, 1000)
    assert (found["e"].cpu_ceiling_milli, found["e"].cpu_ceiling_from) == (2000, "shared CPUs")


def static_tree(cores: int, *pods: tuple[str, ...]) -> Cgroup:
    config = reading({"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}, profile_named("1.36")).config
    setting = resolved(Machine(cores, 8 << 30, {}), config, profile_named("1.36"))
    works = []
    for index, cpus in enumerate(pods):
        containers = [
            {"name": f"c{cpu}", "image": "i", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}} for cpu in cpus
        ]
        works.append(workload(lean({"metadata": {"name": f"p{index}"}, "spec": {"containers": containers}}), setting))
    return explanation(works, setting).tree


def test_a_container_without_own_cpus_in_an_owners_pod_runs_on_the_shared_ones() -> None:
    """02 §10: everyone else runs on SHARED. Of 4 CPUs A owns 2; B (500m, quota and all) runs on the other 2.

    So the pod, which has no quota, is not limited to A's two CPUs.
    """
    pod = static_tree(4, ("2", "500m")).children[0].children[0]
    assert pod.effective.cpu_ceiling_milli is None or pod.effective.cpu_ceiling_milli >= 2500
    assert [child.effective.cpu_ceiling_milli for child in pod.children] == [2000, 500]


def test_more_cpus_owned_than_there_are() -> None:
    """Pods that can never be on one node together are still explained; no share is negative."""
    tree = static_tree(4, ("3",), ("3",), ("500m",))
    assert min(child.effective.cpu_floor_milli for child in tree.children[0].children) >= 0
    assert min(child.effective.cpu_ceiling_milli or 0 for child in tree.children[0].children) >= 0


# --- properties ---


def checked(cgroup: Cgroup, own: Effective | None) -> Iterator[str]:
    """What a child has of its parent, moment by moment: each init container for itself, then all the others together."""
    moments = [[child] for child in cgroup.children if child.stage == "init"]
    moments.append([child for child in cgroup.children if child.stage != "init"])
    for moment in moments if own is not None else []:
        floors = sum(child.effective.cpu_floor_milli for child in moment if not child.exclusive_cpus)
        if floors > own.cpu_floor_milli and not cgroup.exclusive_cpus:
            yield f"{cgroup.name}: floors of the children {floors}, own {own.cpu_floor_milli}"
        for kind in ("memory_min_bytes", "memory_low_bytes"):
            total = sum(getattr(child.effective, kind) for child in moment)
            if total > getattr(own, kind):
                yield f"{cgroup.name}: {kind} of the children {total}, own {getattr(own, kind)}"
    for child in cgroup.children:
        for kind in ("min", "low"):
            claim = child.value(f"memory.{kind}")
            if getattr(child.effective, f"memory_{kind}_bytes") > (claim if isinstance(claim, int) else 0):
                yield f"{child.name}: more {kind} than it asks for"
    for child in cgroup.children:
        under = child.effective
        if own is not None and own.memory_limit_bytes is not None and under.memory_limit_bytes > own.memory_limit_bytes:
            yield f"{child.name}: a higher memory limit than its parent"
        if (
            own is not None
            and own.cpu_ceiling_milli is not None
            and not child.exclusive_cpus
            and under.cpu_ceiling_milli > own.cpu_ceiling_milli
        ):
            yield f"{child.name}: a higher ceiling than its parent"
        if under.cpu_ceiling_milli is not None and under.cpu_floor_milli > under.cpu_ceiling_milli:
            yield f"{child.name}: the floor is above the ceiling"
        yield from checked(child, under)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(valid_pods(), max_size=4), node_settings(static_cpus=None))
def test_children_never_have_more_than_their_parent(documents: list[Json], setting: NodeConfig) -> None:
    works = [workload(lean(document), setting, title=f"p{index}") for index, document in enumerate(documents)]
    tree = explanation(works, setting).tree
    assert list(checked(tree, None)) == []


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(valid_pods(), min_size=1, max_size=3), node_settings())
def test_nothing_but_effective_changes(documents: list[Json], setting: NodeConfig) -> None:
    works = [workload(lean(document), setting) for document in documents]
    plain = desired_tree(works, setting)
    filled = with_effective(plain, setting.absolute["cpu"].milli)

    def same(before: Cgroup, after: Cgroup) -> None:
        assert (before.path, before.files, before.oom_score_adj) == (after.path, after.files, after.oom_score_adj)
        for left, right in zip(before.children, after.children, strict=True):
            assert right.effective is not None
            same(left, right)

    same(plain, filled)
