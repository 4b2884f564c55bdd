"""The five documents, row by row: each `test_row[ID]` that docs/documents.md names, and no other.

A row is checked by everything that carries its id: cases and formula lines of examples/documents/expected.yaml, all worked
out by hand, and the functions marked `@row` below, for what no table says. The last tests hold the page, the examples and
this module to each other.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from plimsoll.cli.main import main
from plimsoll.codec.lean import from_document
from plimsoll.codec.yaml import Document, YamlError, read
from plimsoll.errors import FieldError, InvalidConfig, InvalidConfigs, InvalidQuantity
from plimsoll.rules import cpu as cpu_rules
from plimsoll.rules.advice import pod_warnings, setting_warnings
from plimsoll.rules.allocatable import ClassSums, qos_reserved_limits
from plimsoll.rules.config_reading import Reading, default_config, reading
from plimsoll.rules.defaulting import defaulted
from plimsoll.rules.desired import Cgroup, Workload, desired_tree, workload
from plimsoll.rules.explanation import explanation
from plimsoll.rules.fit import amounts, node_load, resident_load, verdict, waiting_load
from plimsoll.rules.hierarchy import cgroup_path, container_component, misplaced_container_path, pod_name
from plimsoll.rules.names import is_extended, is_hugepages, is_native, page_size
from plimsoll.rules.objects import Node, Pod, QoSClass, ResourceList
from plimsoll.rules.oom import (
    BEST_EFFORT_SCORE,
    GUARANTEED_SCORE,
    KUBELET_SCORE,
    SANDBOX_SCORE,
    clamped,
    oom_scores,
)
from plimsoll.rules.policy import CgroupVersion, NodePolicy
from plimsoll.rules.profile import PROFILE_1_27, PROFILE_1_36, PROFILES
from plimsoll.rules.qos import computed_qos_class
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.ranking import ranked
from plimsoll.rules.resize_api import capacity_verdict, class_errors
from plimsoll.rules.setting import Setting, machine_from_capacity, resolved
from plimsoll.rules.thresholds import MEMORY_AVAILABLE
from plimsoll.rules.usage import PodUsage
from plimsoll.rules.validation import create_errors
from plimsoll.rules.versions import Version

Json = dict[str, Any]
Check = Callable[[], None]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "documents.md"
EXAMPLES = ROOT / "examples"
DOCUMENTS = EXAMPLES / "documents"
EXPECTED = DOCUMENTS / "expected.yaml"

VERSIONS: tuple[CgroupVersion, ...] = (1, 2)
DRIVERS = ("cgroupfs", "systemd")
UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"  # document 002's
ID = "0123456789abcdef" * 4

CHECKS: dict[str, list[Check]] = defaultdict(list)


def row(*ids: str) -> Callable[[Check], Check]:
    """The function checks these rows."""

    def registered(check: Check) -> Check:
        for each in ids:
            CHECKS[each].append(check)
        return check

    return registered


# --- examples and the node they are explained for ---


@cache
def _documents(file: Path) -> tuple[Any, ...]:
    found = []
    for each in read(file.read_bytes()):
        assert isinstance(each, Document), f"{file.name}: {each}"
        found.append(each.value)
    return tuple(found)


def manifest(name: str) -> Any:
    """One document, to be changed at will: of `documents/`, or of `examples/` if it says so."""
    folder = EXAMPLES if name.startswith("examples/") else DOCUMENTS
    (document,) = _documents(folder / name.removeprefix("examples/"))
    return copy.deepcopy(document)


def container(document: Any, name: str) -> Any:
    return next(each for each in document["spec"]["containers"] if each["name"] == name)


def lean(document: Any) -> Pod:
    return from_document(document, Pod)


def one_container(requests: Json | None = None, limits: Json | None = None) -> Any:
    return {
        "metadata": {"name": "one", "uid": UID},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}}]},
    }


def read_config(
    name: str | None, profile: str = "1.27", gates: Json | None = None, settings: Json | None = None
) -> Reading:
    document = {} if name is None else manifest(name)
    document = {**document, **(settings or {}), "featureGates": {**document.get("featureGates", {}), **(gates or {})}}
    return reading(document, PROFILES[profile])


def node(
    name: str = "004-node.yaml",
    config: str | None = "004-kubelet-config.yaml",
    *,
    profile: str = "1.27",
    version: CgroupVersion = 2,
    driver: Any = None,
    runtime: Any = "containerd",
    gates: Json | None = None,
    settings: Json | None = None,
    capacity: Json | None = None,
) -> Setting:
    """Document 004's node, unless told otherwise."""
    described = from_document(manifest(name), Node)
    return resolved(
        machine_from_capacity({**(described.status.capacity or {}), **amount_list(capacity or {})}),
        read_config(config, profile, gates, settings).config,
        PROFILES[profile],
        cgroup_version=version,
        driver=driver,
        runtime=runtime,
    )


def amount(text: Any) -> Quantity:
    return QUANTITIES[str(text)]


def amount_list(texts: Json) -> ResourceList:
    return {name: amount(text) for name, text in texts.items()}


def work(document: Any, setting: Setting | None = None) -> Workload:
    return workload(lean(manifest(document) if isinstance(document, str) else document), setting or node())


def tree(setting: Setting, *documents: Any) -> Cgroup:
    """The node with these pods on it, named by file or given as documents."""
    return desired_tree([work(each, setting) for each in documents], setting)


def cgroups(top: Cgroup) -> Iterator[Cgroup]:
    yield top
    for child in top.children:
        yield from cgroups(child)


def at(top: Cgroup, level: str, name: str = "") -> Cgroup:
    """The one cgroup of this level (and name)."""
    (found,) = (each for each in cgroups(top) if each.level == level and name in ("", each.name))
    return found


def written(top: Cgroup) -> list[tuple[str, str, int | str]]:
    """Path, file and value. Pods that have no uid yet share a path, so this is no mapping."""
    return [(each.path, file.name, file.value) for each in cgroups(top) for file in each.files]


def explained(*arguments: str) -> str:
    """What `plimsoll explain` prints; it must succeed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["explain", *arguments])
    assert code == 0, err.getvalue()
    return out.getvalue()


def refusal(document: Any) -> list[FieldError]:
    return create_errors(defaulted(lean(document)))


def config_problems(settings: Json) -> dict[str, str]:
    with pytest.raises(InvalidConfigs) as raised:
        read_config(None, settings=settings)
    return {each.path: each.reason for each in raised.value.errors}


# --- expected.yaml: cases ---

_CASE_KEYS = {"ids", "profile", "node", "config", "featureGates", "settings"}
_POD_KEYS = {"qosClass", "pod", "containers", "scheduler"}
_NODE_KEYS = {"capacity", "allocatable", "allocatableAbsolute", "pods", "kubepods", "burstable", "besteffort"}


class Comparison:
    """Found and expected values side by side, so that one failure shows all of a case's."""

    def __init__(self) -> None:
        self.found: Json = {}
        self.expected: Json = {}

    def add(self, what: str, found: Any, expected: Any) -> None:
        self.found[what], self.expected[what] = found, None if expected == "unset" else expected

    def add_files(self, what: str, cgroup: Cgroup, expected: Json) -> None:
        for name, value in expected.items():
            self.add(f"{what} {name}", cgroup.value(name), value)

    def add_amounts(self, what: str, found: ResourceList, expected: Json) -> None:
        """Exactly these names, equal by value."""
        self.add(what, found, amount_list(expected))

    def hold(self) -> None:
        assert self.expected, "a case without a statement"
        assert self.found == self.expected


