"""Who is evicted first (spec 04 §1.2, §5)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.config.thresholds import SIGNALS
from plimsoll.rules.eviction.ranking import Ranked, ranked, ranking_request, reason_before, victim
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage, disk_usage, working_set_bytes
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.quantity import QUANTITIES

MI, GI = 2**20, 2**30
MEM = "memory.available"


def pod(name: str = "p", requests: dict[str, str] | None = None, **spec: Any) -> Pod:
    containers = spec.pop("containers", [{"name": "c", "resources": {"requests": requests or {}}}])
    annotations = spec.pop("annotations", None)
    metadata = {"name": name, "uid": name, "annotations": annotations}
    return from_document({"metadata": metadata, "spec": {"containers": containers, **spec}}, Pod)


def names(order: tuple[Ranked, ...]) -> list[str]:
    return [rank.pod.metadata.name for rank in order]


def test_the_worked_example() -> None:
    pods = [
        pod("D", {"memory": "1Gi", "cpu": "1"}, priority=0),
        pod("C", {"cpu": "1"}, priority=10),
        pod("B", {"memory": "100Mi"}, priority=0),
        pod("A", priority=0),
    ]
    used = {"A": 50, "B": 300, "C": 500, "D": 900}
    order = ranked(pods, {name: PodUsage(mib * MI) for name, mib in used.items()}, MEM)
    assert names(order) == ["B", "A", "C", "D"]
    assert [rank.exceeds for rank in order] == [True, True, True, False]
    assert [(rank.usage // MI, str(rank.request)) for rank in order] == [
        (300, "100Mi"),
        (50, "0"),
        (500, "0"),
        (900, "1Gi"),
    ]
    reasons = [reason_before(a, b, MEM) for a, b in itertools.pairwise(order)]
    assert reasons == ["larger excess", "lower priority", "exceeds its request"]


def test_allocatable_memory_ranks_like_memory() -> None:
    pods = [pod("a", {"memory": "1Gi"}), pod("b")]
    usage = {"a": PodUsage(GI // 2), "b": PodUsage(MI)}
    assert names(ranked(pods, usage, "allocatableMemory.available")) == names(ranked(pods, usage, MEM)) == ["b", "a"]


def test_exceeding_is_strict_and_exact() -> None:
    pods = [pod("equal", {"memory": "1"}), pod("over", {"memory": "999m"})]
    order = ranked(pods, {"equal": PodUsage(1), "over": PodUsage(1)}, MEM)
    assert [(rank.pod.metadata.name, rank.exceeds) for rank in order] == [("over", True), ("equal", False)]


def test_no_statistics_come_first_and_a_missing_figure_is_zero() -> None:
    pods = [pod("greedy"), pod("silent", priority=5), pod("zero", priority=-1), pod("mute", priority=3)]
    order = ranked(pods, {"greedy": PodUsage(GI), "zero": PodUsage()}, MEM)
    assert names(order) == ["mute", "silent", "greedy", "zero"]
    assert reason_before(order[1], order[2], MEM) == "no statistics"


def test_equal_pods_keep_their_order_and_share_a_key() -> None:
    order = ranked([pod("x"), pod("y"), pod("z")], {}, MEM)
    assert names(order) == ["x", "y", "z"]
    assert len({rank.key for rank in order}) == 1
    assert reason_before(order[0], order[1], MEM) == "equal"


def test_processes() -> None:
    pods = [pod("few"), pod("many"), pod("silent"), pod("low", priority=-1), pod("greedy", {"memory": "1"})]
    usage = {
        "few": PodUsage(processes=1),
        "many": PodUsage(processes=9),
        "low": PodUsage(processes=0),
        "greedy": PodUsage(GI, processes=2),
    }
    order = ranked(pods, usage, "pid.available")
    assert names(order) == ["low", "silent", "many", "greedy", "few"]
    assert not any(rank.exceeds for rank in order)  # requests play no part
    assert [(rank.has_usage, rank.usage) for rank in order] == [
        (True, 0), (False, 0), (True, 9), (True, 2), (True, 1),
    ]  # fmt: skip
    assert {str(rank.request) for rank in order} == {"0"}
    reasons = [reason_before(a, b, "pid.available") for a, b in itertools.pairwise(order)]
    assert reasons == ["lower priority", "no statistics", "more processes", "more processes"]


def test_critical_pods_stay_in_the_order_but_are_skipped() -> None:
    pods = [
        pod("system", priority=2_000_000_000),
        pod("static", annotations={"kubernetes.io/config.source": "file"}),
        pod("mirror", annotations={"kubernetes.io/config.mirror": ""}),
        pod("fromapi", annotations={"kubernetes.io/config.source": "api"}, priority=7),
    ]
    order = ranked(pods, {}, MEM)
    assert names(order) == ["static", "mirror", "fromapi", "system"]
    chosen = victim(order)
    assert chosen is not None and chosen.pod.metadata.name == "fromapi"
    assert victim(rank for rank in order if rank.critical) is None


# --- which files count ---

VOLUMES = [
    {"name": "scratch", "emptyDir": {}},
    {"name": "ram", "emptyDir": {"medium": "Memory"}},
    {"name": "huge", "emptyDir": {"medium": "HugePages-2Mi"}},
    {"name": "config", "configMap": {"name": "x"}},
    {"name": "git", "gitRepo": {"repository": "x"}},
    {"name": "host", "hostPath": {"path": "/x"}},
    {"name": "secret", "secret": {"secretName": "x"}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "x"}},
    {"name": "projected", "projected": {}},
]
# One bit per source, so that a sum tells what is in it.
USAGE = PodUsage(
    containers=(
        ContainerUsage("a", rootfs=FsUsage(1, 1 << 20), logs=FsUsage(2, 2 << 20)),
        ContainerUsage("b", rootfs=FsUsage(4, 4 << 20), logs=FsUsage(8, 8 << 20)),
    ),
    volumes={volume["name"]: FsUsage(16 << n, 16 << n << 20) for n, volume in enumerate(VOLUMES)}
    | {"unknown": FsUsage(1 << 60, 1 << 60)},
)
ROOTFS, LOGS, LOCAL = 1 + 4, 2 + 8, 16 + (16 << 3) + (16 << 4) + (16 << 5)


@pytest.mark.parametrize(
    ("layout", "fs", "expected"),
    [
        ("single", "nodefs", ROOTFS + LOGS + LOCAL),
        ("single", "imagefs", ROOTFS + LOGS + LOCAL),
        ("single", "containerfs", ROOTFS + LOGS + LOCAL),
        ("dedicated", "nodefs", LOGS + LOCAL),
        ("dedicated", "imagefs", ROOTFS),
        ("dedicated", "containerfs", ROOTFS),
        ("split", "nodefs", ROOTFS + LOGS + LOCAL),
        ("split", "imagefs", 0),
        ("split", "containerfs", ROOTFS + LOGS + LOCAL),
    ],
)
def test_what_counts_on_which_file_system(layout: Any, fs: str, expected: int) -> None:
    storing = pod(volumes=VOLUMES)
    (by_bytes,) = ranked([storing], {"p": USAGE}, f"{fs}.available", layout)
    (by_inodes,) = ranked([storing], {"p": USAGE}, f"{fs}.inodesFree", layout)
    assert (by_bytes.usage, by_inodes.usage) == (expected, expected << 20)


def test_a_volume_without_figures() -> None:
    assert disk_usage(pod(volumes=VOLUMES), PodUsage(), ("rootfs", "logs", "volumes")) == (0, 0)


def test_inodes_exceed_from_the_first_one_and_lose_the_byte_request() -> None:
    pods = [pod("none", {"ephemeral-storage": "1"}), pod("small", {"ephemeral-storage": "5"}), pod("large")]
    usage = {
        "none": PodUsage(),
        "small": PodUsage(containers=(ContainerUsage("c", logs=FsUsage(0, 3)),)),
        "large": PodUsage(containers=(ContainerUsage("c", logs=FsUsage(0, 1)),)),
    }
    order = ranked(pods, usage, "nodefs.inodesFree")
    assert [(rank.pod.metadata.name, rank.exceeds, rank.key[2]) for rank in order] == [
        ("large", True, -1 * 10**9),
        ("small", True, 2 * 10**9),
        ("none", False, 1 * 10**9),
    ]


# --- the ranking request ---

TWO = [
    {"name": "a", "resources": {"requests": {"memory": "1Gi", "ephemeral-storage": "1Gi", "cpu": "1"}}},
    {"name": "b", "resources": {"requests": {"memory": "2Gi"}}},
]
INIT = [{"name": "i", "resources": {"requests": {"memory": "5Gi"}}}]
SIDECAR = [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "4Gi"}}}]


@pytest.mark.parametrize(
    ("spec", "name", "expected"),
    [
        pytest.param({"containers": TWO}, "memory", "3Gi", id="sum"),
        pytest.param({"containers": TWO, "initContainers": INIT}, "memory", "5Gi", id="init maximum"),
        pytest.param({"containers": TWO, "initContainers": SIDECAR}, "memory", "7Gi", id="sidecars add up"),
        pytest.param(
            {"containers": TWO, "overhead": {"memory": "64Mi"}}, "memory", "3136Mi", id="overhead on something"
        ),
        pytest.param(
            {"containers": [{"name": "c"}], "overhead": {"memory": "64Mi"}}, "memory", "0", id="overhead on nothing"
        ),
        pytest.param(
            {"containers": TWO, "resources": {"requests": {"memory": "9Gi"}}}, "memory", "9Gi", id="pod level instead"
        ),
        pytest.param(
            {"containers": TWO, "resources": {"limits": {"cpu": "4"}}}, "memory", "0", id="pod level hides containers"
        ),
        pytest.param(
            {"containers": TWO, "resources": {"requests": {"memory": "9Gi", "ephemeral-storage": "1Gi"}}},
            "ephemeral-storage",
            "0",
            id="no ephemeral storage at pod level",
        ),
        pytest.param(
            {"containers": TWO, "resources": {"requests": {"ephemeral-storage": "1Gi"}}},
            "memory",
            "3Gi",
            id="an unsupported name alone is no pod level",
        ),
        pytest.param(
            {"containers": TWO, "resources": {"requests": {"memory": "9Gi"}}, "overhead": {"memory": "1Gi"}},
            "memory",
            "10Gi",
            id="overhead on pod level",
        ),
    ],
)
def test_the_ranking_request(spec: dict[str, Any], name: str, expected: str) -> None:
    assert str(ranking_request(pod(**spec), name)) == expected


def test_without_the_gate_pod_level_is_ignored() -> None:
    level = pod(containers=TWO, resources={"requests": {"memory": "9Gi"}})
    assert ranking_request(level, "memory", gates=Gates(pod_level=False)) == QUANTITIES["3Gi"]


# --- properties ---

_PODS = st.lists(
    st.tuples(
        st.integers(0, 3),  # request
        st.none() | st.integers(-2, 2),  # priority
        st.none() | st.integers(0, 5),  # usage, or no statistics
    ),
    max_size=8,
)


@given(_PODS, st.sampled_from(sorted(SIGNALS)), st.sampled_from(["single", "dedicated", "split"]))
def test_the_order_is_a_permutation_by_the_rule(
    rows: list[tuple[int, int | None, int | None]], signal: str, layout: Any
) -> None:
    pods, usage = [], {}
    for index, (request, priority, used) in enumerate(rows):
        pods.append(pod(str(index), {"memory": f"{request}", "ephemeral-storage": f"{request}"}, priority=priority))
        if used is not None:
            container = ContainerUsage("c", used, FsUsage(used, used), FsUsage(0, 0))
            usage[str(index)] = PodUsage(used, used, (container,))
    order = ranked(pods, usage, signal, layout)
    assert sorted(names(order)) == sorted(each.metadata.name for each in pods)
    for first, second in itertools.pairwise(order):
        assert first.key <= second.key
        if signal != "pid.available":
            assert not (first.has_usage and not second.has_usage)
            if first.has_usage and second.has_usage:
                assert first.exceeds or not second.exceeds
        if (first.has_usage, first.exceeds) == (second.has_usage, second.exceeds):
            assert first.priority <= second.priority


def test_working_set() -> None:
    assert working_set_bytes(10, 3) == 7
    assert working_set_bytes(3, 10) == 0
