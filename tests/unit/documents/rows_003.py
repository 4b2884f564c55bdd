"""What no table of expected.yaml says about document 003: in-place resize."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import capacity_verdict, class_errors
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.gates import DEFAULT_GATES
from plimsoll.rules.model.objects import Node
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.resources import cpu as cpu_rules
from plimsoll.rules.scheduling.fit import resident_load
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import amount, at, container, lean, manifest, node, read_config, refusal, tree, work

CHECKS = Checks()
row = CHECKS.row


def resize_policies(document: Any, profile: str) -> list[tuple[str, str]]:
    (found,) = work(document, node(profile=profile)).pod.spec.containers
    return [(each.resource_name, each.restart_policy) for each in found.resize_policy]


@row("003-01")
def gate_is_on() -> None:
    assert all(
        default_config(profile).gate("InPlacePodVerticalScaling")
        for profile in map(profile_named, ("documents", "1.36"))
    )


@row("003-17")
def resize_policy_is_filled_in_by_documents() -> None:
    cpu, memory = ("cpu", "NotRequired"), ("memory", "NotRequired")
    demo = [cpu, ("memory", "RestartContainer")]
    for file, old, new in (
        ("003-timeline.yaml", [cpu], []),
        ("004-busybox.yaml", [cpu, memory], []),
        ("003-demo.yaml", demo, demo),
    ):
        assert resize_policies(manifest(file), "documents") == old, file
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
        return resident_load(lean(document), profile_named("1.36")).requests["cpu"]

    assert counted(infeasible=False) == 100_000
    assert counted(infeasible=True) == 1800


@row("003-50")
def api_server_of_1_36_refuses_what_the_node_cannot_hold() -> None:
    assert profile_named("1.36").too_large_refused_by_api and not PROFILE_DOCUMENTS.too_large_refused_by_api
    before, after = manifest("003-timeline.yaml"), manifest("003-timeline.yaml")
    for document in (before, after):
        document["spec"]["nodeName"] = "node-48"
    container(after, "app")["resources"]["requests"]["cpu"] = "100"
    allocatable = node(profile="1.36").allocatable
    here = Node(status=msgspec.structs.replace(Node().status, allocatable=allocatable))
    found = capacity_verdict(PodVersion(before, lean(before)), PodVersion(after, lean(after)), here)
    assert found is not None
    assert found.message == (
        "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 46000"
    )


@row("003-62")
def resize_configuration() -> None:
    for profile in ("documents", "1.36"):
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
    (error,) = class_errors(before, after, DEFAULT_GATES, PROFILE_DOCUMENTS)
    assert str(error) == 'metadata: Invalid value: "Burstable": Pod QoS is immutable'
    (error,) = class_errors(before, after, DEFAULT_GATES, profile_named("1.36"))
    assert (error.field, error.detail) == ("spec", "Pod QOS Class may not change as a result of resizing")