def case_setting(file: str, case: Json, version: CgroupVersion, driver: str) -> Setting:
    return node(
        case.get("node", file),
        None if case["config"] == "unset" else case["config"],
        profile=case["profile"],
        version=version,
        driver=driver,
        gates=case.get("featureGates"),
        settings=case.get("settings"),
    )


def check_pod_case(file: str, case: Json) -> None:
    assert case.keys() <= _CASE_KEYS | _POD_KEYS
    compared = Comparison()
    for version in VERSIONS:
        for driver in DRIVERS:
            setting = case_setting(file, case, version, driver)
            where = f"{file} {case['profile']} v{version} {driver}:"
            compare_pod(compared, where, work(file, setting), tree(setting, file), case, f"v{version}", driver)
            if "scheduler" in case:
                counted = resident_load(lean(manifest(file)), setting.profile).requests
                compared.add(f"{where} counted", counted, amounts(amount_list(case["scheduler"])))
    compared.hold()


def compare_pod(
    compared: Comparison, where: str, found: Workload, top: Cgroup, case: Json, version: str, driver: str
) -> None:
    expected = case.get("pod", {})
    assert expected.keys() <= {"requests", "limits", "paths", "v1", "v2"}
    if "qosClass" in case:
        compared.add(f"{where} class", found.qos, case["qosClass"])
    for kind, amounts_found in (("requests", found.requests), ("limits", found.limits)):
        if kind in expected:
            compared.add_amounts(f"{where} pod {kind}", amounts_found, expected[kind])
    pod = at(top, "pod")
    if driver in expected.get("paths", {}):
        compared.add(f"{where} path", pod.path, f"/{expected['paths'][driver]}")
    compared.add_files(f"{where} pod", pod, expected.get(version, {}))
    names = {each.name: each for each in found.containers}
    for name, facts in case.get("containers", {}).items():
        assert facts.keys() <= {"requests", "limits", "oom_score_adj", "v1", "v2"}
        cgroup = at(top, "container", name)
        for kind in ("requests", "limits"):
            if kind in facts:
                own = getattr(names[name].resources, kind) or {}
                compared.add_amounts(f"{where} {name} {kind}", own, facts[kind])
        if "oom_score_adj" in facts:
            compared.add(f"{where} {name} oom_score_adj", cgroup.oom_score_adj, facts["oom_score_adj"])
        compared.add_files(f"{where} {name}", cgroup, facts.get(version, {}))


def check_node_case(file: str, case: Json) -> None:
    assert case.keys() <= _CASE_KEYS | _NODE_KEYS
    compared = Comparison()
    for version in VERSIONS:
        for driver in DRIVERS:
            setting = case_setting(file, case, version, driver)
            where = f"{file} {case['profile']} v{version} {driver}:"
            for key, amounts_found in (
                ("capacity", setting.capacity),
                ("allocatable", setting.allocatable),
                ("allocatableAbsolute", {name: setting.absolute[name] for name in case.get("allocatableAbsolute", ())}),
            ):
                if key in case:
                    compared.add_amounts(f"{where} {key}", amounts_found, case[key])
            top = tree(setting, *case.get("pods", ()))
            for key, cgroup in (
                ("kubepods", at(top, "pods")),
                ("burstable", at(top, "class", "Burstable")),
                ("besteffort", at(top, "class", "BestEffort")),
            ):
                compared.add_files(f"{where} {key}", cgroup, case.get(key, {}).get(f"v{version}", {}))
    compared.hold()


# --- expected.yaml: formulas ---


def cpu_line(milli: int, shares: int, weightLinear: int, weightNew: int, quota: int) -> None:
    assert cpu_rules.shares(milli) == shares
    assert cpu_rules.weight_linear(shares) == weightLinear
    assert cpu_rules.weight_quadratic(shares) == weightNew
    assert cpu_rules.quota_us(milli) == quota


def milli_from_shares_line(shares: int, milli: int) -> None:
    assert cpu_rules.milli_from_shares(shares) == milli


def shares_from_weight_line(weight: int, shares: int, milli: int) -> None:
    assert cpu_rules.shares_from_weight(weight) == shares
    assert cpu_rules.milli_from_shares(shares) == milli


def oom_line(request: str, capacity: str, adj: int) -> None:
    pod = lean(one_container({"cpu": "1m", "memory": request}))
    assert oom_scores(pod, "Burstable", amount(capacity).value) == [adj]


def oom_constants_line(
    kubelet: int, guaranteed: int, bestEffort: int, nodeCritical: int, burstableMin: int, burstableMax: int
) -> None:
    assert kubelet == KUBELET_SCORE
    assert {default_config(profile).kubelet_oom_score_adj for profile in PROFILES.values()} == {kubelet}
    assert (guaranteed, bestEffort) == (GUARANTEED_SCORE, BEST_EFFORT_SCORE)
    assert work("examples/critical.yaml").scores == (nodeCritical,)
    assert {clamped(score) for score in range(-2000, 1001)} == set(range(burstableMin, burstableMax + 1))


def memory_high_line(request: str, limit: str, profile: str, high: int | str) -> None:
    requests, limits = ({"memory": text} if text != "none" else {} for text in (request, limit))
    found = work(one_container(requests, limits), node(profile=profile, gates={"MemoryQoS": True}))
    assert found.container_values[0].memory_high_bytes == (None if high == "unset" else high)


def allocatable_line(evictionHard: str, cpu: str, memory: str, absolute: int, hugepages1Gi: str = "0") -> None:
    setting = node(
        settings={"evictionHard": {"memory.available": evictionHard}}, capacity={"hugepages-1Gi": hugepages1Gi}
    )
    assert setting.allocatable["cpu"] == amount(cpu)
    assert str(setting.allocatable["memory"]) == memory
    assert setting.absolute["memory"].value == absolute
    if evictionHard == "100Mi":  # which is what nobody has to say
        assert default_config(setting.profile).eviction_hard["memory.available"] == evictionHard


def qos_reserved_line(A: str, G: str, B: str, percent: int, burstable: str, besteffort: str) -> None:
    total, guaranteed, middle = (amount(text).value for text in (A, G, B))
    limits = qos_reserved_limits(
        ClassSums(0, guaranteed, middle),
        NodePolicy(memory_capacity_bytes=total, allocatable_memory_bytes=total),
        percent,
    )
    assert limits == (amount(burstable).value, amount(besteffort).value)


