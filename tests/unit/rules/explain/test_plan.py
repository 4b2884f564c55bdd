"""The batch form against the tree: the same pod on the same node has the same values, however it is asked."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings

from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.rules.cgroups.desired import Cgroup, desired_tree, workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.plan import PodPlan, placement, pod_plan
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, valid_pods

GI = 1 << 30


def pod_cgroup(tree: Cgroup) -> Cgroup:
    found = [tree]
    while found[0].level != "pod":
        found = [child for cgroup in found for child in cgroup.children]
        found.sort(key=lambda cgroup: cgroup.level != "pod")
    return found[0]


def written(cgroup: Cgroup) -> Json:
    return {file.name: file.value for file in cgroup.files}


def planned_files(plan: object) -> Json:
    built = msgspec.to_builtins(plan)
    return {**built["files"], **built.get("hugetlb", {})}


def check(document: Json, setting: NodeConfig) -> None:
    work = workload(lean(document), setting)
    cgroup = pod_cgroup(desired_tree([work], setting))
    plan = pod_plan(pod_from_json(json.dumps(document)), setting.policy, placement(setting.pods_root, setting.driver))
    assert (plan.qos_class, plan.cgroup, plan.uid) == (work.qos, cgroup.path, document["metadata"]["uid"])
    assert planned_files(plan) == written(cgroup)
    assert [each.name for each in plan.containers] == [child.name for child in cgroup.children]
    for each, child in zip(plan.containers, cgroup.children, strict=True):
        assert each.oom_score_adj == child.oom_score_adj
        assert planned_files(each) == written(child)
    assert plan.init_containers == len(work.pod.spec.init_containers)
    for listed, effective in ((plan.requests, work.requests), (plan.limits, work.limits)):
        assert listed == {
            name: quantity.milli if name == "cpu" else quantity.value for name, quantity in effective.items()
        }


@settings(max_examples=examples(300), deadline=None)
@given(valid_pods(), node_settings())
def test_plan_equals_explain(document: Json, setting: NodeConfig) -> None:
    check(document, setting)


@settings(max_examples=examples(60), deadline=None)
@given(valid_pods(pod_level=False, stored=False), node_settings(static_cpus=True))
def test_plan_equals_explain_with_exclusive_cpus(document: Json, setting: NodeConfig) -> None:
    """02 §4.3, §10: exclusive CPUs take the quota away in 1.36, in the batch form as well."""
    check(document, setting)


def plan_of(document: Json, driver: str = "cgroupfs", **policy: object) -> PodPlan:
    return pod_plan(lean(document), NodePolicy(8 * GI, 8 * GI, **policy), placement(("kubepods",), driver))


def pod(block: Json, **metadata: str) -> Json:
    return {
        "metadata": {"name": "p", "uid": "u-1", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": block}]},
    }


def test_a_plan_in_full() -> None:
    """The seed's nginx of 02 §4.4, on the wire."""
    plan = plan_of(
        pod({"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}}, namespace="web")
    )
    assert json.loads(msgspec.json.encode(plan)) == {
        "namespace": "web",
        "name": "p",
        "uid": "u-1",
        "qosClass": "Burstable",
        "requests": {"cpu": 250, "memory": GI},
        "limits": {"cpu": 500, "memory": 2 * GI},
        "cgroup": "/kubepods/burstable/podu-1",
        "files": {"cpu.weight": 10, "cpu.max": "50000 100000", "memory.max": 2147483648},
        "containers": [
            {
                "name": "c",
                "oomScoreAdj": 875,
                "files": {"cpu.weight": 35, "cpu.max": "50000 100000", "memory.max": 2147483648, "memory.swap.max": 0},
            }
        ],
    }


DRIVERS = [
    ("cgroupfs", "/kubepods/burstable/podu-1"),
    ("systemd", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice"),
]


@pytest.mark.parametrize(("driver", "path"), DRIVERS, ids=[f"02 §2.2 {row[0]}" for row in DRIVERS])
def test_paths(driver: str, path: str) -> None:
    assert plan_of(pod({"requests": {"cpu": "1"}}), driver).cgroup == path


def test_exclusive_cpus_by_hand() -> None:
    """The smallest case of the property above: 1.36, static, one whole CPU: no quota at both levels."""
    config = reading({"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}, profile_named("1.36")).config
    setting = resolved(Machine(4, 8 * GI, {}), config, profile_named("1.36"))
    check(pod({"limits": {"cpu": "1", "memory": "1Gi"}}), setting)
    plan = pod_plan(
        lean(pod({"limits": {"cpu": "1", "memory": "1Gi"}})), setting.policy, placement(("kubepods",), "cgroupfs")
    )
    assert (plan.files.cpu_max, plan.containers[0].files.cpu_max) == ("max 100000", "max 100000")


def test_a_raw_pod_is_defaulted() -> None:
    plan = plan_of(pod({"limits": {"cpu": "0.1m"}}))
    assert (plan.requests, plan.limits) == ({"cpu": 1}, {"cpu": 1})
