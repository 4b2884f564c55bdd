"""Every formula that `explain` prints is evaluated: each step is true, and the last one gives the file's value.

Where there is no formula, the value is that of the field that is named as its source.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile, Workload, desired_tree, workload
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from tests.examples import examples
from tests.unit.formulas import is_sum_of_many, outcome, steps, value_of
from tests.unit.strategies import Json, lean, node_settings, valid_pods

# What Kubernetes computes in doubles is checked in doubles (02 §4.2, §5, §6.1).
IN_DOUBLES = ("memory.high", "memory.swap.max")


def cgroups(tree: Cgroup) -> Iterator[Cgroup]:
    yield tree
    for child in tree.children:
        yield from cgroups(child)


def false_steps(formula: str, *, doubles: bool) -> list[str]:
    return [
        f"{step.expression} is {value_of(step.expression, doubles=doubles)}, not {step.result}"
        for step in steps(formula)
        if not is_sum_of_many(step)
        and value_of(step.expression, doubles=doubles) != value_of(step.result, doubles=doubles)
    ]


def loose_steps(formula: str) -> list[str]:
    """A step must use what the one before it came to; the quadratic curve uses its logarithm instead."""
    found = []
    for before, after in itertools.pairwise(formula.split("; ")):
        if "=" in before and "=" in after and "10^" not in after and "as safe as the app" not in after:
            result = before.rsplit(" = ", 1)[1]
            if not re.search(rf"(?<![\d.]){re.escape(result)}(?![\d.])", after):
                found.append(f"{after!r} does not use {result}")
    return found


def wrong_file(cgroup: Cgroup, file: DesiredFile) -> list[str]:
    formula = file.reason.formula
    if not formula:
        return []
    doubles = file.name in IN_DOUBLES or "10^" in formula
    wrong = false_steps(formula, doubles=doubles) + loose_steps(formula)
    value = str(file.value).partition(" ")[0]
    if outcome(formula) != value:
        wrong.append(f"comes to {outcome(formula)}, the file has {value}")
    return [f"{cgroup.level} {cgroup.name}: {file.name} {file.value}: {formula}: {each}" for each in wrong]


def wrong_score(cgroup: Cgroup) -> list[str]:
    if cgroup.oom_score_adj is None:
        return []
    text = cgroup.oom_steps
    wrong = false_steps(text, doubles=False)
    if outcome(text).replace("−", "-") != str(cgroup.oom_score_adj):
        wrong.append(f"comes to {outcome(text)}, the score is {cgroup.oom_score_adj}")
    return [f"{cgroup.name}: {text}: {each}" for each in wrong]


def wrong_formulas(tree: Cgroup) -> list[str]:
    return [
        problem
        for cgroup in cgroups(tree)
        for problem in [*(each for file in cgroup.files for each in wrong_file(cgroup, file)), *wrong_score(cgroup)]
    ]


def test_the_check_sees_what_is_wrong() -> None:
    from plimsoll.rules.cgroups.reasons import Reason

    def problems(formula: str, value: int | str) -> int:
        return len(wrong_file(Cgroup("pod", "p", "/"), DesiredFile("cpu.shares", value, "", Reason(formula))))

    assert problems("1 + 1 = 2; ⌊2 · 3 / 4⌋ = 1", 1) == 0
    assert problems("1 + 1 = 3; ⌊3 · 3 / 4⌋ = 2", 2) == 1
    assert problems("1 + 1 = 2; ⌊9 · 3 / 4⌋ = 6", 6) == 1
    assert problems("1 + 1 = 2", "3 100000") == 1


# --- the property ---


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(valid_pods(), min_size=1, max_size=2), node_settings(static_cpus=None))
def test_every_formula_is_true(documents: list[Json], setting: NodeConfig) -> None:
    works = [workload(lean(document), setting, title=f"pod {index}") for index, document in enumerate(documents)]
    assert wrong_formulas(desired_tree(works, setting)) == []


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(valid_pods(), min_size=1, max_size=2), node_settings(static_cpus=None))
def test_every_cgroup_has_reasons(documents: list[Json], setting: NodeConfig) -> None:
    """A file of a pod or container says where it comes from: a formula, a field or a note."""
    works = [workload(lean(document), setting) for document in documents]
    for cgroup in cgroups(desired_tree(works, setting)):
        for file in cgroup.files:
            if (cgroup.level, file.name.partition(".")[0]) not in (("class", "hugetlb"), ("reserved", "hugetlb")):
                reason = file.reason
                assert reason.formula or reason.source or reason.note, f"{cgroup.level}: {file.name} {file.value}"


_FIELD = re.compile(
    r"spec(?:\.(containers|initContainers)\[(\d+)\])?\.resources\.(requests|limits)\.([\w./-]+)(?: \(pod level\))?"
)


def field_value(work: Workload, source: str) -> int | None:
    """What the manifest, defaulted, says at this path; None where the source is no such path."""
    match = _FIELD.fullmatch(source)
    if match is None:
        return None
    kind, index, part, name = match.groups()
    spec = work.pod.spec
    if kind is None:
        block = spec.resources or Resources()
    else:
        block = (spec.containers if kind == "containers" else spec.init_containers)[int(index)].resources
    quantity = (getattr(block, part) or {}).get(name, parse("0"))
    return quantity.milli if name == "cpu" else quantity.value


@settings(max_examples=examples(120), deadline=None)
@given(valid_pods(), node_settings(static_cpus=None))
def test_a_value_without_a_formula_is_its_fields_value(document: Json, setting: NodeConfig) -> None:
    work = workload(lean(document), setting)
    for cgroup in cgroups(desired_tree([work], setting)):
        if cgroup.level not in ("pod", "container"):
            continue
        for file in cgroup.files:
            wanted = field_value(work, file.reason.source)
            if file.reason.formula or wanted is None or file.name.startswith("cpu."):
                continue
            assert file.value == (wanted or file.value if file.name.startswith("hugetlb") else wanted), (
                cgroup.name,
                file,
            )


@settings(max_examples=examples(60), deadline=None)
@given(valid_pods(), node_settings(static_cpus=None))
def test_cpu_values_start_from_their_field(document: Json, setting: NodeConfig) -> None:
    """The first number of a one-field formula is that field, in milli-cores."""
    work = workload(lean(document), setting)
    for cgroup in cgroups(desired_tree([work], setting)):
        if cgroup.level in ("pod", "container"):
            for file in cgroup.files:
                wanted = field_value(work, file.reason.source)
                first = re.search(r"⌊(\d+) · ", file.reason.formula)
                if wanted is not None and first is not None and file.name.startswith("cpu."):
                    assert int(first[1]) == wanted, (cgroup.name, file)


# --- single sentences ---


def tree_of(document: Json, profile: str = "1.36", **options: object) -> Cgroup:
    from plimsoll.rules.config.parse import reading
    from plimsoll.rules.node.node_config import Machine, resolved

    config = reading(options.pop("config", None), profile_named(profile)).config
    machine = msgspec.structs.replace(Machine(4, 8 << 30, {}), **options)  # type: ignore[arg-type]
    setting = resolved(machine, config, profile_named(profile))
    return desired_tree([workload(lean(document), setting, title="p")], setting)


def only(tree: Cgroup, level: str, name: str) -> DesiredFile:
    (found,) = [file for cgroup in cgroups(tree) if cgroup.level == level for file in cgroup.files if file.name == name]
    return found


def pod(*blocks: Json, **fields: object) -> Json:
    containers = [{"name": f"c{i}", "image": "i", "resources": block} for i, block in enumerate(blocks)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **fields}}


SENTENCES = [
    ("weight of a pod of one", pod({"requests": {"cpu": "250m"}}), "pod", "cpu.weight",
     "⌊250 · 1024 / 1000⌋ = 256; 1 + ⌊(256 − 2) · 9999 / 262142⌋ = 10", "spec.containers[0].resources.requests.cpu"),
    ("weight of a pod of two", pod({"requests": {"cpu": "250m"}}, {"requests": {"cpu": "1"}}), "pod", "cpu.weight",
     "250 + 1000 = 1250; ⌊1250 · 1024 / 1000⌋ = 1280; 1 + ⌊(1280 − 2) · 9999 / 262142⌋ = 49", "Σ requests.cpu of 2 containers"),
    ("a limit with overhead", pod({"limits": {"memory": "1Mi"}}, overhead={"memory": "1Ki"}), "pod", "memory.max",
     "1048576 + 1024 = 1049600", "spec.containers[0].resources.limits.memory + spec.overhead.memory"),
    ("fractions of a byte", pod({"limits": {"memory": "1500m"}}, {"limits": {"memory": "1500m"}}), "pod", "memory.max",
     "1.5 + 1.5 = 3", "Σ limits.memory of 2 containers"),
    ("fractions of a byte, rounded up", pod({"limits": {"memory": "1500m"}}, {"limits": {"memory": "1"}}), "pod", "memory.max",
     "⌈1.5 + 1⌉ = 3", "Σ limits.memory of 2 containers"),
    ("the quota floor", pod({"limits": {"cpu": "1m", "memory": "1Gi"}}), "container", "cpu.max",
     "⌊1 · 100000 / 1000⌋ = 100; max(100, 1000) = 1000", "spec.containers[0].resources.limits.cpu"),
    ("init containers", pod({"requests": {"cpu": "100m"}}, initContainers=[{"name": "i", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]),
     "pod", "cpu.weight", "max(100, 500) = 500; ⌊500 · 1024 / 1000⌋ = 512; 1 + ⌊(512 − 2) · 9999 / 262142⌋ = 20", "Σ requests.cpu of 2 containers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "level", "name", "formula", "source"),
    [row[1:] for row in SENTENCES],
    ids=[row[0] for row in SENTENCES],
)
def test_sentence(document: Json, level: str, name: str, formula: str, source: str) -> None:
    reason = only(tree_of(document), level, name).reason
    assert (reason.formula, reason.source) == (formula, source)


def test_the_note_where_the_documents_differ_from_the_real_1_27() -> None:
    config = {"featureGates": {"MemoryQoS": True}}
    reason = only(tree_of(pod({}), "documents", config=config), "container", "memory.high").reason
    assert "documented; real 1.27 did not" in reason.note
    limited = only(
        tree_of(pod({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Mi"}}), "documents", config=config),
        "container",
        "memory.high",
    )
    assert limited.reason.note == ""


@pytest.mark.parametrize(
    ("profile", "value", "source"),
    [("1.32", 4 << 20, "spec.containers[0].resources.requests.hugepages-2Mi"),
     ("1.36", 8 << 20, "spec.resources.requests.hugepages-2Mi")],
)  # fmt: skip
def test_huge_pages_at_pod_level_count_since_1_33(profile: str, value: int, source: str) -> None:
    huge = {"limits": {"memory": "1Gi", "hugepages-2Mi": "8Mi"}, "requests": {"memory": "1Gi", "hugepages-2Mi": "8Mi"}}
    document = pod({"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}}, resources=huge)
    config = {"featureGates": {"PodLevelResources": True}}
    file = only(tree_of(document, profile, config=config), "pod", "hugetlb.2MB.max")
    assert (file.value, file.reason.source) == (value, source)


# Settings that the property above meets rarely, or never, because a kubelet is seldom set so.
ODD_NODES = [
    ("a reservation finer than a milli-core", {"systemReserved": {"cpu": "0.0001"}}, {}),
    ("two of them", {"systemReserved": {"cpu": "0.0001"}, "kubeReserved": {"cpu": "0.0001"}}, {}),
    ("a reservation finer than a thousandth of a byte", {"systemReserved": {"memory": "100u"}}, {}),
    ("a reservation of fractions of a byte", {"systemReserved": {"memory": "100m"}, "kubeReserved": {"memory": "200m"}}, {}),
    ("more pids reserved than there are", {"systemReserved": {"pid": "2000"}}, {"pid_capacity": 1000}),
    ("all pids reserved", {"systemReserved": {"pid": "1000"}}, {"pid_capacity": 1000}),
    ("pids reserved twice", {"systemReserved": {"pid": "10"}, "kubeReserved": {"pid": "5"}}, {"pid_capacity": 1000}),
    ("everything reserved", {"systemReserved": {"cpu": "4"}, "evictionHard": {"memory.available": "1Mi"}}, {}),
    ("an odd period with systemd", {"cpuCFSQuotaPeriod": "33333us", "cgroupDriver": "systemd"}, {}),
    ("reserved cgroups", {"systemReserved": {"cpu": "300m", "memory": "1Gi", "pid": "5"}, "systemReservedCgroup": "/system.slice", "enforceNodeAllocatable": ["pods", "system-reserved"]}, {}),
    ("huge swap", {"memorySwap": {"swapBehavior": "LimitedSwap"}}, {"swap_bytes": (1 << 50) + 1}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "machine"), [row[1:] for row in ODD_NODES], ids=[row[0] for row in ODD_NODES])
def test_formulas_on_odd_nodes(config: Json, machine: Json) -> None:
    document = pod({"requests": {"cpu": "333m", "memory": "777Mi"}, "limits": {"cpu": "777m", "memory": "1Gi"}})
    assert wrong_formulas(tree_of(document, config=config, **machine)) == []


def test_class_sums_with_the_gate_off() -> None:
    """02 §6.2 [quirk]: the memory sums ignore the gate, so their formula must not add what heeds it."""
    from plimsoll.rules.config.parse import reading
    from plimsoll.rules.node.node_config import Machine, resolved

    config = {
        "featureGates": {"MemoryQoS": True, "PodLevelResources": False},
        "memoryReservationPolicy": "TieredReservation",
    }
    setting = resolved(Machine(4, 8 << 30, {}), reading(config, profile_named("1.36")).config, profile_named("1.36"))
    documents = [
        pod({"requests": {"memory": "1Gi"}}, resources={"requests": {"memory": amount}}) for amount in ("2Gi", "3Gi")
    ]
    works = [workload(lean(each), setting, title=f"p{index}") for index, each in enumerate(documents)]
    assert wrong_formulas(desired_tree(works, setting)) == []