def timeline_line(T: int, spec: str, allocated: str, resize: str, counted: str) -> None:
    document = manifest("003-timeline.yaml")
    container(document, "app")["resources"]["requests"]["cpu"] = spec
    document["status"] = {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": allocated}}]}
    if resize != "unset":
        document["status"]["resize"] = resize
    assert resident_load(lean(document), PROFILE_1_27).requests == {"cpu": amount(counted).milli}, f"T={T}"


FORMULAS: dict[str, Callable[..., None]] = {
    "cpu": cpu_line,
    "milliFromShares": milli_from_shares_line,
    "sharesFromWeight": shares_from_weight_line,
    "oom": oom_line,
    "oomConstants": oom_constants_line,
    "memoryHigh": memory_high_line,
    "allocatable": allocatable_line,
    "qosReserved": qos_reserved_line,
    "timeline": timeline_line,
}
WAITING = {"describePercent"}  # tables that nothing computes yet


def add_expected() -> None:
    (expected,) = _documents(EXPECTED)
    for file, cases in expected["files"].items():
        check = check_node_case if manifest(file)["kind"] == "Node" else check_pod_case
        for case in cases:
            for each in case["ids"]:
                CHECKS[each].append(partial(check, file, case))
    for name, table in expected["formulas"].items():
        for line in table["lines"]:
            values = {key: value for key, value in line.items() if key != "ids"}
            for each in {*table["ids"], *line.get("ids", ())}:
                CHECKS[each].append(partial(FORMULAS[name], **values))


add_expected()


# --- document 000 ---


@row("000-01")
def memory_qos_is_off_and_its_formula_is_that_of_1_27() -> None:
    assert list(PROFILES) == ["1.27", "1.36"]
    assert not any(default_config(profile).gate("MemoryQoS") for profile in PROFILES.values())
    # 1.26 had 0.8 × limit: 335544320 for 300Mi/400Mi. The table beside this has what both profiles give.
    assert {default_config(profile).memory_throttling_factor for profile in PROFILES.values()} == {0.9}


@row("000-04", "004-54")
def requests_may_add_up_to_allocatable_exactly() -> None:
    setting = node()
    here = Node(status=msgspec.structs.replace(Node().status, allocatable=setting.allocatable))
    load = node_load(here, [lean(one_container({"cpu": "45", "memory": "1Gi"}))], setting.profile)

    def fits(requests: Json) -> bool:
        document = one_container(requests)
        document["metadata"]["uid"] = "another"
        return verdict(waiting_load(lean(document)), load, setting.profile).fits

    assert fits({"cpu": "1"}) and not fits({"cpu": "1001m"})
    assert fits({"memory": "257437680Ki"}) and not fits({"memory": "257437681Ki"})  # 258486256 − 1048576
    assert fits({"cpu": "0", "memory": "0"})


@row("000-08")
def without_the_gate_nothing_is_protected() -> None:
    for profile in PROFILES:
        top = tree(node(profile=profile), "000-example.yaml", "003-demo.yaml")
        names = {file for _, file, _ in written(top)}
        assert "memory.max" in names
        assert names.isdisjoint({"memory.min", "memory.low", "memory.high"})


@row("000-10")
def v1_has_no_memory_qos() -> None:
    files = [each.name for each in DOCUMENTS.glob("00[0-4]-*.yaml") if manifest(each.name)["kind"] == "Pod"]
    for profile in PROFILES:
        on, off = (node(profile=profile, version=1, gates={"MemoryQoS": gate}) for gate in (True, False))
        assert written(tree(on, *files)) == written(tree(off, *files))
        assert any("no effect on cgroup v1" in warning for warning in setting_warnings(on))
        assert not any("MemoryQoS" in warning for warning in setting_warnings(off))


@row("000-11")
def memory_that_can_never_be_reclaimed_is_warned_of() -> None:
    setting = node(gates={"MemoryQoS": True})
    assert any("memory.min equals memory.max" in each for each in pod_warnings(work("003-demo.yaml", setting), setting))
    assert pod_warnings(work("004-busybox.yaml", setting), setting) == []


@row("000-14")
def group_kill_came_after_1_27() -> None:
    assert at(tree(node(), "002-qos-demo.yaml"), "container").value("memory.oom.group") is None
    v1 = tree(node(profile="1.36", version=1), "002-qos-demo.yaml")
    assert at(v1, "container").value("memory.oom.group") is None


@row("000-16")
def limit_is_no_part_of_memory_qos() -> None:
    for gate in (False, True):
        top = tree(node(gates={"MemoryQoS": gate}), "000-example.yaml")
        assert [at(top, level).value("memory.max") for level in ("pod", "container")] == [67108864, 67108864]


@row("000-18")
def profile_1_27_never_writes_memory_low() -> None:
    pods = ("000-example.yaml", "003-demo.yaml", "002-besteffort.yaml")
    names = {file for _, file, _ in written(tree(node(gates={"MemoryQoS": True}), *pods))}
    assert {"memory.max", "memory.min", "memory.high"} <= names and "memory.low" not in names


@row("000-20")
def throttling_factor_lies_above_0_and_up_to_1() -> None:
    for profile in PROFILES:
        assert read_config(None, profile).config.memory_throttling_factor == 0.9
        assert read_config(None, profile, settings={"memoryThrottlingFactor": 1}).config.memory_throttling_factor == 1
    for factor in (0, -0.1, 1.01):
        assert list(config_problems({"memoryThrottlingFactor": factor})) == ["memoryThrottlingFactor"]


@row("000-22")
def absolute_allocatable_stands_in_for_the_limit() -> None:
    setting = node(gates={"MemoryQoS": True})
    assert setting.policy.allocatable_memory_bytes == 265214214144
    assert setting.allocatable["memory"] == amount("258486256Ki") != amount("265214214144")


@row("000-24")
def only_containers_are_throttled() -> None:
    for profile in PROFILES:
        top = tree(node(profile=profile, gates={"MemoryQoS": True}), "004-busybox.yaml")
        assert {each.level for each in cgroups(top) if each.value("memory.high") is not None} == {"container"}


@row("000-26")
def container_without_request_has_no_memory_min() -> None:
    top = tree(node(gates={"MemoryQoS": True}), "002-burstable-bar-empty.yaml")
    assert at(top, "container", "bar").value("memory.min") is None


@row("000-27")
def every_ancestor_carries_memory_min() -> None:
    top = tree(node(gates={"MemoryQoS": True}), "004-busybox.yaml")
    for level, name in (("pods", ""), ("class", "Burstable"), ("pod", ""), ("container", "")):
        assert at(top, level, name).value("memory.min") == 314572800, level


@row("000-36")
def note_says_that_real_1_27_did_otherwise() -> None:
    top = tree(node(gates={"MemoryQoS": True}), "002-besteffort.yaml")
    (high,) = (file for file in at(top, "container", "foo").files if file.name == "memory.high")
    assert "real 1.27 did not" in high.reason.note


@row("000-40")
def memory_qos_configuration() -> None:
    for profile in PROFILES:
        found = read_config("000-kubelet-memory-qos.yaml", profile)
        assert found.config.gate("MemoryQoS") and found.config.memory_throttling_factor == 0.9
        assert (found.without_effect, found.notes) == ([], [])


# --- document 001 ---


def resources_of_bar(**changes: Json) -> Any:
    """002-guaranteed-equal.yaml with other resources for bar."""
    document = manifest("002-guaranteed-equal.yaml")
    container(document, "bar")["resources"] = changes
    return document


@row("001-01", "004-40")
def one_class_per_pod() -> None:
    assert work("002-guaranteed-equal.yaml").qos == "Guaranteed"
    assert work("002-burstable-bar-empty.yaml").qos == "Burstable"
    assert work("002-besteffort.yaml").qos == "BestEffort"


@row("001-01")
def init_containers_count_for_the_class() -> None:
    document = manifest("002-guaranteed-equal.yaml")
    document["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
    assert work(document).qos == "Burstable"


@row("001-02", "002-11")
def three_classes_from_best_to_least_protected() -> None:
    assert get_args(QoSClass) == ("Guaranteed", "Burstable", "BestEffort")
    found = [work(f"examples/{name}.yaml") for name in ("guaranteed", "burstable", "besteffort")]
    assert tuple(each.qos for each in found) == get_args(QoSClass)
    guaranteed, burstable, besteffort = (each.scores[0] for each in found)
    assert guaranteed < burstable < besteffort


def eviction_order(*pods: tuple[str, Json, Json, int, str]) -> list[str]:
    """Of pods as (name, requests, limits, priority, memory in use); the name of an exempt one in parentheses."""
    found, usage = [], {}
    for name, requests, limits, priority, used in pods:
        document = one_container(requests, limits)
        document["metadata"] = {"name": name, "uid": name}
        document["spec"]["priority"] = priority
        found.append(lean(document))
        usage[name] = PodUsage(memory_bytes=amount(used).value)
    order = ranked(found, usage, MEMORY_AVAILABLE)
    return [f"({each.pod.metadata.name})" if each.critical else each.pod.metadata.name for each in order]


@row("001-03", "001-04")
def eviction_asks_for_excess_and_priority_not_for_the_class() -> None:
    all_1_gi = {"cpu": "1", "memory": "1Gi"}
    order = eviction_order(
        ("D", all_1_gi, all_1_gi, 0, "900Mi"),
        ("C", {"cpu": "1"}, {}, 10, "500Mi"),
        ("B", {"memory": "100Mi"}, {}, 0, "300Mi"),
        ("A", {}, {}, 0, "50Mi"),
    )
    assert order == ["B", "A", "C", "D"]  # D is within its request: last, but there


@row("001-04")
def only_critical_pods_are_exempt() -> None:
    pods = [(str(priority), {}, {}, priority, "1Gi") for priority in (0, 1999999999, 2000000000)]
    assert eviction_order(*pods) == ["0", "1999999999", "(2000000000)"]


@row("001-14")
def besteffort_of_high_priority_outlives_burstable_of_low() -> None:
    assert eviction_order(("best", {}, {}, 10, "1Gi"), ("burst", {"memory": "1Mi"}, {}, 0, "2Mi")) == ["burst", "best"]


@row("001-19")
def besteffort_goes_early_because_it_requested_nothing() -> None:
    assert eviction_order(("burst", {"memory": "2Gi"}, {}, 0, "1Gi"), ("best", {}, {}, 0, "1Mi")) == ["best", "burst"]


@row("001-07")
def only_whole_cpus_are_exclusive() -> None:
    for profile in PROFILES:
        setting = node("001-node-16.yaml", "001-kubelet-static-cpu.yaml", profile=profile)
        document = manifest("001-guaranteed-4-cpus.yaml")
        assert work(document, setting).exclusive_cpus == 4
        assert work(document, node(profile=profile)).exclusive_cpus == 0  # policy none
        for kind in ("requests", "limits"):
            container(document, "worker")["resources"][kind]["cpu"] = "3500m"
        assert work(document, setting).exclusive_cpus == 0
        assert at(tree(setting, document), "container").value("cpu.max") == "350000 100000"


@row("001-08", "001-09", "001-10")
def guaranteed_takes_both_figures_equal_in_every_container() -> None:
    full = {"cpu": "100m", "memory": "100Mi"}
    assert work(resources_of_bar(requests=full, limits=full)).qos == "Guaranteed"
    assert work(resources_of_bar(limits=full)).qos == "Guaranteed"  # requests are filled from limits


@row("001-08")
def no_memory_figures_in_one_container() -> None:
    assert work(resources_of_bar(requests={"cpu": "100m"}, limits={"cpu": "100m"})).qos == "Burstable"


@row("001-09")
def memory_figures_differ_in_one_container() -> None:
    requests, limits = {"cpu": "100m", "memory": "100Mi"}, {"cpu": "100m", "memory": "200Mi"}
    assert work(resources_of_bar(requests=requests, limits=limits)).qos == "Burstable"


@row("001-10")
def no_cpu_figures_in_one_container() -> None:
    assert work(resources_of_bar(requests={"memory": "100Mi"}, limits={"memory": "100Mi"})).qos == "Burstable"


@row("001-18")
def exclusive_cpus_leave_twelve_of_sixteen() -> None:
    pods = ("001-guaranteed-4-cpus.yaml", "001-besteffort.yaml")
    setting = node("001-node-16.yaml", "001-kubelet-static-cpu.yaml")
    assert explanation([work(each, setting) for each in pods], setting).node.shared_cpus == 12
    setting = node("001-node-16.yaml", None)
    assert explanation([work(each, setting) for each in pods], setting).node.shared_cpus is None  # all 16 are for all


@row("001-20")
def zero_counts_as_absent() -> None:
    assert work(one_container(limits={"cpu": 0, "memory": 0})).qos == "BestEffort"


@row("001-29", "004-38")
def init_containers_sidecars_and_overhead_count_too() -> None:
    document = manifest("examples/sidecar.yaml")
    assert work(document).requests == amount_list({"cpu": "500m", "memory": "160Mi"})
    document["spec"]["overhead"] = {"cpu": "10m"}
    assert work(document).requests["cpu"] == amount("510m")


@row("004-38")
def order_of_init_containers_matters() -> None:
    document = manifest("examples/sidecar.yaml")
    document["spec"]["initContainers"].sort(key=lambda each: each["name"] != "proxy")
    assert work(document).requests["cpu"] == amount("550m")
    document["spec"]["overhead"] = {"cpu": "10m"}
    assert work(document).requests["cpu"] == amount("560m")


# --- document 002 ---


@row("002-01")
def only_cpu_and_memory_decide_the_class() -> None:
    assert work("examples/besteffort.yaml").qos == "BestEffort"
    for name in ("ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"):
        assert work(one_container({name: "4Mi"}, {name: "4Mi"})).qos == "BestEffort", name
    for name in ("cpu", "memory"):
        assert work(one_container({name: "1"})).qos == "Burstable", name


@row("002-05")
def negative_requests_are_refused_large_ones_are_not() -> None:
    (error,) = refusal(one_container({"cpu": "-1"}))
    assert (error.type, error.field) == ("FieldValueInvalid", "spec.containers[0].resources.requests[cpu]")
    assert error.detail == "must be greater than or equal to 0"
    assert refusal(one_container({"cpu": "1000", "memory": "1Pi"})) == []


@row("002-06")
def request_above_its_limit_is_refused() -> None:
    (error,) = refusal(one_container({"cpu": "2"}, {"cpu": "1"}))
    assert (error.type, error.field) == ("FieldValueInvalid", "spec.containers[0].resources.requests")
    assert error.detail == "must be less than or equal to cpu limit of 1"
    assert refusal(one_container({"cpu": "2"}, {"cpu": "2", "memory": "1Ei"})) == []


@row("002-13")
def limit_alone_makes_burstable() -> None:
    """Even before the API server makes a request of it."""
    assert computed_qos_class(lean(one_container(limits={"memory": "1Gi"}))) == "Burstable"


@row("002-19")
def zeros_are_not_guaranteed() -> None:
    zeros = {"cpu": "0", "memory": "0"}
    assert work(one_container(zeros, zeros)).qos == "BestEffort"


@row("002-22")
def written_requests_and_copied_ones_come_to_the_same() -> None:
    for version in VERSIONS:
        setting = node(version=version, gates={"MemoryQoS": True})
        copied, equal = (written(tree(setting, f"002-guaranteed-{each}.yaml")) for each in ("limits-only", "equal"))
        assert copied == equal


@row("002-23")
def fragments_are_no_yaml() -> None:
    (error,) = read(b"containers:\n  name: foo\n    resources:\n      limits:\n        cpu: 10m\n  name: bar\n")
    assert isinstance(error, YamlError)
    assert (error.line, error.message) == (3, "mapping values are not allowed in this context")


@row("002-36")
def node_critical_takes_class_and_priority() -> None:
    found = work("examples/critical.yaml")
    assert (found.qos, found.scores) == ("Burstable", (-997,))

    def score(**changes: Any) -> int:
        document = manifest("examples/critical.yaml")
        document["metadata"]["annotations"] = changes.pop("annotations", {})
        document["spec"].update(changes)
        return work(document).scores[0]

    assert score(priorityClassName="system-cluster-critical") == 999
    assert score(priority=1999999999) == 999
    assert score(priority=2000000000) == -997
    assert score(priority=None, annotations={"kubernetes.io/config.source": "file"}) == -997
    assert score(priority=None, annotations={"kubernetes.io/config.source": "api"}) == 999
    assert score(priority=None, annotations={"kubernetes.io/config.mirror": ""}) == -997


@row("002-37")
def guaranteed_and_besteffort_have_one_score_each() -> None:
    for memory in ("1Mi", "100Gi"):
        assert work(one_container(limits={"cpu": "1", "memory": memory})).scores == (-997,)
    assert work(one_container()).scores == (1000,)


@row("002-40")
def score_divides_by_capacity_not_allocatable() -> None:
    """1Gi of 8Gi stays 875 when half of the node is reserved."""
    setting = node("002-node-8gi.yaml", None, settings={"systemReserved": {"memory": "4Gi"}})
    assert work("002-qos-demo.yaml", setting).scores == (875,)


@row("002-44")
def sandbox_has_998() -> None:
    assert SANDBOX_SCORE == -998


@row("002-47")
def more_requested_scores_lower() -> None:
    capacity = amount("263192560Ki").value
    requests = [amount(f"{gi}Gi").value for gi in range(0, 252, 10)]
    scores = [oom_scores(lean(one_container({"memory": str(q)})), "Burstable", capacity)[0] for q in requests]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


@row("002-50")
def without_cgroups_per_qos_there_is_no_kubepods() -> None:
    assert all(default_config(profile).cgroups_per_qos for profile in PROFILES.values())
    setting = node(settings={"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]})
    assert at(tree(setting, "002-qos-demo.yaml"), "pod").path == "/burstable/pod<uid>"


def path_of_container(file: str, driver: str, runtime: str = "containerd") -> str:
    return at(tree(node(driver=driver, runtime=runtime), file), "container").path


@row("002-51", "002-53", "002-58")
def levels_of_a_burstable_container() -> None:
    assert path_of_container("002-qos-demo.yaml", "systemd").split("/") == [
        "",
        "kubepods.slice",
        "kubepods-burstable.slice",
        "kubepods-burstable-pod<uid>.slice",
        "cri-containerd-<id>.scope",
    ]


@row("002-51", "002-52")
def guaranteed_container_has_no_class_above_it() -> None:
    path = "/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope"
    assert path_of_container("003-demo.yaml", "systemd") == path


@row("002-53")
def burstable_container_with_cgroupfs() -> None:
    assert path_of_container("002-qos-demo.yaml", "cgroupfs") == "/kubepods/burstable/pod<uid>/<id>"


@row("002-54")
def besteffort_container() -> None:
    prefix = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<uid>.slice"
    assert path_of_container("001-besteffort.yaml", "systemd") == f"{prefix}/cri-containerd-<id>.scope"


@row("002-58")
def runtime_with_another_driver_puts_it_at_the_root() -> None:
    name = pod_name(("kubepods",), "Burstable", UID)
    path = f"/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}"
    assert misplaced_container_path(name, ID, "containerd") == path


@row("002-59")
def uid_in_both_forms() -> None:
    document = manifest("002-qos-demo.yaml")
    document["metadata"]["uid"] = UID
    systemd, cgroupfs = (at(tree(node(driver=driver), document), "pod").path for driver in ("systemd", "cgroupfs"))
    assert systemd.endswith("/kubepods-burstable-poddba294ab_05fe_4314_a6d0_f9e0b3848104.slice")
    assert cgroupfs == "/kubepods/burstable/poddba294ab-05fe-4314-a6d0-f9e0b3848104"


@row("002-60")
def scope_of_a_container() -> None:
    name = container_component(ID, "systemd", "containerd")
    assert re.fullmatch("cri-containerd-[0-9a-f]{64}[.]scope", name) and ID in name


# --- document 003 ---


def resize_policies(document: Any, profile: str) -> list[tuple[str, str]]:
    (found,) = work(document, node(profile=profile)).pod.spec.containers
    return [(each.resource_name, each.restart_policy) for each in found.resize_policy]


@row("003-17")
def resize_policy_is_filled_in_by_1_27() -> None:
    cpu, memory = ("cpu", "NotRequired"), ("memory", "NotRequired")
    demo = [cpu, ("memory", "RestartContainer")]
    for file, old, new in (
        ("003-timeline.yaml", [cpu], []),
        ("004-busybox.yaml", [cpu, memory], []),
        ("003-demo.yaml", demo, demo),
    ):
        assert resize_policies(manifest(file), "1.27") == old, file
        assert resize_policies(manifest(file), "1.36") == new, file


@row("003-17")
def resize_policy_has_two_words() -> None:
    document = manifest("003-demo.yaml")
    container(document, "demo")["resizePolicy"][0]["restartPolicy"] = "Maybe"
    (error,) = refusal(document)
    assert error.type == "FieldValueNotSupported"
    assert error.detail == 'supported values: "NotRequired", "RestartContainer"'


@row("003-20")
def pod_that_never_restarts_cannot_restart_for_a_resize() -> None:
    document = manifest("003-demo.yaml")
    document["spec"]["restartPolicy"] = "Never"
    (error,) = refusal(document)
    assert (error.type, error.field) == ("FieldValueInvalid", "spec.containers[0].resizePolicy")
    assert error.detail == "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
    container(document, "demo")["resizePolicy"][1]["restartPolicy"] = "NotRequired"
    assert refusal(document) == []


@row("003-39")
def counting_in_1_36() -> None:
    """The largest of spec, allocated and actual; without spec when the resize is infeasible."""

    def counted(*, infeasible: bool) -> int:
        document = manifest("003-timeline.yaml")
        container(document, "app")["resources"]["requests"]["cpu"] = "100"
        status = {"name": "app", "allocatedResources": {"cpu": "1.6"}, "resources": {"requests": {"cpu": "1.8"}}}
        pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible" if infeasible else "Deferred"}
        document["status"] = {"containerStatuses": [status], "conditions": [pending]}
        return resident_load(lean(document), PROFILE_1_36).requests["cpu"]

    assert counted(infeasible=False) == 100_000
    assert counted(infeasible=True) == 1800


@row("003-50")
def api_server_of_1_36_refuses_what_the_node_cannot_hold() -> None:
    assert PROFILE_1_36.too_large_refused_by_api and not PROFILE_1_27.too_large_refused_by_api
    before, after = manifest("003-timeline.yaml"), manifest("003-timeline.yaml")
    for document in (before, after):
        document["spec"]["nodeName"] = "node-48"
    container(after, "app")["resources"]["requests"]["cpu"] = "100"
    allocatable = node(profile="1.36").allocatable
    here = Node(status=msgspec.structs.replace(Node().status, allocatable=allocatable))
    found = capacity_verdict(Version(before, lean(before)), Version(after, lean(after)), here)
    assert found is not None
    assert found.message == (
        "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 46000"
    )


@row("003-62")
def resize_configuration() -> None:
    for profile in PROFILES:
        found = read_config("003-kubelet-config.yaml", profile)
        assert found.config.gate("InPlacePodVerticalScaling")
        assert found.config.sync_frequency_s == 60
        assert (found.without_effect, found.notes) == (["volumeStatsAggPeriod"], [])


@row("003-65")
def quantities_are_equal_by_value() -> None:
    assert amount("1000m") == amount("1")
    assert str(amount("1000m")) == "1"


@row("003-68")
def files_of_the_resized_pod_on_v1() -> None:
    document = manifest("003-demo-resized-cpu-2.yaml")
    document["metadata"]["uid"] = "ab959cd5-f9e3-4b34-8051-861f7caca04c"
    pod = at(tree(node(version=1, driver="systemd"), document), "pod")
    assert pod.path == "/kubepods.slice/kubepods-podab959cd5_f9e3_4b34_8051_861f7caca04c.slice"
    assert (pod.value("cpu.cfs_period_us"), pod.value("cpu.cfs_quota_us")) == (100000, 200000)


@row("003-69")
def quota_read_back() -> None:
    assert cpu_rules.milli_from_quota(200000, 100000) == 2000


@row("003-70")
def class_is_for_life() -> None:
    before, after = (lean(manifest(f"003-demo-{each}.yaml")) for each in ("resized-cpu-2", "refused-qos-change"))
    (error,) = class_errors(before, after, True, PROFILE_1_27)
    assert str(error) == 'metadata: Invalid value: "Burstable": Pod QoS is immutable'
    (error,) = class_errors(before, after, True, PROFILE_1_36)
    assert (error.field, error.detail) == ("spec", "Pod QOS Class may not change as a result of resizing")


# --- document 004 ---


@row("004-03")
def kinds_of_resources() -> None:
    for name in ("cpu", "memory", "ephemeral-storage"):
        assert is_native(name) and not is_hugepages(name) and not is_extended(name)
    assert is_hugepages("hugepages-2Mi") and not is_extended("hugepages-2Mi")
    assert page_size("hugepages-2Mi") == amount("2097152")
    assert is_extended("nvidia.com/gpu") and not is_native("nvidia.com/gpu")


@row("004-07")
def thousandths_of_a_core() -> None:
    assert amount("500m") == amount("0.5")
    assert str(amount("0.5")) == "500m"
    assert work(one_container({"cpu": "0.1m"})).requests["cpu"] == amount("1m")
    assert work(one_container({"cpu": "500.2m"})).requests["cpu"] == amount("501m")


@row("004-08")
def two_families_of_suffixes() -> None:
    assert amount("400Mi").value == 419430400
    assert amount("400M").value == 400000000
    for text in ("400MB", "4GB"):
        with pytest.raises(InvalidQuantity):
            amount(text)


@row("004-09")
def capacity_in_bytes() -> None:
    assert node().capacity["memory"].value == 269509181440


@row("004-11")
def soft_threshold_takes_nothing_off() -> None:
    with_soft = node()
    without = node(settings={"evictionSoft": {}, "evictionSoftGracePeriod": {}})
    assert [each.hard for each in with_soft.thresholds] != [each.hard for each in without.thresholds]
    assert with_soft.allocatable == without.allocatable
    assert str(without.allocatable["memory"]) == "258486256Ki"
    with pytest.raises(InvalidConfig) as raised:
        node(settings={"evictionSoftGracePeriod": {}})
    assert raised.value.reason == "grace period must be specified for the soft eviction threshold memory.available"


@row("004-18")
def system_reserved_is_taken_off() -> None:
    with_it, without = node(), node(settings={"systemReserved": {}})
    for name, reserved in amount_list({"cpu": "2", "memory": "4Gi"}).items():
        assert without.allocatable[name] - with_it.allocatable[name] == reserved
    limits = [at(tree(setting), "pods").value("memory.max") for setting in (without, with_it)]
    assert limits == [269509181440, 265214214144]


@row("004-19")
def kube_reserved_is_taken_off_too() -> None:
    setting = node(settings={"kubeReserved": {"cpu": "1", "memory": "1Gi"}})
    assert (str(setting.allocatable["cpu"]), str(setting.allocatable["memory"])) == ("45", "257437680Ki")
    assert str(setting.absolute["memory"]) == "257949680Ki"


@row("004-21")
def four_names_can_be_reserved() -> None:
    amounts_given = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "1000"}
    for field in ("systemReserved", "kubeReserved"):
        assert read_config(None, settings={field: amounts_given})
        assert list(config_problems({field: {"pods": "1"}}).values()) == ['cannot reserve "pods" resource']
    flags = {"systemReserved": "cpu=2,memory=4Gi", "kubeReserved": "memory=1Gi"}
    config = reading(None, PROFILE_1_27, flags).config
    assert config.system_reserved == amount_list({"cpu": "2", "memory": "4Gi"})
    assert config.kube_reserved == amount_list({"memory": "1Gi"})


@row("004-22")
def reservation_and_threshold_are_missing() -> None:
    setting = node()
    assert setting.capacity["memory"] - setting.allocatable["memory"] == amount("4706304Ki")


@row("004-23")
def qos_reserved_needs_its_gate() -> None:
    setting = node(settings={"qosReserved": {"memory": "50%"}})
    assert not setting.config.gate("QOSReserved")
    top = tree(setting, "003-demo.yaml", "004-busybox.yaml")
    assert [at(top, "class", name).value("memory.max") for name in ("Burstable", "BestEffort")] == [None, None]


@row("004-24")
def listed_cpus_replace_the_reserved_figure() -> None:
    setting = node(
        settings={
            "reservedSystemCPUs": "0-1",
            "systemReserved": {"cpu": "7", "memory": "4Gi"},
            "kubeReserved": {"cpu": "3"},
        }
    )
    assert str(setting.allocatable["cpu"]) == "46"
    assert str(setting.allocatable["memory"]) == "258486256Ki"


@row("004-26")
def no_io_file_is_ever_written() -> None:
    files = [each.name for each in DOCUMENTS.glob("00[0-4]-*.yaml") if manifest(each.name)["kind"] == "Pod"]
    for profile in PROFILES:
        for version in VERSIONS:
            found = {name for _, name, _ in written(tree(node(profile=profile, version=version), *files))}
            assert found
            assert not {name for name in found if name.startswith(("io.", "blkio."))}


@row("004-30")
def two_drivers() -> None:
    for profile in PROFILES.values():
        assert default_config(profile).cgroup_driver == "cgroupfs"
    assert at(tree(node(), "004-busybox.yaml"), "pod").path == "/kubepods/burstable/pod<uid>"
    from_config = node(settings={"cgroupDriver": "systemd"})
    slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice"
    assert at(tree(from_config, "004-busybox.yaml"), "pod").path == slices
    assert list(config_problems({"cgroupDriver": "other"})) == ["cgroupDriver"]


def script(version: str, driver: str = "cgroupfs") -> str:
    names = ("--node", str(DOCUMENTS / "004-node.yaml"), "--config", str(DOCUMENTS / "004-kubelet-config.yaml"))
    pod = str(DOCUMENTS / "004-busybox.yaml")
    return explained(pod, *names, "--cgroup", version, "--driver", driver, "-o", "sh")


@row("004-32")
def root_of_all_cgroups() -> None:
    for version in ("v1", "v2"):
        assert 'ROOT="${ROOT:-/sys/fs/cgroup}"' in script(version)


@row("004-32", "004-43", "004-46")
def kubepods_below_each_controller_or_the_root() -> None:
    lines = script("v1").splitlines()
    assert 'echo 47104 > "$ROOT"/cpu/kubepods/cpu.shares' in lines
    assert 'echo 265214214144 > "$ROOT"/memory/kubepods/memory.limit_in_bytes' in lines
    assert 'echo 1797 > "$ROOT"/kubepods/cpu.weight' in script("v2").splitlines()
    assert 'echo 1797 > "$ROOT"/kubepods.slice/cpu.weight' in script("v2", "systemd").splitlines()


@row("004-34", "004-47")
def two_class_cgroups_and_none_for_guaranteed() -> None:
    top = at(tree(node(), "003-demo.yaml", "004-busybox.yaml", "002-besteffort.yaml"), "pods")
    assert [(each.level, each.path) for each in top.children] == [
        ("pod", "/kubepods/pod<uid>"),
        ("class", "/kubepods/burstable"),
        ("class", "/kubepods/besteffort"),
    ]


@row("004-45")
def cgroup_root_stands_above_kubepods() -> None:
    assert {default_config(profile).cgroup_root for profile in PROFILES.values()} == {""}
    assert at(tree(node()), "pods").path == "/kubepods"
    for driver, path in (("cgroupfs", "/custom/kubepods"), ("systemd", "/custom.slice/custom-kubepods.slice")):
        assert at(tree(node(driver=driver, settings={"cgroupRoot": "/custom"})), "pods").path == path


@row("004-48")
def pods_of_each_class() -> None:
    found = {qos: cgroup_path(pod_name(("kubepods",), qos, UID), "cgroupfs") for qos in get_args(QoSClass)}
    assert found == {
        "Guaranteed": f"/kubepods/pod{UID}",
        "Burstable": f"/kubepods/burstable/pod{UID}",
        "BestEffort": f"/kubepods/besteffort/pod{UID}",
    }


@row("004-49")
def containers_by_runtime() -> None:
    assert path_of_container("003-demo.yaml", "cgroupfs") == "/kubepods/pod<uid>/<id>"
    assert path_of_container("003-demo.yaml", "cgroupfs", "crio") == "/kubepods/pod<uid>/crio-<id>"


@row("004-56")
def sum_is_converted_once() -> None:
    """10 and 102 shares would be 112, too: two thirds of a share show the difference."""
    document = manifest("002-guaranteed-limits-only.yaml")
    for name in ("foo", "bar"):
        container(document, name)["resources"]["limits"]["cpu"] = "6m"  # 6.144 shares each, 12.288 together
    document["spec"]["containers"] += [
        {**container(document, "foo"), "name": f"more-{number}"} for number in range(5)
    ]  # 7 × 6.144 = 43.008, not 7 × 6 = 42
    assert at(tree(node(version=1), document), "pod").value("cpu.shares") == 43


@row("004-57")
def least_quota_of_a_pod() -> None:
    document = one_container(limits={"cpu": "1m", "memory": "1Mi"})
    assert at(tree(node(version=1), document), "pod").value("cpu.cfs_quota_us") == 1000


@row("004-61")
def limits_are_enforced_unless_switched_off() -> None:
    enforced = at(tree(node(), "004-busybox.yaml"), "container")
    assert enforced.value("cpu.max") == "50000 100000"
    off = tree(node(settings={"cpuCFSQuota": False}), "004-busybox.yaml")
    assert at(off, "container").value("cpu.max") is None
    assert at(off, "pod").value("cpu.max") == "max 100000"
    off = tree(node(version=1, settings={"cpuCFSQuota": False}), "004-busybox.yaml")
    assert at(off, "container").value("cpu.cfs_quota_us") is None
    assert at(off, "pod").value("cpu.cfs_quota_us") == -1


@row("004-63")
def burstable_class_sums_before_it_converts() -> None:
    pods = []
    for milli in (250, 100, 1500):
        document = one_container({"cpu": f"{milli}m"})
        document["metadata"] = {"name": f"pod-{milli}", "uid": str(milli)}
        pods.append(document)
    assert at(tree(node(version=1), *pods), "class", "Burstable").value("cpu.shares") == 1894
    assert at(tree(node(), *pods), "class", "Burstable").value("cpu.weight") == 73
    assert at(tree(node(version=1)), "class", "Burstable").value("cpu.shares") == 2  # no pod at all


@row("004-75")
def cgroup_lines_are_all_defaults() -> None:
    for profile in PROFILES.values():
        found = read_config("004-kubelet-cgroups.yaml", profile.name)
        assert found.config == default_config(profile)
        assert (found.without_effect, found.notes) == ([], [])


@row("004-79")
def path_of_a_besteffort_container() -> None:
    assert path_of_container("001-besteffort.yaml", "cgroupfs") == "/kubepods/besteffort/pod<uid>/<id>"


@row("004-80")
def one_gibibyte_on_v1() -> None:
    document = manifest("004-busybox.yaml")
    container(document, "busybox")["resources"]["limits"]["memory"] = "1Gi"
    pod = at(tree(node(version=1), document), "pod")
    assert (work(document).qos, pod.value("memory.limit_in_bytes")) == ("Burstable", 1073741824)


# --- the rows ---


@pytest.mark.parametrize("row_id", sorted(CHECKS))
def test_row(row_id: str) -> None:
    for check in CHECKS[row_id]:
        check()


# --- the page ---

_ROW = re.compile(r"^\| (\d{3}-\d{2}) \|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`tests/unit/test_documents\.py::test_row\[(\d{3}-\d{2})\]`")


@cache
def page_rows() -> dict[str, list[str]]:
    """Row id → its other columns."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == len(dict(found)), "a row id occurs twice"
    return {row_id: [column.strip() for column in re.split(r"(?<!\\)\|", rest)] for row_id, rest in found}


def test_page_has_three_columns_beside_the_id_in_every_row() -> None:
    assert {row_id: len(columns) for row_id, columns in page_rows().items() if len(columns) != 3} == {}


def test_page_names_the_tests_that_exist() -> None:
    named = _TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert set(named) == set(CHECKS)


def test_page_has_a_row_for_each_test_and_that_row_names_it() -> None:
    silent = [row_id for row_id in CHECKS if row_id not in _TEST.findall(page_rows()[row_id][2])]
    assert silent == []


def test_page_mentions_no_test_in_another_form() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("`tests/unit/test_documents.py::test_row[ID]`", "")
    assert len(re.findall(r"test_documents", text)) == len(_TEST.findall(text))


def test_page_refers_to_rows_and_areas_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (areas,) = re.findall(r"areas: ([^|]+?) \|", text)
    for row_id, columns in page_rows().items():
        for other in re.findall(r"(?<![\w-])00[0-4]-\d{2}(?![\w-])", " ".join(columns)):
            assert other in page_rows(), row_id
        for named in re.findall(r"later \(([^)]+)\)", columns[2]):
            assert set(named.split(", ")) <= set(areas.split(", ")), row_id


def test_page_names_files_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:examples/)?([\w./-]+\.(?:yaml|json))`", text))
    assert {name for name in named if not (DOCUMENTS / name).exists() and not (EXAMPLES / name).exists()} == set()
    links = set(re.findall(r"\]\(([^)#]+)\)", text))
    assert {link for link in links if not (PAGE.parent / link).exists()} == set()


def test_page_names_every_example_of_the_documents() -> None:
    text = PAGE.read_text(encoding="utf-8")
    unnamed = {each.name for each in DOCUMENTS.glob("00*") if f"`{each.name}`" not in text}
    assert unnamed == set()


def test_every_formula_table_is_checked() -> None:
    (expected,) = _documents(EXPECTED)
    assert set(expected["formulas"]) == set(FORMULAS) | WAITING
    assert not any(expected["formulas"][name]["ids"] for name in WAITING)
    unread = [name for name, table in expected["formulas"].items() if name not in WAITING and not table["ids"]]
    assert unread == []


# --- the examples ---

_NO_PODS = {"KubeletConfiguration", "Node"}


def yaml_examples() -> dict[str, str]:
    """File (below examples/) → kind of its first document. Every YAML file is one or the other of what follows."""
    files = [each for folder in (EXAMPLES, DOCUMENTS) for each in sorted(folder.glob("*.yaml")) if each != EXPECTED]
    return {str(each.relative_to(EXAMPLES)): _documents(each)[0]["kind"] for each in files}


def examples_of(*kinds: str) -> list[str]:
    return [file for file, kind in yaml_examples().items() if kind in kinds]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("file", [file for file, kind in yaml_examples().items() if kind not in _NO_PODS])
def test_explain_takes_pod_examples(file: str, profile: str) -> None:
    asked = (str(EXAMPLES / file), "--node", str(EXAMPLES / "node-48.yaml"), "--profile", profile)
    found = json.loads(explained(*asked, "--cgroup", "v1", "-o", "json"))
    assert found["pods"]
    for_people = explained(*asked)
    for pod in found["pods"]:
        assert pod["name"] in for_people and f"{pod['qosClass']} because {pod['because']}" in for_people


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("file", examples_of("KubeletConfiguration"))
def test_kubelet_takes_configuration_examples(file: str, profile: str) -> None:
    (document,) = _documents(EXAMPLES / file)
    assert reading(document, PROFILES[profile]).config
    pod, machine = str(DOCUMENTS / "004-busybox.yaml"), str(EXAMPLES / "node-48.yaml")
    assert explained(pod, "--node", machine, "--config", str(EXAMPLES / file), "--profile", profile)


@pytest.mark.parametrize("file", examples_of("Node"))
def test_explain_takes_node_examples(file: str) -> None:
    (document,) = _documents(EXAMPLES / file)
    pod = str(DOCUMENTS / "002-besteffort.yaml")
    found = json.loads(explained(pod, "--node", str(EXAMPLES / file), "-o", "json"))
    assert found["node"]["name"] == document["metadata"]["name"]
    for name in ("cpu", "memory"):
        assert found["node"]["capacity"][name] == str(amount(document["status"]["capacity"][name]))


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ("003-demo", "cpu-2", "003-demo-resized-cpu-2"),
        ("003-demo", "cpu-3", "003-demo-resized-cpu-3"),
        ("003-demo", "memory-500mi", "003-demo-resized-memory-500mi"),
        ("003-demo-resized-cpu-2", "qos-change", "003-demo-refused-qos-change"),
    ],
)
def test_patch_example_leads_to_its_result(base: str, patch: str, result: str) -> None:
    document = patched(manifest(f"{base}.yaml"), patch)
    assert lean(document) == lean(manifest(f"{result}.yaml"))


@pytest.mark.parametrize(("number", "cpu"), [(1, "1.5"), (2, "2"), (3, "1.6"), (4, "100")])
def test_timeline_patch_asks_for_what_the_timeline_says(number: int, cpu: str) -> None:
    document = patched(manifest("003-timeline.yaml"), f"timeline-{number}")
    assert work(document).requests == amount_list({"cpu": cpu})
    (expected,) = _documents(EXPECTED)
    proposed = [line["spec"] for line in expected["formulas"]["timeline"]["lines"] if line["resize"] == "Proposed"]
    assert proposed[number - 1] == cpu


def patched(document: Any, name: str) -> Any:
    """The patches touch resources of containers by name and nothing else."""
    patch = json.loads((DOCUMENTS / f"003-patch-{name}.json").read_text(encoding="utf-8"))
    assert patch.keys() == {"spec"} and patch["spec"].keys() == {"containers"}
    for change in patch["spec"]["containers"]:
        assert change.keys() == {"name", "resources"}
        for kind, values in change["resources"].items():
            container(document, change["name"])["resources"][kind].update(values)
    return document
