"""Everything `explain` says, as values: total on valid pods, and its arithmetic is true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.cli.explain.script import script
from plimsoll.cli.explain.tree import table_lines, tree_lines
from plimsoll.cli.terminal import Paint
from plimsoll.rules.cgroups.desired import Cgroup, workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.differences import differences
from plimsoll.rules.explain.explanation import EvictionKeys, Explanation, allocatable_steps, explanation, texts
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import MAX_INT64, parse
from plimsoll.rules.resources.bounds import oversized
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, valid_pods

GI = 1 << 30


def setting_of(document: Json | None = None, machine: Machine | None = None, profile: str = "1.36") -> NodeConfig:
    return resolved(
        machine or Machine(4, 8 * GI, {}, name="n"),
        reading(document, profile_named(profile)).config,
        profile_named(profile),
    )


def pod(block: Json, **fields: Any) -> Json:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": block}], **fields},
    }


def explained(document: Json, setting: NodeConfig, *, advise: bool = False) -> Explanation:
    return explanation([workload(lean(document), setting)], setting, advise=advise)


def every(cgroup: Cgroup) -> Iterator[Cgroup]:
    yield cgroup
    for child in cgroup.children:
        yield from every(child)


def tree_form(found: Explanation, setting: NodeConfig) -> None:
    for colour in (False, True):
        for brief in (False, True):
            assert list(tree_lines(found, Paint(colour), brief=brief, advise=True))


def table_form(found: Explanation, setting: NodeConfig) -> None:
    assert list(table_lines(found))


def json_form(found: Explanation, setting: NodeConfig) -> None:
    assert json.loads(msgspec.json.encode(found))["tree"]["level"] == "node"


def yaml_form(found: Explanation, setting: NodeConfig) -> None:
    assert yaml.safe_load(yaml.safe_dump(msgspec.to_builtins(found)))["node"]["profile"] == setting.profile.name


def script_form(found: Explanation, setting: NodeConfig) -> None:
    assert script(found, setting).startswith("#!/bin/sh\n")


FORMS = (tree_form, table_form, json_form, script_form, yaml_form)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(valid_pods(), max_size=3), node_settings(static_cpus=None), st.booleans(), st.sampled_from(FORMS))
def test_explain_is_total(documents: list[Json], setting: NodeConfig, advise: bool, form: Any) -> None:
    works = [workload(lean(document), setting, title=f"p{index}") for index, document in enumerate(documents)]
    found = explanation(works, setting, advise=advise)
    assert [each.qos_class for each in found.pods] == [work.qos for work in works]
    form(found, setting)
    assert differences(found, found) == []


GIANTS = [
    ("cpu limit 1e400", pod({"limits": {"cpu": "1e400"}})),
    ("cpu request 1e400", pod({"requests": {"cpu": "1e400"}})),
    ("memory 1e400", pod({"limits": {"memory": "1e400"}})),
    ("memory request 1e400", pod({"requests": {"memory": "1e400"}})),
    ("memory between", pod({"requests": {"memory": "1"}, "limits": {"memory": "1e400"}})),
    ("overhead 1e400", pod({}, overhead={"cpu": "1e400", "memory": "1e400"})),
    ("pod level 1e400", pod({}, resources={"limits": {"cpu": "1e400", "memory": "1e400"}})),
    ("8Ei", pod({"limits": {"cpu": "8Ei", "memory": "8Ei"}})),
    ("one beyond 63 bits", pod({"limits": {"memory": str(MAX_INT64 + 1)}})),
    ("together beyond 63 bits", pod({"limits": {"memory": str(MAX_INT64)}}, overhead={"memory": "1"})),
]
MOST = {"cpu": f"{MAX_INT64}m", "memory": str(MAX_INT64)}
LARGEST = [
    ("limits", pod({"limits": MOST})),
    ("requests", pod({"requests": MOST})),
    ("cpu", pod({"limits": {"cpu": MOST["cpu"]}})),
    ("memory between", pod({"requests": {"memory": "1"}, "limits": {"memory": MOST["memory"]}})),
    ("just below", pod({"limits": {"cpu": f"{MAX_INT64 - 1}m", "memory": "7Ei"}})),
    ("overhead", pod({}, overhead=MOST)),
    ("pod level", pod({}, resources={"limits": MOST})),
]


@pytest.mark.parametrize("document", [row[1] for row in GIANTS], ids=[row[0] for row in GIANTS])
def test_an_amount_beyond_the_bound_is_refused(document: Json) -> None:
    """01 Q-14: no value can be computed from it."""
    assert oversized(lean(document))


@pytest.mark.parametrize("document", [row[1] for row in LARGEST], ids=[row[0] for row in LARGEST])
@pytest.mark.parametrize("gates", [{}, {"MemoryQoS": True}], ids=["", "MemoryQoS"])
def test_explain_is_total_on_giants(document: Json, gates: dict[str, bool]) -> None:
    """01 §1, §4: the largest amounts that are not refused have values."""
    assert not oversized(lean(document))
    config = {"featureGates": gates, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    setting = setting_of(config, Machine(4, 8 * GI, {}, swap_bytes=GI))
    found = explained(document, setting, advise=True)
    (container,) = (cgroup for cgroup in every(found.tree) if cgroup.level == "container")
    assert container.files and found.pods
    for form in FORMS:
        form(found, setting)


# --- allocatable steps ---


def check_steps(setting: NodeConfig, name: str) -> None:
    text = allocatable_steps(setting, name)
    expression, _, result = text.partition(" = ")
    floored = expression.startswith("max(0, ")  # how a sum that is cut off at zero may be written (N-8)
    if floored:
        expression = expression.removeprefix("max(0, ").removesuffix(")")
    first, *others = (parse(term) for term in expression.split(" − "))
    total = first.nanos - sum(other.nanos for other in others)
    if floored:
        total = max(0, total)
    assert total == (parse(result).nanos if result else setting.allocatable[name].nanos), text
    assert parse(result or expression) == setting.allocatable[name]


@settings(max_examples=examples(100), deadline=None)
@given(node_settings(static_cpus=None))
def test_allocatable_steps_are_true(setting: NodeConfig) -> None:
    for name in setting.allocatable:
        check_steps(setting, name)


STEPS = [
    ("01 §10.5", {"systemReserved": {"cpu": "2", "memory": "4Gi"}, "evictionHard": {"memory.available": "500Mi"}}, Machine(48, 263192560 * 1024, {}),
     ("48 − 2 = 46", "263192560Ki − 4Gi − 500Mi = 258486256Ki")),
    ("01 §10.5 huge pages", {"systemReserved": {"memory": "4Gi"}, "evictionHard": {"memory.available": "500Mi"}},
     Machine(48, 263192560 * 1024, {"hugepages-1Gi": parse("10Gi")}), ("48", "263192560Ki − 4Gi − 500Mi − 10Gi = 248000496Ki")),
    ("nothing taken off", {"evictionHard": {"nodefs.available": "5%"}}, Machine(4, 8 * GI, {}), ("4", "8Gi")),
]  # fmt: skip


@pytest.mark.parametrize(("config", "machine", "expected"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_steps(config: Json, machine: Machine, expected: tuple[str, str]) -> None:
    setting = setting_of(config, machine)
    assert (allocatable_steps(setting, "cpu"), allocatable_steps(setting, "memory")) == expected


def test_steps_where_huge_pages_leave_nothing() -> None:
    """N-8: floor 0; the steps must not claim that 8Gi − 100Mi − 8Gi is 0."""
    check_steps(setting_of(machine=Machine(4, 8 * GI, {"hugepages-1Gi": parse("8Gi")})), "memory")


# --- single facts ---


def test_node_facts() -> None:
    found = explained(pod({}), setting_of()).node
    assert (found.name, found.profile, found.cgroup_version, found.driver, found.runtime) == (
        "n",
        "1.36",
        2,
        "cgroupfs",
        "containerd",
    )
    assert found.capacity == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert found.allocatable["memory"] == "8092Mi"
    assert found.shared_cpus is None


def test_shared_cpus() -> None:
    setting = setting_of({"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}})
    found = explained(pod({"limits": {"cpu": "2", "memory": "1Gi"}}), setting)
    assert (found.node.shared_cpus, found.pods[0].exclusive_cpus) == (2, 2)


EVICTION = [
    ("BestEffort", pod({}), {}, (0, 0, False), "its request is 0"),
    ("Burstable", pod({"requests": {"memory": "1Gi"}}, priority=7), {}, (GI, 7, False), "lower priority first (this one: 7)"),
    ("critical", pod({}, priority=2_000_000_000), {}, (0, 2_000_000_000, True), "exempt"),
    ("04 §5 overhead on top of something", pod({"requests": {"memory": "1Gi"}}, overhead={"memory": "1Gi"}), {}, (2 * GI, 0, False), "once it uses more than"),
    ("pod level", pod({"requests": {"memory": "1Gi"}}, resources={"requests": {"memory": "3Gi"}}), {}, (3 * GI, 0, False), "once it uses more than"),
    ("pod level with the gate off", pod({"requests": {"memory": "1Gi"}}, resources={"requests": {"memory": "3Gi"}}), {"PodLevelResources": False},
     (GI, 0, False), "once it uses more than"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "gates", "keys", "words"), [row[1:] for row in EVICTION], ids=[row[0] for row in EVICTION]
)
def test_eviction(document: Json, gates: dict[str, bool], keys: tuple[int, int, bool], words: str) -> None:
    found = explained(document, setting_of({"featureGates": gates})).pods[0].eviction
    assert found == EvictionKeys(*keys)
    assert words in found.sentence()


def test_advice_only_when_asked() -> None:
    assert explained(pod({}), setting_of()).pods[0].advice == ()
    assert len(explained(pod({}), setting_of(), advise=True).pods[0].advice) == 2


def test_texts() -> None:
    assert texts({"cpu": parse("0.5"), "memory": parse("1024Mi")}) == {"cpu": "500m", "memory": "1Gi"}
