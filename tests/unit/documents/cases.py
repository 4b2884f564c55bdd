"""The cases of expected.yaml: what a pod or a node must come to, under both cgroup versions and both drivers.

A case names the rows it checks, the profile and the configuration, and then only what the document says: a class, amounts,
paths, values of files. `unset` stands for a file that is not written. Found and expected values are gathered first and
compared at once, so that one failure shows all of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from plimsoll.rules.cgroups.desired import Cgroup, Workload
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.scheduling.fit import amounts, resident_load
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    DRIVERS,
    EXPECTED,
    VERSIONS,
    Json,
    amount_list,
    at,
    documents_in,
    lean,
    manifest,
    node,
    tree,
    work,
)

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


def case_setting(file: str, case: Json, version: CgroupVersion, driver: str) -> NodeConfig:
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


def case_checks() -> Checks:
    (expected,) = documents_in(EXPECTED)
    checks = Checks()
    for file, cases in expected["files"].items():
        check = check_node_case if manifest(file)["kind"] == "Node" else check_pod_case
        for case in cases:
            for row_id in case["ids"]:
                checks[row_id].append(partial(check, file, case))
    return checks
