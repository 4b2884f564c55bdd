"""What no table of expected.yaml says about document 001: the QoS classes and eviction."""

from __future__ import annotations

from typing import Any, get_args

from plimsoll.rules.config.thresholds import MEMORY_AVAILABLE, parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.eviction.decision import decision
from plimsoll.rules.eviction.ranking import ranked
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.explain.explanation import explanation
from plimsoll.rules.model.objects import QoSClass
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    Json,
    amount,
    amount_list,
    at,
    container,
    lean,
    manifest,
    node,
    one_container,
    tree,
    work,
)

CHECKS = Checks()
row = CHECKS.row


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
    for profile in ("documents", "1.36"):
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


@row("001-05")
def guaranteed_pods_are_last_and_not_exempt() -> None:
    """Daemons outside kubepods use everything: the pods below it are within what they asked for."""
    guaranteed, other = manifest("003-demo.yaml"), manifest("004-busybox.yaml")
    guaranteed["metadata"]["uid"], other["metadata"]["uid"] = "demo", "busybox"
    usage = {"demo": PodUsage(199 << 20, 1, ()), "busybox": PodUsage(301 << 20, 1, ())}
    observed = {MEMORY_AVAILABLE: Observation(amount("50Mi"), amount("8Gi"), 1.0)}
    hard = parsed_thresholds({MEMORY_AVAILABLE: "100Mi"})
    pods = [lean(guaranteed), lean(other)]
    for left, gone in ((pods, "busybox"), (pods[:1], "demo")):
        found = decision(hard, observed, left, usage)
        assert found is not None and found.victim is not None
        assert found.victim.name == gone
