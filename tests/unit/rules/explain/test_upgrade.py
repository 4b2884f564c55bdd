"""What an upgrade changes: found where it was planted, with its cause, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from plimsoll.rules.cgroups.desired import defaulted_on, defaulted_workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.differences import PROTECTED, differences
from plimsoll.rules.explain.explanation import explanation
from plimsoll.rules.explain.refusal import refusal_errors
from plimsoll.rules.explain.resize_probes import LESS_MEMORY, MORE_CPU
from plimsoll.rules.explain.upgrade import OOM_ORDER, Change, Comparison, as_created
from plimsoll.rules.explain.upgrade_advice import ADVICE
from plimsoll.rules.explain.upgrade_causes import Side, cause_of, parts, taken
from plimsoll.rules.explain.upgrade_reads import differing, recorded
from plimsoll.rules.explain.upgrade_report import quota_changes, sections, summary
from plimsoll.rules.explain.upgrade_trials import WITHOUT_REASONS, NamedPod, answers, stored, value_facts
from plimsoll.rules.model.objects import Metadata
from plimsoll.rules.model.policies import ResourceQuota, ResourceQuotaSpec
from plimsoll.rules.node.node_config import Machine, NodeConfig
from plimsoll.rules.profile import RELEASES, profile_named
from plimsoll.rules.quantity import parse
from tests.examples import examples
from tests.unit.strategies import Json, lean, valid_pods

GI = 1 << 30


def side(release: str, document: Json | None = None, machine: Machine | None = None, **fields: Any) -> Side:
    profile = profile_named(release)
    return Side(machine or Machine(8, 4 * GI, {}, name="n"), reading(document, profile).config, profile, **fields)


def container(name: str = "c", requests: Json | None = None, limits: Json | None = None, **fields: Any) -> Json:
    return {"name": name, "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}, **fields}


def named(document: Json, title: str = "default/planted") -> NamedPod:
    return NamedPod(title, lean({"metadata": {"name": title.rpartition("/")[2]}, **document}))


def pod(*containers: Json, **spec: Any) -> Json:
    return {"spec": {"containers": list(containers), **spec}}


# The control: written in full, so that no release changes anything but files that get the kernel's own default.
ALL = {"cpu": "1", "memory": "256Mi"}
CONTROL = named(pod(container(requests=ALL, limits=ALL)), "default/control")


def found(old: Side, new: Side, *pods: NamedPod) -> tuple[list[Change], Comparison]:
    comparison = Comparison()
    return list(comparison.changes("n", old, new, pods)), comparison


def resized(spec: str, allocated: str, name: str) -> tuple[Json, Json]:
    status = {
        "name": name,
        "allocatedResources": {"cpu": allocated, "memory": "1Gi"},
        "resources": {"requests": {"cpu": allocated, "memory": "1Gi"}},
    }
    return container(name, {"cpu": spec, "memory": "1Gi"}), status


GROWS, GROWING = resized("1", "2", "a")
SHRINKS, SHRINKING = resized("2", "1", "b")
UNDER_RESIZE = {**pod(GROWS, SHRINKS), "status": {"phase": "Running", "containerStatuses": [GROWING, SHRINKING]}}
SIDECAR = {"restartPolicy": "Always"}
QOS_ON = {"featureGates": {"MemoryQoS": True}}

PLANTED = [
    # id, pod, releases, configuration, (where, kind, what, old, new), causes
    (
        "QC-2 empty spec.resources",
        pod(container(requests=ALL, limits=ALL), resources={}),
        ("1.36", "1.37"),
        {},
        ("default/planted", "class", "QoS class", "BestEffort", "Guaranteed"),
        {"PodLevelResourcesFixKubeletQOSClass"},
    ),
    (
        "D pod-level limits are defaulted",  # requests {cpu:201m}, limits 11m and 8154M: Burstable → Guaranteed
        pod(container(limits={"cpu": "11m", "memory": "815M"}), resources={"requests": {"cpu": "201m"}}),
        ("1.36", "1.37"),
        {},
        ("default/planted", "class", "QoS class", "Burstable", "Guaranteed"),
        {"PodLevelResourcesFixDefaulting"},
    ),
    (
        "O-3 sidecars",  # 1000 − 1000 · 128Mi/4Gi = 969; with the rule at most that of the container: 1000 − 250
        pod(container(requests={"memory": "1Gi"}), initContainers=[container("s", {"memory": "128Mi"}, **SIDECAR)]),
        ("1.31", "1.32"),
        {},
        ("default/planted / s", "oom score", "oom_score_adj", "969", "750"),
        {"sidecar_oom_rule"},
    ),
    (
        "05 A1 footprint",  # Σ max(1, 2) + max(2, 1) = 4; max(Σ 3, Σ 3) = 3
        UNDER_RESIZE,
        ("1.36", "1.37"),
        {},
        ("default/planted", "scheduling", "counted cpu", "4", "3"),
        {"resize_footprint"},
    ),
    (
        "04 §7 storage of sidecars",
        pod(container(), initContainers=[container("s", limits={"ephemeral-storage": "1Gi"}, **SIDECAR)]),
        ("1.36", "1.37"),
        {},
        ("default/planted / s", "eviction", "enforced storage limit", "–", "1Gi"),
        {"sidecar_storage_limits"},
    ),
    (
        "02 §5 group kill",
        pod(container()),
        ("1.27", "1.28"),
        {},
        ("default/planted / c", "value", "memory.oom.group", "–", "1"),
        {"memory_oom_group"},
    ),
    (
        "02 §4.2 weight",  # 2000 shares: 77 before runc 1.3.2, 170 since (opencontainers/runc#4896)
        pod(container(requests={"cpu": "1954m"})),
        ("1.34", "1.35"),
        {},
        ("default/planted / c", "value", "cpu weight", "cpu.weight 77", "cpu.weight 170"),
        {"container_weight"},
    ),
    (
        "02 §6.2 protection ends",
        pod(container(requests={"memory": "512Mi"})),
        ("1.35", "1.36"),
        QOS_ON,
        ("default/planted / c", "protection", PROTECTED, str(GI // 2), "–"),
        {"memory_min_from_requests", "memoryReservationPolicy"},
    ),
    (
        "03 resize becomes possible",
        pod(container(requests={"cpu": "1"})),
        ("1.32", "1.33"),
        {},
        ("default/planted", "resize", MORE_CPU, "refused by the API server", "Accepted"),
        {"InPlacePodVerticalScaling"},
    ),
    (
        "03 §4.2 a memory limit may shrink",
        pod(container(limits={"memory": "1Gi"}, requests={"memory": "512Mi"})),
        ("1.33", "1.34"),
        {},
        ("default/planted", "resize", LESS_MEMORY, "refused by the API server", "Accepted"),
        {"memory_limit_may_shrink"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "releases", "config", "change", "causes"),
    [row[1:] for row in PLANTED],
    ids=[row[0] for row in PLANTED],
)
def test_planted(
    document: Json, releases: tuple[str, str], config: Json, change: tuple[str, ...], causes: set[str]
) -> None:
    old, new = (side(release, config) for release in releases)
    changes, comparison = found(old, new, named(document))
    where, kind, what, before, after = change
    matching = [each for each in changes if (each.subject, each.kind, each.what) == (where, kind, what)]
    assert [(each.old, each.new) for each in matching] == [(before, after)]
    assert set(matching[0].causes) == causes
    assert matching[0].pod == "default/planted"
    assert all(comparison.causes[each].advice for each in causes)


# What each release changes for every pod (docs/profiles.md): all that the control shows.
FOR_EVERY_POD = [
    (("1.27", "1.28"), {"memory.oom.group", "swap limit"}),
    (("1.28", "1.29"), set()),
    (("1.31", "1.32"), set()),
    (("1.32", "1.33"), {"cpu weight", MORE_CPU}),  # a lower memory limit is refused by both
    (("1.33", "1.34"), {"cpu weight", LESS_MEMORY}),
    (("1.34", "1.35"), {"cpu weight"}),
    (("1.35", "1.36"), set()),
    (("1.36", "1.37"), {"memory.min", "memory.low"}),
]


@pytest.mark.parametrize(("releases", "what"), FOR_EVERY_POD, ids=[" ".join(row[0]) for row in FOR_EVERY_POD])
def test_nothing_else_is_found(releases: tuple[str, str], what: set[str]) -> None:
    old, new = (side(release) for release in releases)
    assert {each.what for each in found(old, new, CONTROL)[0] if each.pod} == what


def test_a_pod_that_the_new_api_server_refuses() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    document = pod(container(), initContainers=[container("i", resizePolicy=policy)])
    changes, _ = found(side("1.35"), side("1.36"), named(document), CONTROL)
    refused = [each for each in changes if each.kind == "refused"]
    assert [(each.subject, each.breaks) for each in refused] == [("default/planted", True)]
    assert "spec.initContainers[0].resizePolicy" in refused[0].new


def test_the_oom_order_follows_the_score() -> None:
    """1000 beside 1000: both are first; −997 beside 1000: second."""
    planted, beside = named(PLANTED[0][1]), named(pod(container()), "default/beside")
    changes, _ = found(side("1.36"), side("1.37"), planted, beside)
    order = [each for each in changes if each.kind == "oom order"]
    assert [(each.subject, each.what, each.old, each.new) for each in order] == [
        ("default/planted / c", OOM_ORDER, "place 1 of 2", "place 2 of 2")
    ]


def test_no_change_between_equal_sides() -> None:
    for release in RELEASES:
        assert found(side(release), side(release), CONTROL, named(UNDER_RESIZE))[0] == []


def test_options_are_causes_too() -> None:
    document = pod(container(requests={"cpu": "1954m"}))
    changes, comparison = found(side("1.36", weight="linear"), side("1.36", weight="quadratic"), named(document))
    assert {(each.what, each.old, each.new, each.causes) for each in changes if each.kind == "value"} == {
        ("cpu weight", "cpu.weight 77", "cpu.weight 170", ("weight",))
    }
    assert "runc 1.3.2" in comparison.causes["weight"].fact
    changes, _ = found(side("1.36", driver="cgroupfs"), side("1.36", driver="systemd"), named(document))
    assert {each.causes for each in changes} == {("driver",)}


def test_the_kernels_own_defaults_are_counted_apart() -> None:
    changes, _ = found(side("1.36"), side("1.37"), CONTROL)
    of_pod = [each for each in changes if each.pod]
    assert {(each.what, each.old, each.new) for each in of_pod} == {("memory.min", "–", "0"), ("memory.low", "–", "0")}
    assert all(each.is_kernel_default and each.causes == ("MemoryQoS",) for each in of_pod)
    counted = summary(changes, 1, 1)
    assert (counted.changed_pods, counted.kernel_defaults_only) == (1, 1)


def test_the_class_in_the_status_does_not_count() -> None:
    """It is what the old release stored; a pod that is created again gets another."""
    document = pod(container(requests=ALL, limits=ALL), resources={})
    stored = named({**document, "status": {"qosClass": "BestEffort"}})
    assert [each for each in found(side("1.36"), side("1.37"), stored)[0] if each.kind == "class"]


def test_pods_of_one_form_share_their_cause_on_many_nodes() -> None:
    comparison, counts = Comparison(), []
    for index in range(3):
        amounts = {"cpu": f"{index + 1}00m", "memory": "64Mi"}
        planted = named(pod(container(requests=amounts, limits=amounts), resources={}))
        changes = list(comparison.changes(f"n{index}", side("1.36"), side("1.37"), [planted]))
        counts.append(len([each for each in changes if each.causes == ("PodLevelResourcesFixKubeletQOSClass",)]))
    assert counts[0] > 3 and len(set(counts)) == 1


def test_summary_and_sections() -> None:
    planted = named(PLANTED[0][1])
    lost = named(pod(container(requests={"memory": "512Mi"})), "default/lost")
    first, comparison = found(side("1.36"), side("1.37"), planted, CONTROL)
    second = list(comparison.changes("m", side("1.35", QOS_ON), side("1.36", QOS_ON), [lost]))
    counted = summary([*first, *second], 3, 2)
    assert (counted.class_changes, counted.lose_protection, counted.changed_pods) == (1, 1, 3)
    assert "1 of 3 pods changes class, 1 loses protection" in counted.sentence()
    ordered = sections([*first, *second], comparison.causes)
    assert sum(len(group.subjects) for each in ordered for group in each.groups) == len(first) + len(second)
    assert all(group.note for group in ordered[-1].groups), "what the kernel has anyway comes last"


# The release in which the new default came, by the gate tables and the release notes, not the one upgraded to.
CAME_WITH = (
    # part, releases, the release
    ("NodeSwap", ("1.27", "1.37"), "1.30"),
    ("InPlacePodVerticalScaling", ("1.27", "1.37"), "1.33"),
    ("PodLevelResources", ("1.27", "1.36"), "1.34"),
    ("PodLevelResources", ("1.36", "1.27"), "1.34"),
    ("MemoryQoS", ("1.27", "1.37"), "1.37"),
    ("memory_throttling_factor", ("1.35", "1.37"), "1.37"),
    ("memory_oom_group", ("1.27", "1.37"), "1.28"),
    ("memory_oom_group", ("1.37", "1.27"), "1.28"),
)


@pytest.mark.parametrize(("name", "releases", "came"), CAME_WITH)
def test_a_cause_names_the_release_that_it_came_with(name: str, releases: tuple[str, str], came: str) -> None:
    old, new = (side(release) for release in releases)
    (part,) = (each for each in parts(old, new) if each.name == name)
    assert cause_of(part, old, new).release == came


def test_what_is_configured_came_with_no_release() -> None:
    old, new = side("1.35", QOS_ON), side("1.36")
    (part,) = (each for each in parts(old, new) if each.name == "MemoryQoS")
    assert cause_of(part, old, new).release == ""


def test_a_downgrade_does_not_advise_what_an_upgrade_brings() -> None:
    up, down = side("1.27"), side("1.37")
    (part,) = (each for each in parts(up, down) if each.name == "InPlacePodVerticalScaling")
    assert cause_of(part, up, down).advice == "nothing; pods can be resized in place from now on"
    assert cause_of(part, down, up).advice == ADVICE[""]


def test_quota_counts_pods_under_resize_otherwise() -> None:
    hard = {"requests.cpu": parse("3")}
    quota = ResourceQuota(Metadata("q", "default"), ResourceQuotaSpec(hard))
    pods = [named(UNDER_RESIZE).pod]
    old, new = profile_named("1.36"), profile_named("1.37")
    assert [(each.what, each.old, each.new, each.breaks) for each in quota_changes(quota, pods, old, new)] == [
        ("used requests.cpu", "4", "3", False)
    ]
    assert [(each.note, each.breaks) for each in quota_changes(quota, pods, new, old)] == [("above hard 3", True)]


def test_quota_counts_pods_as_they_are_stored() -> None:
    """D-1: limits are requests too. R-2: a request of 0.1m is 1m. In 1.36: 4 + 1 + 1m."""
    amounts: tuple[Json, ...] = ({"limits": {"cpu": "1"}}, {"requests": {"cpu": "0.0001"}})
    others = [named(pod({"name": "c", "image": "i", "resources": each})).pod for each in amounts]
    quota = ResourceQuota(Metadata("q", "default"), ResourceQuotaSpec({"requests.cpu": parse("9")}))
    pods = [named(UNDER_RESIZE).pod, *others]
    (change,) = quota_changes(quota, pods, profile_named("1.36"), profile_named("1.37"))
    assert (change.old, change.new) == ("5001m", "4001m")


def explained(pods: Sequence[NamedPod], chosen: Side) -> Any:
    setting = chosen.setting()
    works = [defaulted_workload(defaulted_on(each.pod, setting), setting, title=each.title) for each in pods]
    return explanation(works, setting)


@settings(deadline=None, max_examples=examples(90))
@given(st.lists(valid_pods(), min_size=1, max_size=3), st.sampled_from(RELEASES), st.sampled_from(RELEASES), st.data())
def test_a_change_is_reported_exactly_if_explain_differs(
    documents: list[Json], first: str, second: str, data: st.DataObject
) -> None:
    """Every fact that two explanations show differently, and no other."""
    gate = {} if data.draw(st.booleans()) else QOS_ON
    old, new = side(first, gate), side(second, gate)
    pods = [NamedPod(f"default/p{index}", as_created(lean(each))) for index, each in enumerate(documents)]
    gates = [each.setting().policy.gates for each in (old, new)]
    settings_of = [each.setting() for each in (old, new)]
    assume(
        not any(
            refusal_errors(defaulted_on(each.pod, setting), (), known)
            for each in pods
            for setting, known in zip(settings_of, gates, strict=True)
        )
    )
    changes, comparison = found(old, new, *pods)
    reported = {
        (each.subject if each.pod else each.subject.removeprefix("n: "), each.what, each.old, each.new)
        for each in changes
        if each.kind not in ("resize", "oom order")
    }
    expected = {
        ("all pods" if row.where == "node" else row.where, row.what, row.first, row.second)
        for row in differences(explained(pods, old), explained(pods, new))
    }
    assert reported == expected
    assert all(cause in comparison.causes for each in changes for cause in each.causes)


def with_pod_level(memory: str) -> Json:
    """Of a container that has 1 MiB."""
    container = {"name": "c0", "image": "i", "resources": {"limits": {"memory": "1Mi"}}}
    whole = {"requests": {"cpu": "0", "memory": memory}, "limits": {"memory": memory}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], "resources": whole}}


def burstable(pod_level: Json | None, *init: Json, **requests: str) -> Json:
    containers = [{"name": "c0", "image": "i"}, {"name": "c1", "image": "i", "resources": {"requests": requests}}]
    whole = {} if pod_level is None else {"resources": pod_level}
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": list(init), **whole}}


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(valid_pods(), min_size=2, max_size=3), st.sampled_from(RELEASES), st.sampled_from(RELEASES))
@example(
    [
        burstable(None, memory="1Mi"),
        burstable({}, {"name": "i0", "image": "i", "resources": {"requests": {"memory": "1"}}}),
    ],
    "1.27",
    "1.36",
)
@example([with_pod_level("1Mi"), with_pod_level("2Mi")], "1.27", "1.37")
def test_what_is_known_about_one_form_is_true_of_the_next_pod(documents: list[Json], first: str, second: str) -> None:
    """One comparison for all gives the causes that a comparison for each gives. What a pod gets under contention depends
    on all pods of a node; there, nodes share what is known."""
    old, new = side(first, QOS_ON), side(second, QOS_ON)
    shared = Comparison()
    for index, document in enumerate(documents):
        pods = [NamedPod(f"default/p{index}", lean(document))]
        for together, alone in zip(
            shared.changes("n", old, new, pods), Comparison().changes("n", old, new, pods), strict=True
        ):
            if together.kind not in ("protection", "cpu share"):
                assert together == alone


def all_facts(pods: Sequence[NamedPod], node: NodeConfig) -> Any:
    created = [stored(each, node) for each in pods]
    return value_facts(created, node, WITHOUT_REASONS), answers(created, node)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(valid_pods(), min_size=1, max_size=2), st.sampled_from(RELEASES), st.sampled_from(RELEASES))
def test_a_part_that_was_not_read_changes_nothing(documents: list[Json], first: str, second: str) -> None:
    """So it need not be tried: neither alone nor missing does it change a value or an answer to a resize."""
    old, new = side(first, QOS_ON), side(second, QOS_ON)
    pods = [NamedPod(f"default/p{index}", as_created(lean(each))) for index, each in enumerate(documents)]
    tried = 0
    for here, there in ((old, new), (new, old)):
        setting, read = recorded(here.setting())
        usual = all_facts(pods, setting)
        for part in parts(old, new):
            other = taken(here, part, there).setting()
            if read.isdisjoint(differing(here.setting(), other)):
                tried += 1
                assert all_facts(pods, other) == usual, part
    assume(tried)


def test_settings_that_are_read_are_recorded() -> None:
    setting, read = recorded(side("1.37").setting())
    assert setting.policy.gates.pod_level and setting.config.gate("MemoryQoS") and setting.driver == "cgroupfs"
    assert read == {
        ("node", "policy"), ("policy", "gates"), ("gates", "pod_level"), ("node", "config"), ("config", "gate"),
        ("gate", "MemoryQoS"), ("node", "driver"),
    }  # fmt: skip
    copy = msgspec.structs.replace(setting.policy, memory_qos=False)
    assert copy.weight and ("policy", "weight") in read, "a copy records too"


def test_as_created_keeps_the_rest() -> None:
    given_pod = lean({"metadata": {"name": "p"}, "spec": {}, "status": {"qosClass": "Burstable", "phase": "Running"}})
    made = as_created(given_pod)
    assert (made.status.qos_class, made.status.phase) == (None, "Running")
    assert msgspec.structs.replace(made, status=given_pod.status) == given_pod
