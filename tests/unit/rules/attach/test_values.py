"""The values at every level, by the arithmetic of 02 §6; sums, ceilings, the reserve of the node."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.rules.attach.values import AttachedPod, Decision, decided, switch_problems
from plimsoll.rules.blockio.entries import latency_entries, limit_entries
from plimsoll.rules.blockio.policy import IO_LATENCY, IO_MAX, IoCeiling, IoDevice, IoPolicy
from plimsoll.rules.node.node_config import NodeConfig
from tests.unit.rules.attach.nodes import GIB, MIB, attached, node, resources

TIERED, HARD = AttachPolicy(Switches("tiered")), AttachPolicy(Switches("hard"))
BURSTABLE = resources(memory=("1Gi", "2Gi"))
GUARANTEED = resources(memory="512Mi", cpu="500m")
# 1Gi + 1Gi · 0.9 = 2040109465.6, rounded down to a page (02 §6.1)
HIGH = str(2040109465 // 4096 * 4096)
SAFE = str(512 * MIB * 90 // 100 // 4096 * 4096)


def files_of(decision: Decision) -> dict[str, dict[str, str]]:
    return {target.path: target.files for target in decision.targets}


def test_tiered() -> None:
    found = files_of(decided([attached("b", BURSTABLE), attached("g", GUARANTEED), attached("e", {})], TIERED, node()))
    assert found == {
        "/kubepods": {"memory.min": SAFE, "memory.low": str(GIB)},
        "/kubepods/burstable": {"memory.low": str(GIB)},
        "/kubepods/burstable/poduid-b": {"memory.low": str(GIB)},
        "/kubepods/burstable/poduid-b/b0": {"memory.low": str(GIB), "memory.high": HIGH},
        "/kubepods/poduid-g": {"memory.min": SAFE},
        "/kubepods/poduid-g/g0": {"memory.min": SAFE},
        # BestEffort, no request and no limit: in 1.36 it has neither a protection nor a memory.high
    }


def test_hard() -> None:
    found = files_of(decided([attached("b", BURSTABLE, BURSTABLE)], HARD, node()))
    assert found["/kubepods"] == {"memory.min": str(2 * GIB)}
    assert found["/kubepods/burstable/poduid-b/b1"] == {"memory.min": str(GIB), "memory.high": HIGH}


def test_systemd_names() -> None:
    paths = set(files_of(decided([attached("b", BURSTABLE)], TIERED, node(driver="systemd"))))
    pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_b.slice"
    assert f"{pod}/cri-containerd-b0.scope" in paths


@pytest.mark.parametrize(
    ("annotations", "policy", "files_of_container"),
    [
        ({"plimsoll.dev/memory-qos": "off"}, TIERED, None),
        ({"plimsoll.dev/memory-qos": "hard"}, AttachPolicy(), None),  # a pod cannot turn it on
        ({"plimsoll.dev/oom-group": "true"}, AttachPolicy(), {"memory.oom.group": "1"}),
        ({}, AttachPolicy(Switches(oom_group="container")), {"memory.oom.group": "1"}),
        ({"plimsoll.dev/oom-group": "false"}, AttachPolicy(Switches(oom_group="container")), {"memory.oom.group": "0"}),
        ({"plimsoll.dev/oom-group": "x" * 9999}, AttachPolicy(), None),
    ],
)
def test_annotations(
    annotations: dict[str, str], policy: AttachPolicy, files_of_container: dict[str, str] | None
) -> None:
    found = files_of(decided([attached("b", BURSTABLE, annotations=annotations)], policy, node()))
    assert found.get("/kubepods/burstable/poduid-b/b0") == files_of_container


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        ("memory-qos", "hard", "'hard' is ignored: a pod can only turn it off"),
        ("oom-group", "x" * 9999, f"'{'x' * 40}' is ignored: neither true nor false"),
        ("oom-group", "true", ""),
        ("memory-qos", "off", ""),
    ],
)
def test_a_value_that_means_nothing_is_noted(annotation: str, value: str, says: str) -> None:
    given = {f"plimsoll.dev/{annotation}": value}
    notes = decided([attached("b", BURSTABLE, annotations=given)], AttachPolicy(), node()).notes
    assert [note.partition(": ")[2] for note in notes] == ([f"plimsoll.dev/{annotation}: {says}"] if says else [])


def test_a_ceiling_bounds_every_level() -> None:
    policy = AttachPolicy(Switches("hard", most_min_bytes=100 * MIB))
    found = files_of(decided([attached("b", BURSTABLE, BURSTABLE)], policy, node()))
    assert {found[path]["memory.min"] for path in found} == {str(100 * MIB)}


def test_another_namespace_is_not_touched() -> None:
    policy = AttachPolicy(Switches("tiered"), {"quiet": Switches()})
    pods = [
        attached("a", BURSTABLE),
        attached("q", BURSTABLE, namespace="quiet"),
        attached("c", BURSTABLE, namespace="c"),
    ]
    found = files_of(decided(pods, policy, node(), lambda namespace: namespace != "c"))
    assert found["/kubepods"]["memory.low"] == str(GIB)
    assert {path for path in found if "pod" in path.rpartition("/")[2]} == {"/kubepods", "/kubepods/burstable/poduid-a"}


def test_minimums_stay_below_allocatable_less_the_reserve() -> None:
    """8Gi, reserve 6Gi: 2Gi for memory.min. The oldest pods have it; the one that no longer fits has memory.low."""
    policy = AttachPolicy(Switches("hard"), reserve_bytes=6 * GIB)
    pods = [
        attached(name, BURSTABLE, created=f"2026-01-0{day}T00:00:00Z") for day, name in ((3, "c"), (1, "a"), (2, "b"))
    ]
    decision = decided(pods, policy, node())
    found = files_of(decision)
    assert found["/kubepods"] == {"memory.min": str(2 * GIB), "memory.low": str(GIB)}
    assert found["/kubepods/burstable/poduid-c"] == {"memory.low": str(GIB)}
    assert found["/kubepods/burstable/poduid-c/c0"] == {"memory.low": str(GIB), "memory.high": HIGH}
    (note,) = decision.notes
    assert note.startswith("default/c: memory.low in place of memory.min") and str(2 * GIB) in note


def test_burst() -> None:
    policy = AttachPolicy(Switches(cpu_burst_percent=20))
    limited = resources(cpu=("100m", "500m"))  # quota 50000
    found = files_of(decided([attached("b", limited)], policy, node()))
    assert found == {
        path: {"cpu.max.burst": "10000"} for path in ("/kubepods/burstable/poduid-b", "/kubepods/burstable/poduid-b/b0")
    }
    on_v1 = files_of(decided([attached("b", limited)], policy, node(1)))
    assert on_v1["/kubepods/burstable/poduid-b/b0"] == {"cpu.cfs_burst_us": "10000"}
    assert not decided([attached("b", resources(cpu=("100m", "")))], policy, node()).targets  # no quota


def test_scores_are_expected_only_with_the_switch() -> None:
    pods = [attached("g", GUARANTEED)]
    (target,) = decided(pods, AttachPolicy(Switches(repair_scores=True)), node()).targets
    assert (target.score, target.files) == (-997, {})
    assert not decided(pods, AttachPolicy(), node()).targets


def test_cgroup_v1_and_a_kubelet_with_memory_qos_are_left_as_they_are() -> None:
    assert not decided([attached("b", BURSTABLE)], TIERED, node(1)).targets
    own = node(featureGates={"MemoryQoS": True})
    assert not decided([attached("b", BURSTABLE)], TIERED, own).targets
    assert "cgroup v1" in switch_problems(TIERED, node(1))[0]
    assert "MemoryQoS is on" in switch_problems(TIERED, own)[0]
    assert switch_problems(TIERED, node()) == []
    assert "no PSI" in switch_problems(AttachPolicy(Switches(reclaim=True)), node(), has_psi=False)[0]


def test_a_uid_that_is_a_path_is_refused() -> None:
    pod = attached("b", BURSTABLE)
    bad = msgspec.structs.replace(pod.pod, metadata=msgspec.structs.replace(pod.pod.metadata, uid="../../system.slice"))
    decision = decided([AttachedPod(bad, pod.containers)], TIERED, node())
    assert not decision.targets and "default/b: left as it is" in decision.notes[0]


amounts = st.integers(1, 512).map(lambda each: f"{each}Mi")


@given(
    st.lists(st.tuples(amounts, st.booleans(), st.booleans()), max_size=8),
    st.sampled_from(["tiered", "hard"]),
    st.integers(0, 9 * GIB),
    st.one_of(st.none(), st.integers(0, GIB)),
)
def test_protection_is_effective_and_bounded(
    pods: list[tuple[str, bool, bool]], qos: str, reserve: int, ceiling: int | None
) -> None:
    """Every cgroup protects at least as much as its children together, and Σ memory.min fits."""
    switches = Switches(qos, most_min_bytes=ceiling)  # type: ignore[arg-type]
    made = [
        attached(
            f"p{index}", *([resources(memory=(amount, "1Gi"))] * (1 + two)) if not whole else (resources(amount, "1"),)
        )
        for index, (amount, whole, two) in enumerate(pods)
    ]
    setting = node()
    found = files_of(decided(made, AttachPolicy(switches, reserve_bytes=reserve), setting))
    for path in ("/kubepods", "/kubepods/burstable"):
        for file in ("memory.min", "memory.low"):
            below = [int(files.get(file, 0)) for each, files in found.items() if each.rpartition("/")[0] == path]
            assert int(found.get(path, {}).get(file, 0)) >= sum(below)
    allocatable = setting.policy.allocatable_memory_bytes or 0
    assert int(found.get("/kubepods", {}).get("memory.min", 0)) <= max(allocatable - reserve, 0)


IO = IoPolicy(
    (IoDevice("/dev/vda", "254:0"),),
    ceilings={"*": IoCeiling(limit_entries("wbps=8Mi"), latency_entries("target=5ms")), "free": IoCeiling()},
)


def io_node(io: IoPolicy = IO) -> NodeConfig:
    plain = node()
    return msgspec.structs.replace(plain, policy=msgspec.structs.replace(plain.policy, io=io))


def io_pods() -> list[AttachedPod]:
    return [
        attached("b", BURSTABLE, annotations={IO_MAX: "wbps=4Mi riops=7", IO_LATENCY: "target=10ms"}),
        attached("g", GUARANTEED, namespace="free"),
        attached("e", {}, annotations={IO_MAX: "wbps=9Mi"}),
    ]


def test_block_io_at_every_level() -> None:
    decision = decided(io_pods(), AttachPolicy(), io_node())
    assert files_of(decision) == {
        "/kubepods": {"io.weight": "500", "io.latency": "254:0 target=10000"},
        "/kubepods/burstable": {"io.weight": "100", "io.latency": "254:0 target=10000"},
        "/kubepods/besteffort": {"io.weight": "10"},
        "/kubepods/burstable/poduid-b": {
            "io.max": f"254:0 rbps=max wbps={4 * MIB} riops=7 wiops=max",
            "io.latency": "254:0 target=10000",
        },
        "/kubepods/poduid-g": {"io.weight": "500"},
        "/kubepods/besteffort/poduid-e": {"io.max": f"254:0 rbps=max wbps={8 * MIB} riops=max wiops=max"},
    }
    (note,) = decision.notes
    assert note.startswith(
        f"default/e: metadata.annotations[plimsoll.dev/io-max]: Forbidden: wbps of /dev/vda is {9 * MIB}"
    )
    assert note.endswith("it is ignored")


@pytest.mark.parametrize("text", ["x" * 200_000, f"wbps={'1' * 4000}", f"/dev/{'a' * 4000} wbps=1"])
def test_notes_about_annotations_are_short_and_printable(text: str) -> None:
    pods = [attached("b", BURSTABLE, annotations={IO_MAX: f"\x1b[2J{text}", IO_LATENCY: text})]
    notes = decided(pods, AttachPolicy(), io_node()).notes
    assert len(notes) == 2
    assert all(len(note) < 500 and note.isprintable() for note in notes)


def test_block_io_of_a_canary_leaves_the_weights_of_all_pods() -> None:
    found = files_of(decided(io_pods(), AttachPolicy(), io_node(), lambda namespace: namespace == "default"))
    assert found["/kubepods"] == found["/kubepods/burstable"] == {"io.latency": "254:0 target=10000"}
    assert set(found) == {
        "/kubepods",
        "/kubepods/burstable",
        "/kubepods/burstable/poduid-b",
        "/kubepods/besteffort/poduid-e",
    }


def test_block_io_of_a_kernel_without_latency_targets() -> None:
    without = msgspec.structs.replace(IO, no_latency="this kernel's cgroups have no io.latency")
    decision = decided(io_pods()[:1], AttachPolicy(), io_node(without))
    assert [list(files) for files in files_of(decision).values()] == [
        ["io.weight"],
        ["io.weight"],
        ["io.weight"],
        ["io.max"],
    ]
    assert "plimsoll.dev/io-latency]: Invalid value" in decision.notes[0]
    assert "this kernel's cgroups have no io.latency; it is ignored" in decision.notes[0]
