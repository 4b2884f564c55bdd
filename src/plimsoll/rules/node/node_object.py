"""The Node object that an agent maintains in the API: registration, status and lease (05 B9).

A kubelet registers once and then sends only differences of the status: every 10 s it computes the status, and sends it
if anything but the heartbeat times has changed, or after five minutes. A much smaller object, the lease, shows that the
node is alive. Conditions have a fixed order and fixed texts (04 §8); conditions, labels and annotations of other
writers are not changed. Times are texts.

Kubernetes: pkg/kubelet/nodestatus/setters.go, pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.node.declared_features import declared_features
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import Profile

LEASE_NAMESPACE = "kube-node-lease"
LEASE_RENEWALS = 4  # per lease duration
DECLARED_CAPACITY = "plimsoll.dev/declared-capacity"
SIMULATED = "plimsoll.dev/simulated"

# condition → (reason, message) for True and for False; the event's reason for each
_PRESSURES: dict[NodeCondition, tuple[tuple[str, str, str], tuple[str, str, str]]] = {
    "MemoryPressure": (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
    ),
    "DiskPressure": (
        ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    ),
    "PIDPressure": (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    ),
}
READY = "Ready"
# Extensions: True for problems without a kubelet condition. A condition that was never True is absent.
OWN_CONDITIONS = ("CgroupDriverMismatch", "MemoryQoSUnsupported")
CONDITION_ORDER: tuple[str, ...] = (*_PRESSURES, READY)


class MachineIdentity(msgspec.Struct, frozen=True):
    """The machine's identity for `status.nodeInfo`; empty if unknown."""

    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    architecture: str = "amd64"  # as Go spells it
    operating_system: str = "linux"
    in_user_namespace: bool = False


_RUNTIME_FIELDS = ("features", "runtimeHandlers")


class ImageOnNode(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    size_bytes: int = 0


class NodeFacts(msgspec.Struct, frozen=True):
    """What does not change while the agent runs."""

    name: str
    hostname: str
    internal_ip: str
    port: int  # of the node endpoint
    machine: MachineIdentity
    runtime_version: str  # `containerd://1.7.2`, at the start of the agent
    kubelet_version: str
    labels: Mapping[str, str] = {}  # --node-labels
    declared_capacity: str = ""  # as declared, if the node has another size than the machine
    simulated: bool = False  # limits are simulated, not enforced


class HandlerReport(msgspec.Struct, frozen=True):
    """What a handler of the container runtime supports; its name is "" for the default."""

    name: str
    recursive_read_only: bool = False
    user_namespaces: bool = False


class RuntimeReport(msgspec.Struct, frozen=True):
    """`version` is another one after an upgrade of the runtime."""

    version: str
    strict_groups: bool = False
    handlers: tuple[HandlerReport, ...] = ()


class NodeHealth(msgspec.Struct, frozen=True):
    """What may change at any time. `problems`: why the node is not ready, one sentence each."""

    pressures: frozenset[NodeCondition] = frozenset()
    problems: tuple[str, ...] = ()
    images: tuple[ImageOnNode, ...] = ()
    warnings: Mapping[str, str] = {}  # extension conditions that are True, each with a sentence
    runtime: RuntimeReport | None = None  # None before it is known
    devices: Mapping[str, tuple[int, int]] = {}  # extended resource → capacity and allocatable


def capacity_document(amounts: ResourceList) -> JsonObject:
    """Kubernetes' canonical texts, as `str` gives them: `48`, `263192560Ki`."""
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def node_labels(facts: NodeFacts) -> dict[str, str]:
    os_name, architecture = facts.machine.operating_system, facts.machine.architecture
    return {
        **facts.labels,
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": os_name,
        "kubernetes.io/arch": architecture,
        "kubernetes.io/hostname": facts.hostname,
        "kubernetes.io/os": os_name,
    }


def node_annotations(facts: NodeFacts) -> dict[str, str | None]:
    """Plimsoll's annotations; None removes one."""
    return {
        DECLARED_CAPACITY: facts.declared_capacity or None,
        SIMULATED: "true" if facts.simulated else None,
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }


def node_status(
    facts: NodeFacts, setting: NodeConfig, health: NodeHealth, before: Sequence[Mapping[str, Any]], now: str
) -> JsonObject:
    """The status to report; `before`: the conditions in the API."""
    declared = declared_features(setting.profile, setting.config.feature_gates)
    devices = sorted(health.devices.items())
    return {
        "addresses": [
            {"type": "InternalIP", "address": facts.internal_ip},
            {"type": "Hostname", "address": facts.hostname},
        ],
        "allocatable": capacity_document(setting.allocatable) | {name: str(n) for name, (_, n) in devices},
        "capacity": capacity_document(setting.capacity) | {name: str(n) for name, (n, _) in devices},
        "conditions": conditions(health, before, now),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.port}},
        "images": _images(health.images, setting.config.node_status_max_images),
        "nodeInfo": _node_info(facts, setting, health.runtime),
        **({"declaredFeatures": list(declared)} if declared else {}),
        **_runtime_report(health.runtime, setting.profile),
    }


