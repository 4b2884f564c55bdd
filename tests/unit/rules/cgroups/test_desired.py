"""The tree of cgroups: the whole-node example of spec 02 §4.7, cell by cell, and how values hang together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.cgroups.desired import Cgroup, defaulted_on, desired_tree, workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.node.node_config import Machine, NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.cpu import shares, weight_linear
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, plain_pods, valid_pods

UIDS = {name: f"{name}0000000-0000-4000-8000-000000000000" for name in "GBE"}
BLOCKS = {
    "G": {"limits": {"cpu": "1", "memory": "200Mi"}},
    "B": {"requests": {"cpu": "250m", "memory": "300Mi"}, "limits": {"cpu": "500m", "memory": "400Mi"}},
    "E": {},
}
SEED = {"systemReserved": {"cpu": "2", "memory": "4Gi", "pid": "768"}, "evictionHard": {"memory.available": "500Mi"}}


def pod(name: str, block: Json, uid: str = "") -> Json:
    return {
        "metadata": {"name": name, "uid": uid},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": block}]},
    }


def setting_of(
    document: Json | None = None, profile: str = "1.36", machine: Machine | None = None, **options: Any
) -> NodeConfig:
    machine = machine or Machine(48, 263192560 * 1024, {}, pid_capacity=32768, name="n")
    return resolved(machine, reading(document, profile_named(profile)).config, profile_named(profile), **options)


def tree_of(setting: NodeConfig, *documents: Json) -> Cgroup:
    return desired_tree([workload(lean(each), setting) for each in documents], setting)


def cgroups(tree: Cgroup) -> Iterator[Cgroup]:
    yield tree
    for child in tree.children:
        yield from cgroups(child)


def by_path(tree: Cgroup) -> dict[str, Cgroup]:
    return {cgroup.path: cgroup for cgroup in cgroups(tree)}


def values(cgroup: Cgroup) -> dict[str, Any]:
    found = {file.name: file.value for file in cgroup.files}
    return found if cgroup.oom_score_adj is None else {**found, "oom_score_adj": cgroup.oom_score_adj}


def seed_tree(version: int, driver: str, **gates: bool) -> Cgroup:
    document = {**SEED, "featureGates": gates, "failCgroupV1": False}
    pods = [pod(name, block, UIDS[name]) for name, block in BLOCKS.items()]
    return tree_of(setting_of(document, cgroup_version=version, driver=driver), *pods)


def slice_of(name: str) -> str:
    uid = UIDS[name].replace("-", "_")
    return {
        "G": f"/kubepods.slice/kubepods-pod{uid}.slice",
        "B": f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice",
        "E": f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice",
    }[name]


def container_of(name: str) -> str:
    return slice_of(name) + "/cri-containerd-<id>.scope"


# 02 §4.7; a file that is left at the kernel's default (`max`) is not written, so not there.
V2 = [
    ("kubepods.slice", "/kubepods.slice", {"cpu.weight": 1797, "memory.max": 265214214144, "pids.max": 32000}),
    ("kubepods-burstable.slice", "/kubepods.slice/kubepods-burstable.slice", {"cpu.weight": 10}),
    ("kubepods-besteffort.slice", "/kubepods.slice/kubepods-besteffort.slice", {"cpu.weight": 1}),
    ("G pod", slice_of("G"), {"cpu.weight": 39, "cpu.max": "100000 100000", "memory.max": 209715200}),
    ("G container", container_of("G"), {"cpu.weight": 100, "cpu.max": "100000 100000", "memory.max": 209715200, "memory.swap.max": 0,
     "memory.oom.group": 1, "oom_score_adj": -997}),
    ("B pod", slice_of("B"), {"cpu.weight": 10, "cpu.max": "50000 100000", "memory.max": 419430400}),
    ("B container", container_of("B"), {"cpu.weight": 35, "cpu.max": "50000 100000", "memory.max": 419430400, "memory.swap.max": 0,
     "memory.oom.group": 1, "oom_score_adj": 999}),
    ("E pod", slice_of("E"), {"cpu.weight": 1}),
    ("E container", container_of("E"), {"cpu.weight": 1, "cpu.max": "max 100000", "memory.swap.max": 0, "memory.oom.group": 1,
     "oom_score_adj": 1000}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "expected"), [row[1:] for row in V2], ids=[f"02 §4.7 v2 systemd {row[0]}" for row in V2]
)
def test_whole_node_v2(path: str, expected: dict[str, Any]) -> None:
    assert values(by_path(seed_tree(2, "systemd"))[path]) == expected


V1 = [
    ("kubepods", "/kubepods", {"cpu.shares": 47104, "memory.limit_in_bytes": 265214214144, "pids.max": 32000}),
    ("burstable", "/kubepods/burstable", {"cpu.shares": 256}),
    ("besteffort", "/kubepods/besteffort", {"cpu.shares": 2}),
    ("G pod", f"/kubepods/pod{UIDS['G']}", {"cpu.shares": 1024, "cpu.cfs_quota_us": 100000, "cpu.cfs_period_us": 100000,
     "memory.limit_in_bytes": 209715200}),
    ("G container", f"/kubepods/pod{UIDS['G']}/<id>", {"cpu.shares": 1024, "cpu.cfs_quota_us": 100000, "cpu.cfs_period_us": 100000,
     "memory.limit_in_bytes": 209715200, "memory.memsw.limit_in_bytes": 209715200, "oom_score_adj": -997}),
    ("B pod", f"/kubepods/burstable/pod{UIDS['B']}", {"cpu.shares": 256, "cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000,
     "memory.limit_in_bytes": 419430400}),
    ("B container", f"/kubepods/burstable/pod{UIDS['B']}/<id>", {"cpu.shares": 256, "cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000,
     "memory.limit_in_bytes": 419430400, "memory.memsw.limit_in_bytes": 419430400, "oom_score_adj": 999}),
    ("E pod", f"/kubepods/besteffort/pod{UIDS['E']}", {"cpu.shares": 2}),
    ("E container", f"/kubepods/besteffort/pod{UIDS['E']}/<id>", {"cpu.shares": 2, "cpu.cfs_period_us": 100000, "oom_score_adj": 1000}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "expected"), [row[1:] for row in V1], ids=[f"02 §4.7 v1 cgroupfs {row[0]}" for row in V1]
)
def test_whole_node_v1(path: str, expected: dict[str, Any]) -> None:
    """−1 where v2 says max: the kernel's own value, so the file is absent (02 §4.3: 0 is not written)."""
    assert values(by_path(seed_tree(1, "cgroupfs"))[path]) == expected


