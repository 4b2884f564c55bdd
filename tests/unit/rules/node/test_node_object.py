"""The Node that an agent registers and reports (spec 05 B9, 04 §8)."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.patch.strategic import apply_strategic
from plimsoll.codec.schema.schema import schema
from plimsoll.rules.config.parse import reading
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.model.objects import Taint
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.node.node_object import (
    CONDITION_ORDER,
    DECLARED_CAPACITY,
    SIMULATED,
    HandlerReport,
    ImageOnNode,
    MachineIdentity,
    NodeFacts,
    NodeHealth,
    RuntimeReport,
    conditions,
    event_message,
    lease_document,
    metadata_patch,
    node_document,
    node_status,
    says_more_than_alive,
    status_patch,
    transitions,
)
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.quantity import from_units, parse

T0, T1 = "2026-11-16T00:00:00Z", "2026-11-16T00:00:10Z"
KI = 1024
ALL: tuple[NodeCondition, ...] = ("MemoryPressure", "DiskPressure", "PIDPressure")


def the_setting(**config: Any) -> NodeConfig:
    """The node of document 004: 48 CPUs, 2 CPUs and 4Gi for the system, hard eviction at 500Mi (01 §10.5)."""
    document = {"systemReserved": {"cpu": "2", "memory": "4Gi"}, "evictionHard": {"memory.available": "500Mi"}}
    others = {"ephemeral-storage": from_units(41151808 * KI, "BinarySI"), "hugepages-2Mi": from_units(0, "BinarySI")}
    machine = Machine(cores=48, memory_bytes=263192560 * KI, others=others)
    return resolved(machine, reading({**document, **config}, PROFILE_DOCUMENTS).config, PROFILE_DOCUMENTS)


MACHINE = MachineIdentity("m", "s", "b", "6.1.0", "Debian GNU/Linux 12 (bookworm)", "amd64")
FACTS = NodeFacts("n1", "host1", "10.0.0.7", 10250, MACHINE, "process://1", "v1.27.0+plimsoll.1")
WELL = NodeHealth()


def made(**changed: Any) -> dict[str, Any]:
    return node_document(msgspec.structs.replace(FACTS, **changed), the_setting(), WELL, T0)


def test_taints_and_provider_of_a_new_node() -> None:
    setting = the_setting()
    assert node_document(FACTS, setting, WELL, T0)["spec"] == {}
    taints = (Taint("a", "b", "NoSchedule"), Taint("c", "", "NoExecute"))
    config = msgspec.structs.replace(setting.config, register_with_taints=taints, provider_id="x://1")
    assert node_document(FACTS, msgspec.structs.replace(setting, config=config), WELL, T0)["spec"] == {
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}],
        "providerID": "x://1",
    }


def test_the_documents_node() -> None:
    status = made()["status"]
    assert status["capacity"] == {
        "cpu": "48", "ephemeral-storage": "41151808Ki", "hugepages-2Mi": "0", "memory": "263192560Ki", "pods": "110",
    }  # fmt: skip
    assert status["allocatable"]["cpu"] == "46"
    assert status["allocatable"]["memory"] == "258486256Ki"
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert [(each["type"], each["address"]) for each in status["addresses"]] == [
        ("InternalIP", "10.0.0.7"),
        ("Hostname", "host1"),
    ]
    assert status["nodeInfo"] == {
        "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "process://1", "kernelVersion": "6.1.0",
        "kubeProxyVersion": "", "kubeletVersion": "v1.27.0+plimsoll.1", "machineID": "m", "operatingSystem": "linux",
        "osImage": "Debian GNU/Linux 12 (bookworm)", "systemUUID": "s",
    }  # fmt: skip


@pytest.mark.parametrize(("release", "reported"), [("1.32", False), ("1.33", True)])
def test_what_the_runtime_supports(release: str, reported: bool) -> None:
    report = RuntimeReport("containerd://2", True, (HandlerReport("", True, False), HandlerReport("kata", False, True)))
    setting = msgspec.structs.replace(the_setting(), profile=profile_named(release))
    status = node_status(FACTS, setting, NodeHealth(runtime=report), (), T0)
    assert status["nodeInfo"]["containerRuntimeVersion"] == "containerd://2"
    if not reported:
        assert "features" not in status
        return
    assert status["features"] == {"supplementalGroupsPolicy": True}
    assert status["runtimeHandlers"] == [
        {"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}},
        {"name": "kata", "features": {"recursiveReadOnlyMounts": False, "userNamespaces": True}},
    ]
    patch = status_patch({"status": {**status, "features": {"supplementalGroupsPolicy": False}}}, status)
    assert patch == {"status": {"features": {"supplementalGroupsPolicy": True}}}


def test_labels() -> None:
    assert made(labels={"zone": "a", "kubernetes.io/os": "plan9"})["metadata"]["labels"] == {
        "zone": "a",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "host1",
        "kubernetes.io/os": "linux",
    }


ANNOTATED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("as it is", {}, {}),
    ("declared", {"declared_capacity": "cpu=8,memory=4Gi"}, {DECLARED_CAPACITY: "cpu=8,memory=4Gi"}),
    ("simulated", {"simulated": True}, {SIMULATED: "true"}),
]


@pytest.mark.parametrize(("changed", "marks"), [row[1:] for row in ANNOTATED], ids=[row[0] for row in ANNOTATED])
def test_annotations(changed: dict[str, Any], marks: dict[str, str]) -> None:
    found = made(**changed)["metadata"]["annotations"]
    assert {name: text for name, text in found.items() if name.startswith("plimsoll.dev/")} == marks


# pressures, problems → status and reason of the four
CONDITIONS: list[tuple[str, NodeHealth, list[tuple[str, str, str]]]] = [
    (
        "well",
        WELL,
        [
            ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("True", "KubeletReady", "kubelet is posting ready status"),
        ],
    ),
    (
        "pressed",
        NodeHealth(frozenset(ALL)),
        [
            ("True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("True", "KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("True", "KubeletReady", "kubelet is posting ready status"),
        ],
    ),
    (
        "unhealthy",
        NodeHealth(problems=("container runtime is down", "disk is gone", "disk is gone")),
        [
            ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("False", "KubeletNotReady", "[container runtime is down, disk is gone]"),
        ],
    ),
]


@pytest.mark.parametrize(("health", "wanted"), [row[1:] for row in CONDITIONS], ids=[row[0] for row in CONDITIONS])
def test_conditions(health: NodeHealth, wanted: list[tuple[str, str, str]]) -> None:
    found = node_document(FACTS, the_setting(), health, T0)["status"]["conditions"]
    assert tuple(each["type"] for each in found) == CONDITION_ORDER
    assert [(each["status"], each["reason"], each["message"]) for each in found] == wanted
    assert {each["lastHeartbeatTime"] for each in found} | {each["lastTransitionTime"] for each in found} == {T0}


def test_a_transition_time_follows_its_status_alone() -> None:
    before = made()["status"]["conditions"]
    after = node_status(FACTS, the_setting(), NodeHealth(frozenset({"DiskPressure"})), before, T1)["conditions"]
    assert [each["lastTransitionTime"] for each in after] == [T0, T1, T0, T0]
    assert {each["lastHeartbeatTime"] for each in after} == {T1}


def test_others_conditions_stay() -> None:
    foreign = {"type": "NetworkUnavailable", "status": "False", "reason": "CNI"}
    after = node_status(FACTS, the_setting(), WELL, [foreign], T1)["conditions"]
    assert after[0] == foreign
    assert tuple(each["type"] for each in after[1:]) == CONDITION_ORDER


def test_conditions_of_our_own_come_and_go() -> None:
    """There while something is wrong, False when it is over, and never on a node where it was not."""
    sentence = "container c stands elsewhere"
    before = conditions(NodeHealth(), (), T0)
    assert "CgroupDriverMismatch" not in {each["type"] for each in before}
    reported = conditions(NodeHealth(warnings={"CgroupDriverMismatch": sentence}), before, T0)
    (found,) = [each for each in reported if each["type"] == "CgroupDriverMismatch"]
    assert (found["status"], found["message"]) == ("True", sentence)
    after = conditions(NodeHealth(), reported, T1)
    (found,) = [each for each in after if each["type"] == "CgroupDriverMismatch"]
    assert (found["status"], found["reason"]) == ("False", "NoCgroupDriverMismatch")


def test_images_are_cut() -> None:
    images = tuple(ImageOnNode((f"i{size}", *"abcdef"), size) for size in range(80))
    found = node_document(FACTS, the_setting(), NodeHealth(images=images), T0)["status"]["images"]
    assert len(found) == 50
    assert found[0] == {"names": ["i79", "a", "b", "c", "d"], "sizeBytes": 79}
    every = node_document(FACTS, the_setting(nodeStatusMaxImages=-1), NodeHealth(images=images), T0)
    assert len(every["status"]["images"]) == 80


# --- what is sent ---


def test_only_heartbeats() -> None:
    """Ten seconds later, nothing new: no reason to send, and if it is due, only conditions."""
    node = made()
    status = node_status(FACTS, the_setting(), WELL, node["status"]["conditions"], T1)
    assert not says_more_than_alive(node, status)
    change = status_patch(node, status)
    assert change is not None
    assert change["status"].keys() == {"conditions", "$setElementOrder/conditions"}
    assert status_patch(node, node["status"]) is None


def test_volumes_in_use_of_a_kubelet_are_cleared() -> None:
    """No volume here is attachable. What the kubelet before left would keep its volumes from being detached."""
    node = made()
    status = node["status"]
    left = {"status": {**status, "volumesInUse": ["kubernetes.io/csi/x^1"], "volumesAttached": [{"name": "y"}]}}
    assert status_patch(left, status) == {"status": {"volumesInUse": None}}
    assert says_more_than_alive(left, status)


MORE: list[tuple[str, Any, Any, set[str]]] = [
    ("pressure", lambda status: status["conditions"][0].update(status="True"), None, {"conditions"}),
    ("unknown", lambda status: status["conditions"][3].update(status="Unknown"), None, {"conditions"}),
    ("a condition lost", lambda status: status["conditions"].pop(1), None, {"conditions"}),
    ("capacity", lambda status: status["capacity"].update(cpu="2"), {"cpu": "48"}, {"capacity"}),
    (
        "pages gone",
        lambda status: status["capacity"].update({"hugepages-64Ki": "1"}),
        {"hugepages-64Ki": None},
        {"capacity"},
    ),
    ("port", lambda status: status["daemonEndpoints"]["kubeletEndpoint"].update(Port=1), None, {"daemonEndpoints"}),
    ("kernel", lambda status: status["nodeInfo"].update(kernelVersion="5"), None, {"nodeInfo"}),
    ("address", lambda status: status["addresses"][0].update(address="10.0.0.1"), None, {"addresses"}),
    ("images", lambda status: status["images"].append({"names": ["x"]}), [], {"images"}),
]


def test_a_resource_of_others_stays() -> None:
    """`kubectl patch node --subresource status` advertises an extended resource; a kubelet leaves it there."""
    node = made()
    for field in ("capacity", "allocatable"):
        node["status"][field]["example.com/dongle"] = "4"
    status = node_status(FACTS, the_setting(), WELL, node["status"]["conditions"], T0)
    assert not says_more_than_alive(node, status)


def test_the_capacity_of_others_becomes_allocatable_and_goes_with_it() -> None:
    """The documented way to advertise an extended resource changes the capacity only."""
    node = made()
    node["status"]["capacity"]["example.com/dongle"] = "4"
    status = node_status(FACTS, the_setting(), WELL, node["status"]["conditions"], T0)
    assert status_patch(node, status) == {"status": {"allocatable": {"example.com/dongle": "4"}}}
    del node["status"]["capacity"]["example.com/dongle"]
    node["status"]["allocatable"]["example.com/dongle"] = "4"
    assert status_patch(node, status) == {"status": {"allocatable": {"example.com/dongle": None}}}


@pytest.mark.parametrize(("spoil", "sent", "fields"), [row[1:] for row in MORE], ids=[row[0] for row in MORE])
def test_the_patch_mends_what_differs(spoil: Any, sent: Any, fields: set[str]) -> None:
    node = made()
    spoil(node["status"])
    status = node_status(FACTS, the_setting(), WELL, node["status"]["conditions"], T0)
    assert says_more_than_alive(node, status)
    change = status_patch(node, status)
    assert change is not None
    assert {name.removeprefix("$setElementOrder/") for name in change["status"]} == fields
    if sent is not None:
        assert change["status"][next(iter(fields))] == sent
    patched = apply_strategic(schema("v1", "Node"), copy.deepcopy(node), change)
    assert patched["status"] == {**status, **({"images": []} if fields == {"images"} else {})}


@given(st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(ALL)), st.booleans(), st.sampled_from(["1", "2", "64"]))
def test_any_patch_leads_to_the_status(was: set[NodeCondition], now: set[NodeCondition], well: bool, cpus: str) -> None:
    node = node_document(FACTS, the_setting(), NodeHealth(frozenset(was)), T0)
    node["status"]["capacity"]["cpu"] = str(parse(cpus))
    health = NodeHealth(frozenset(now), () if well else ("down",))
    status = node_status(FACTS, the_setting(), health, node["status"]["conditions"], T1)
    change = status_patch(node, status)
    assert change is not None
    assert apply_strategic(schema("v1", "Node"), node, change)["status"] == status


def test_metadata_of_a_node_that_was_there() -> None:
    node = made(declared_capacity="cpu=8")
    assert metadata_patch(msgspec.structs.replace(FACTS, declared_capacity="cpu=8"), node) is None
    node["metadata"]["labels"] = {"kubernetes.io/hostname": "other", "mine": "stays"}
    change = metadata_patch(FACTS, node)
    assert change is not None
    assert change["metadata"]["labels"]["kubernetes.io/hostname"] == "host1"
    assert "mine" not in change["metadata"]["labels"]
    assert change["metadata"]["annotations"] == {DECLARED_CAPACITY: None}, "no longer declared"


# --- events and the lease ---

EVENTS = [
    ("first time", None, WELL, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"]),
    ("nothing", WELL, WELL, []),
    ("memory comes", WELL, NodeHealth(frozenset({"MemoryPressure"})), ["NodeHasInsufficientMemory"]),
    ("memory goes", NodeHealth(frozenset({"MemoryPressure"})), WELL, ["NodeHasSufficientMemory"]),
    ("disk, pid", WELL, NodeHealth(frozenset({"DiskPressure", "PIDPressure"})), ["NodeHasDiskPressure", "NodeHasInsufficientPID"]),
    ("not ready", WELL, NodeHealth(problems=("down",)), ["NodeNotReady"]),
]  # fmt: skip


@pytest.mark.parametrize(("was", "now", "reasons"), [row[1:] for row in EVENTS], ids=[row[0] for row in EVENTS])
def test_events(was: NodeHealth | None, now: NodeHealth, reasons: list[str]) -> None:
    before = [] if was is None else node_document(FACTS, the_setting(), was, T0)["status"]["conditions"]
    after = node_status(FACTS, the_setting(), now, before, T1)["conditions"]
    assert transitions(before, after) == [("Normal", reason) for reason in reasons]
    assert event_message("n1", "NodeReady") == "Node n1 status is now: NodeReady"


def test_lease() -> None:
    stamp = "2026-11-16T00:00:00.000000Z"
    first = lease_document("n1", "u1", 40, stamp)
    assert first["metadata"] == {
        "name": "n1",
        "namespace": "kube-node-lease",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}],
    }
    assert first["spec"] == {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": stamp}
    stored = {**first, "metadata": {**first["metadata"], "resourceVersion": "7"}}
    stored["spec"] = {**first["spec"], "leaseTransitions": 1}
    again = lease_document("n1", "u2", 40, "2026-11-16T00:00:10.000000Z", stored)
    assert again["metadata"]["resourceVersion"] == "7"
    assert again["metadata"]["ownerReferences"][0]["uid"] == "u2"
    assert again["spec"] == {**stored["spec"], "renewTime": "2026-11-16T00:00:10.000000Z"}