def _runtime_report(report: RuntimeReport | None, profile: Profile) -> JsonObject:
    if report is None or not profile.runtime_features_reported:
        return {}
    handlers = [
        {
            "name": each.name,  # "" for the default one: an API server returns it, too, so the status stays equal
            "features": {
                "recursiveReadOnlyMounts": each.recursive_read_only,
                "userNamespaces": each.user_namespaces,
            },
        }
        for each in report.handlers
    ]
    return {"features": {"supplementalGroupsPolicy": report.strict_groups}, "runtimeHandlers": handlers}


def conditions(health: NodeHealth, before: Sequence[Mapping[str, Any]], now: str) -> list[JsonObject]:
    """The node's own conditions in order, after those of other writers. A transition time changes with its status."""
    known = {condition.get("type"): condition for condition in before}
    made = [dict(condition) for condition in before if condition.get("type") not in (*CONDITION_ORDER, *OWN_CONDITIONS)]
    for kind in OWN_CONDITIONS:
        if kind in health.warnings:
            made.append(_condition(kind, "True", kind, health.warnings[kind], known.get(kind), now))
        elif kind in known:
            made.append(_condition(kind, "False", f"No{kind}", "the problem is no longer observed", known[kind], now))
    for kind, (under, free) in _PRESSURES.items():
        holds = kind in health.pressures
        reason, message, _ = under if holds else free
        made.append(_condition(kind, "True" if holds else "False", reason, message, known.get(kind), now))
    if health.problems:
        reason, message, status = "KubeletNotReady", _joined(health.problems), "False"
    else:
        reason, message, status = "KubeletReady", "kubelet is posting ready status", "True"
    made.append(_condition(READY, status, reason, message, known.get(READY), now))
    return made


def _condition(
    kind: str, status: str, reason: str, message: str, before: Mapping[str, Any] | None, now: str
) -> JsonObject:
    same = before is not None and before.get("status") == status
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": (before or {}).get("lastTransitionTime") or now if same else now,
        "reason": reason,
        "message": message,
    }


def _joined(problems: Sequence[str]) -> str:
    """As Go prints an aggregate of errors."""
    unique = tuple(dict.fromkeys(problems))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _images(images: Iterable[ImageOnNode], most: int) -> list[JsonObject]:
    """The largest images that have a name, or all if `most` is −1; each with at most five names, as in the kubelet."""
    named = (image for image in images if image.names)
    largest = sorted(named, key=lambda image: (-image.size_bytes, image.names))[: None if most < 0 else most]
    return [{"names": list(image.names[:5]), "sizeBytes": image.size_bytes} for image in largest]


def _node_info(facts: NodeFacts, setting: NodeConfig, runtime: RuntimeReport | None) -> JsonObject:
    machine = facts.machine
    profile, gate = setting.profile, setting.config.gate
    swap = setting.policy.swap_capacity_bytes if profile.node_swap_reported else 0
    shows_namespace = profile.user_namespace_reported and gate("KubeletInUserNamespace")
    return {
        "architecture": machine.architecture,
        "bootID": machine.boot_id,
        "containerRuntimeVersion": facts.runtime_version if runtime is None else runtime.version,
        "kernelVersion": machine.kernel_version,
        "kubeProxyVersion": "",
        "kubeletVersion": facts.kubelet_version,
        "machineID": machine.machine_id,
        "operatingSystem": machine.operating_system,
        "osImage": machine.os_image,
        "systemUUID": machine.system_uuid,
        **({"swap": {"capacity": swap}} if swap and gate("NodeSwap") else {}),
        **({"runningInUserNamespace": machine.in_user_namespace} if shows_namespace else {}),
    }


def node_document(facts: NodeFacts, setting: NodeConfig, health: NodeHealth, now: str) -> JsonObject:
    """The Node to register: POST /api/v1/nodes."""
    annotations = {name: text for name, text in node_annotations(facts).items() if text is not None}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": node_labels(facts), "annotations": annotations},
        "spec": _spec(setting.config),
        "status": node_status(facts, setting, health, (), now),
    }