def test_whole_node_with_memory_qos() -> None:
    """02 §4.7: B's container gets memory.high 408944640, the others none; None resets min and low."""
    found = by_path(seed_tree(2, "systemd", MemoryQoS=True))
    got = {name: found[container_of(name)].value("memory.high") for name in "GBE"}
    assert got == {"G": None, "B": 408944640, "E": None}
    assert {found[container_of(name)].value("memory.min") for name in "GBE"} == {0}


def test_worked_tiered_pods() -> None:
    """02 §6.2, worked: every level."""
    document = {"featureGates": {"MemoryQoS": True}, "memoryReservationPolicy": "TieredReservation"}
    blocks = (
        {"limits": {"cpu": "1", "memory": "2Gi"}},
        {"requests": {"memory": "300Mi"}},
        {"requests": {"memory": "1Gi"}},
        {},
    )
    tree = tree_of(setting_of(document), *(pod(f"p{i}", block, f"u{i}") for i, block in enumerate(blocks)))
    found = by_path(tree)
    assert found["/kubepods"].value("memory.min") == 3535798272
    assert found["/kubepods"].value("memory.low") is None
    assert found["/kubepods/burstable"].value("memory.low") == 1388314624
    assert found["/kubepods/podu0"].value("memory.min") == 2147483648
    assert found["/kubepods/burstable/podu1"].value("memory.low") == 314572800
    assert found["/kubepods/burstable/podu2"].value("memory.low") == 1073741824
    assert {found["/kubepods/besteffort/podu3"].value(name) for name in ("memory.min", "memory.low")} == {None}


