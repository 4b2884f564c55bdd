"""What no table of expected.yaml says about document 002: classes, OOM scores and paths of cgroups."""

from __future__ import annotations

import re
from typing import Any

from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.cgroup_names import container_component, misplaced_container_path, pod_name
from plimsoll.rules.oom.order import OomCandidate, oom_order
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.oom_score import SANDBOX_SCORE, oom_scores
from plimsoll.rules.resources.qos import computed_qos_class
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    UID,
    VERSIONS,
    amount,
    at,
    lean,
    manifest,
    node,
    one_container,
    path_of_container,
    refusal,
    tree,
    work,
    written,
)

CHECKS = Checks()
row = CHECKS.row

ID = "0123456789abcdef" * 4  # a container's


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
    scores = [
        oom_scores(lean(one_container({"memory": str(q)})), "Burstable", NodePolicy(capacity))[0] for q in requests
    ]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


@row("002-50")
def without_cgroups_per_qos_there_is_no_kubepods() -> None:
    assert all(default_config(profile).cgroups_per_qos for profile in map(profile_named, ("documents", "1.36")))
    setting = node(settings={"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]})
    assert at(tree(setting, "002-qos-demo.yaml"), "pod").path == ""
    assert setting.pods_root == ()


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


@row("002-39")
def what_is_used_is_added_to_the_adjustment() -> None:
    """One tenth of the memory requested makes 900; the kernel adds what is used, and not more than requested is 1000."""
    (score,) = oom_scores(lean(one_container({"memory": "1Gi"})), "Burstable", NodePolicy(10 << 30))
    assert score == 900
    (rank,) = oom_order([OomCandidate("c", 1 << 30, score)], 10 << 30)
    assert (rank.share, rank.points) == (100, 1000)