def _spec(config: KubeletConfig) -> JsonObject:
    taints = [
        {"key": taint.key, **({"value": taint.value} if taint.value else {}), "effect": taint.effect}
        for taint in config.register_with_taints or ()
    ]
    return {
        **({"taints": taints} if taints else {}),
        **({"providerID": config.provider_id} if config.provider_id else {}),
    }


def metadata_patch(facts: NodeFacts, node: Mapping[str, Any]) -> JsonObject | None:
    """The labels and annotations that an existing Node lacks; None if it has them all."""
    metadata = node.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    change: JsonObject = {}
    if missing := {name: text for name, text in node_labels(facts).items() if labels.get(name) != text}:
        change["labels"] = missing
    wrong = {name: text for name, text in node_annotations(facts).items() if annotations.get(name) != text}
    if wrong:
        change["annotations"] = wrong
    return {"metadata": change} if change else None


def status_patch(node: Mapping[str, Any], status: Mapping[str, Any]) -> JsonObject | None:
    """The strategic patch to the desired status; None if nothing differs, not even a heartbeat time."""
    have: Mapping[str, Any] = node.get("status") or {}
    change: JsonObject = {}
    # Extended resources (example.com/dongle) that the node does not report belong to the client that added them; their
    # capacity is allocatable.
    capacity = have.get("capacity") or {}
    foreign = {name: text for name, text in capacity.items() if "/" in name and name not in status["capacity"]}
    for field in ("allocatable", "capacity"):
        known, desired = have.get(field) or {}, {**foreign, **status[field]}
        gone = {name: None for name in known if name not in desired}
        amounts = {name: text for name, text in desired.items() if known.get(name) != text}
        if gone or amounts:
            change[field] = {**amounts, **gone}
    for field in ("daemonEndpoints", "nodeInfo", *(name for name in _RUNTIME_FIELDS if name in status)):
        if have.get(field) != status[field]:
            change[field] = status[field]
    if (have.get("declaredFeatures") or []) != (declared := status.get("declaredFeatures") or []):
        change["declaredFeatures"] = declared or None
    if have.get("volumesInUse"):
        # No volume here is attachable, so none is in use: a list that a kubelet left would prevent their detachment.
        change["volumesInUse"] = None
    if (have.get("images") or []) != status["images"]:
        change["images"] = status["images"]
    if have.get("addresses") != status["addresses"]:
        # Addresses merge by type, so two of one type would become one: replace the list, as a kubelet does.
        change["addresses"] = [*status["addresses"], {"$patch": "replace"}]
    if (have.get("conditions") or []) != status["conditions"]:
        known = {condition.get("type"): condition for condition in have.get("conditions") or ()}
        change["conditions"] = [
            condition for condition in status["conditions"] if known.get(condition["type"]) != condition
        ]
        change["$setElementOrder/conditions"] = [{"type": condition["type"]} for condition in status["conditions"]]
    return {"status": change} if change else None


def says_more_than_alive(node: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether anything but the heartbeat times differs from the API."""
    return (
        status_patch(_without_heartbeats(node), {**status, "conditions": _timeless(status["conditions"])}) is not None
    )


def _without_heartbeats(node: Mapping[str, Any]) -> JsonObject:
    status = node.get("status") or {}
    return {"status": {**status, "conditions": _timeless(status.get("conditions") or ())}}


def _timeless(conditions: Iterable[Mapping[str, Any]]) -> list[JsonObject]:
    return [
        {name: value for name, value in condition.items() if name != "lastHeartbeatTime"} for condition in conditions
    ]


def transitions(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[tuple[Literal["Normal", "Warning"], str]]:
    """(type, reason) of the events for changed conditions."""
    known = {condition.get("type"): condition.get("status") for condition in before}
    events: list[tuple[Literal["Normal", "Warning"], str]] = []
    for condition in after:
        kind, status = condition["type"], condition["status"]
        if known.get(kind) == status:
            continue
        if kind == READY:
            events.append(("Normal", "NodeReady" if status == "True" else "NodeNotReady"))
        elif kind in _PRESSURES:
            under, free = _PRESSURES[kind]
            events.append(("Normal", (under if status == "True" else free)[2]))
    return events


def event_message(name: str, reason: str) -> str:
    return f"Node {name} status is now: {reason}"


def lease_document(
    name: str, node_uid: str, duration_s: int, renewed: str, before: Mapping[str, Any] | None = None
) -> JsonObject:
    """`renewed` has six decimals. `before`: the lease in the API, whose resourceVersion the update requires."""
    metadata: JsonObject = dict((before or {}).get("metadata") or {"name": name, "namespace": LEASE_NAMESPACE})
    if node_uid:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}]
    spec = dict((before or {}).get("spec") or {})
    spec |= {"holderIdentity": name, "leaseDurationSeconds": duration_s, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