def test_255m_under_systemd() -> None:
    """02 §2.3: rounded up to a whole percent at pod and container level."""
    document = pod("p", {"limits": {"cpu": "255m", "memory": "1Gi"}}, "u")
    for driver, text in (("systemd", "26000 100000"), ("cgroupfs", "25500 100000")):
        tree = tree_of(setting_of(driver=driver), document)
        assert {file.value for cgroup in cgroups(tree) for file in cgroup.files if file.name == "cpu.max"} == {text}


def test_reserved_cgroups() -> None:
    """01 §10.4."""
    document = {
        "systemReserved": {"cpu": "1", "memory": "1Gi", "pid": "100"},
        "kubeReserved": {"cpu": "500m", "memory": "1Gi"},
        "systemReservedCgroup": "/system.slice",
        "kubeReservedCgroup": "/kube.slice",
        "enforceNodeAllocatable": ["pods", "system-reserved", "kube-reserved-compressible"],
        "featureGates": {"MemoryQoS": True},
    }
    found = by_path(tree_of(setting_of(document)))
    assert values(found["/system.slice"]) == {
        "cpu.weight": 39,
        "memory.max": 1 << 30,
        "memory.min": 1 << 30,
        "pids.max": 100,
    }
    assert values(found["/kube.slice"]) == {"cpu.weight": 20}


def test_hugetlb_at_every_level() -> None:
    """02 §7: 2^62 above pods; the pod's requests, 0 for host sizes it does not name; containers every host size."""
    machine = Machine(4, 8 << 30, {"hugepages-2Mi": parse("64Mi"), "hugepages-1Gi": parse("1Gi")})
    document = pod("p", {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}, "u")
    found = by_path(tree_of(setting_of(machine=machine), document))
    for path in ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort"):
        assert [found[path].value(f"hugetlb.{size}.max") for size in ("2MB", "1GB")] == [1 << 62, 1 << 62]
    assert [found["/kubepods/podu"].value(f"hugetlb.{size}.max") for size in ("2MB", "1GB")] == [4 << 20, 0]
    assert [found["/kubepods/podu/<id>"].value(f"hugetlb.{size}.max") for size in ("2MB", "1GB")] == [4 << 20, 0]


def test_without_uid_and_id_the_path_says_so() -> None:
    paths = by_path(tree_of(setting_of(), pod("p", {})))
    assert "/kubepods/besteffort/pod<uid>/<id>" in paths


def test_a_node_without_pods() -> None:
    (kubepods,) = tree_of(setting_of()).children
    assert [child.name for child in kubepods.children] == ["Burstable", "BestEffort"]
    assert [child.value("cpu.weight") for child in kubepods.children] == [1, 1]


# --- properties ---


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(valid_pods(), max_size=3), node_settings(static_cpus=None))
def test_shape(documents: list[Json], setting: NodeConfig) -> None:
    works = [workload(lean(document), setting) for document in documents]
    tree = desired_tree(works, setting)
    all_cgroups = list(cgroups(tree))
    pods = [cgroup for cgroup in all_cgroups if cgroup.level == "pod"]
    assert len(pods) == len(documents)
    assert sum(cgroup.level == "container" for cgroup in all_cgroups) == sum(len(work.containers) for work in works)
    for parent in all_cgroups:
        for child in parent.children:
            if child.level != "reserved":
                assert child.path.startswith(parent.path.rstrip("/") + "/")
    for cgroup in all_cgroups:
        assert (cgroup.oom_score_adj is None) == (cgroup.level != "container")
        assert len({file.name for file in cgroup.files}) == len(cgroup.files)
        if cgroup.level in ("pods", "class"):
            assert not {"cpu.max", "cpu.cfs_quota_us"} & {file.name for file in cgroup.files}, (
                "02 §4.3: no quota above pods"
            )
        wrong = (
            {"memory.max", "cpu.weight", "cpu.max"}
            if setting.policy.cgroup_version == 1
            else {"cpu.shares", "cpu.cfs_quota_us"}
        )
        assert not wrong & {file.name for file in cgroup.files}


def amount(cgroup: Cgroup, *names: str) -> int:
    return sum(value for name in names if isinstance(value := cgroup.value(name), int))


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(valid_pods(), max_size=4), node_settings(pod_level=True))
def test_protection_at_every_level_is_the_sum_of_the_children(documents: list[Json], setting: NodeConfig) -> None:
    """Both reservation modes (02 §6.2), gate PodLevelResources on (off, the real sums ignore it)."""
    tree = desired_tree([workload(lean(document), setting) for document in documents], setting)
    kubepods = tree.children[0]
    guaranteed = [child for child in kubepods.children if child.level == "pod"]
    burstable, besteffort = (child for child in kubepods.children if child.level == "class")
    assert amount(besteffort, "memory.min", "memory.low") == 0
    if setting.policy.memory_qos and setting.policy.reservation != "none":
        own = amount(kubepods, "memory.min")
        assert own == sum(amount(child, "memory.min") for child in guaranteed) + amount(
            burstable, "memory.min", "memory.low"
        )
        for name in ("memory.min", "memory.low"):
            assert amount(burstable, name) == sum(amount(child, name) for child in burstable.children)
    else:
        assert not any(amount(cgroup, "memory.min", "memory.low") for cgroup in cgroups(kubepods))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(valid_pods(), max_size=4), node_settings())
def test_burstable_weight_is_of_the_sum(documents: list[Json], setting: NodeConfig) -> None:
    """02 §8: converted once, after summing."""
    works = [workload(lean(document), setting) for document in documents]
    milli = sum(work.requests["cpu"].milli for work in works if work.qos == "Burstable" and "cpu" in work.requests)
    (burstable,) = (child for child in desired_tree(works, setting).children[0].children if child.name == "Burstable")
    if setting.policy.cgroup_version == 1:
        assert burstable.value("cpu.shares") == shares(milli)
    else:
        assert burstable.value("cpu.weight") == weight_linear(shares(milli))


@settings(max_examples=examples(80), deadline=None)
@given(plain_pods(), node_settings(pod_level=True))
def test_limits_of_a_plain_pod_are_the_sum_of_its_containers(document: Json, setting: NodeConfig) -> None:
    """Where the pod has a memory limit, it is the containers' together, each rounded up to a byte."""
    work = workload(lean(document), setting)
    if work.values.memory_bytes:
        total = sum(values.memory_bytes for values in work.container_values)
        assert 0 <= total - work.values.memory_bytes < len(work.container_values)
    if (
        work.requests.get("memory")
        and setting.policy.memory_qos
        and setting.policy.reservation == "requests"
        and work.qos != "BestEffort"
    ):
        total = sum(values.memory_min_bytes or 0 for values in work.container_values)
        assert 0 <= total - work.values.memory_min_bytes < len(work.container_values)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(valid_pods(), min_size=2, max_size=3), node_settings(static_cpus=None))
def test_a_pod_is_the_same_beside_others(documents: list[Json], setting: NodeConfig) -> None:
    """What a pod's own cgroup holds never depends on its neighbours."""
    works = [
        workload(lean({**document, "metadata": {**document["metadata"], "uid": f"u{i}"}}), setting)
        for i, document in enumerate(documents)
    ]
    together = {(cgroup.path, cgroup.name): values(cgroup) for cgroup in cgroups(desired_tree(works, setting))}
    for work in works:
        for cgroup in cgroups(desired_tree([work], setting)):
            if cgroup.level in ("pod", "container"):
                assert together[cgroup.path, cgroup.name] == values(cgroup)


@pytest.mark.parametrize(("release", "gate", "policies"), [("1.27", False, 0), ("1.27", True, 1), ("1.33", True, 0)])
def test_resize_policies_are_filled_in_while_their_gate_is_on(release: str, gate: bool, policies: int) -> None:
    """D-3: up to 1.32, where the feature gate is off by default."""
    profile = profile_named(release)
    config = reading({"featureGates": {"InPlacePodVerticalScaling": gate}}, profile).config
    setting = resolved(machine_from_capacity({"cpu": parse("4"), "memory": parse("8Gi")}), config, profile)
    raw = lean({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
    assert len(defaulted_on(raw, setting).spec.containers[0].resize_policy) == policies
