"""/metrics/objects of the API server: the series of kube-state-metrics that dashboards and rules join on.

Names and labels are those of kube-state-metrics, so that rules written for it work without it: the Kubernetes mixin
joins usage with requests, limits, owners, phases and nodes. Only the fields that a series needs are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from plimsoll.errors import InvalidQuantityError
from plimsoll.metrics.exposition import Family, Labels, Sample
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.store.store import Store

Kind = TypeVar("Kind")
PATH, TARGETS = "/metrics/objects", "/metrics/targets"
PHASES = ("Pending", "Succeeded", "Failed", "Running", "Unknown")
_CONDITION_STATUS = ("true", "false", "unknown")
_POD = ("namespace", "pod", "uid")


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    owner_references: tuple[_Owner, ...] = ()


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str
    image: str = ""
    resources: _Resources = _Resources()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    priority_class_name: str = ""
    containers: tuple[_Container, ...] = ()


class _State(msgspec.Struct, frozen=True):
    waiting: _Reason | None = None
    terminated: _Reason | None = None


class _Reason(msgspec.Struct, frozen=True):
    reason: str = ""


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0
    ready: bool = False
    state: _State = _State()
    last_state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    qos_class: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Address(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None
    node_info: _NodeInfo = _NodeInfo()


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _QuotaStatus(msgspec.Struct, frozen=True):
    hard: dict[str, Any] | None = None
    used: dict[str, Any] | None = None


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    status: _QuotaStatus = _QuotaStatus()


def _pod_info(pod: _Pod) -> Iterable[Sample]:
    owner = _controller(pod.metadata)
    spec, status = pod.spec, pod.status
    yield (
        *_of(pod), spec.node_name, status.host_ip, status.pod_ip, owner.kind, owner.name, spec.priority_class_name,
        str(spec.host_network).lower(),
    ), 1  # fmt: skip


def _controller(meta: _Meta) -> _Owner:
    return next((each for each in meta.owner_references if each.controller), _Owner())


def _of(pod: _Pod) -> Labels:
    return pod.metadata.namespace, pod.metadata.name, pod.metadata.uid


def _pod_owner(pod: _Pod) -> Iterable[Sample]:
    for each in pod.metadata.owner_references or (_Owner(),):
        yield (*_of(pod), each.kind, each.name, "" if not each.kind else str(bool(each.controller)).lower()), 1


def _amounts(resources: Mapping[str, Any] | None) -> Iterator[tuple[str, str, float]]:
    """Resource, unit and number, as kube-state-metrics names them."""
    for name, text in (resources or {}).items():
        try:
            quantity = QUANTITIES[str(text)]
        except InvalidQuantityError:  # stored by an older release
            continue
        label = name.translate(_LABEL)
        if name == "cpu":
            yield label, "core", quantity.milli / 1000
        elif name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
            yield label, "byte", quantity.value
        else:
            yield label, "integer", quantity.value


_LABEL = str.maketrans("-./", "___")


def _container_amounts(which: str) -> Callable[[_Pod], Iterable[Sample]]:
    def samples(pod: _Pod) -> Iterable[Sample]:
        for each in pod.spec.containers:
            for resource, unit, number in _amounts(getattr(each.resources, which)):
                yield (*_of(pod), each.name, pod.spec.node_name, resource, unit), number

    return samples


def _statuses(pod: _Pod) -> list[_ContainerStatus]:
    return pod.status.container_statuses or []


def _container_info(pod: _Pod) -> Iterable[Sample]:
    images = {each.name: each.image for each in pod.spec.containers}
    for each in _statuses(pod):
        yield (*_of(pod), each.name, images.get(each.name, ""), each.image_id, each.container_id), 1


_POD_FAMILIES: tuple[tuple[Family, Callable[[_Pod], Iterable[Sample]]], ...] = (
    (
        Family(
            "gauge", "kube_pod_info", "Information about pod",
            (
                *(*_POD, "node", "host_ip", "pod_ip", "created_by_kind", "created_by_name"),
                *("priority_class", "host_network"),
            ),
        ),
        _pod_info,
    ),
    (
        Family(
            "gauge", "kube_pod_owner", "Information about the Pod's owner",
            (*_POD, "owner_kind", "owner_name", "owner_is_controller"),
        ),
        _pod_owner,
    ),
    (
        Family("gauge", "kube_pod_status_phase", "The pods current phase", (*_POD, "phase")),
        lambda pod: [((*_of(pod), phase), float(pod.status.phase == phase)) for phase in PHASES],
    ),
    (
        Family("gauge", "kube_pod_status_qos_class", "The pods current qosClass", (*_POD, "qos_class")),
        lambda pod: [((*_of(pod), pod.status.qos_class), 1)] if pod.status.qos_class else [],
    ),
    (
        Family(
            "gauge", "kube_pod_container_info", "Information about a container in a pod",
            (*_POD, "container", "image", "image_id", "container_id"),
        ),
        _container_info,
    ),
    (
        Family(
            "gauge", "kube_pod_container_resource_requests", "The number of requested request resource by a container",
            (*_POD, "container", "node", "resource", "unit"),
        ),
        _container_amounts("requests"),
    ),
    (
        Family(
            "gauge", "kube_pod_container_resource_limits", "The number of requested limit resource by a container",
            (*_POD, "container", "node", "resource", "unit"),
        ),
        _container_amounts("limits"),
    ),
    (
        Family(
            "counter", "kube_pod_container_status_restarts_total", "The number of container restarts per container",
            (*_POD, "container"),
        ),
        lambda pod: [((*_of(pod), each.name), each.restart_count) for each in _statuses(pod)],
    ),
    (
        Family(
            "gauge", "kube_pod_container_status_ready", "Describes whether the containers readiness check succeeded",
            (*_POD, "container"),
        ),
        lambda pod: [((*_of(pod), each.name), float(each.ready)) for each in _statuses(pod)],
    ),
    (
        Family(
            "gauge", "kube_pod_container_status_waiting_reason", "Describes the reason the container is waiting",
            (*_POD, "container", "reason"),
        ),
        lambda pod: [
            ((*_of(pod), each.name, each.state.waiting.reason), 1)
            for each in _statuses(pod)
            if each.state.waiting and each.state.waiting.reason
        ],
    ),
    (
        Family(
            "gauge", "kube_pod_container_status_last_terminated_reason",
            "Describes the last reason the container was in terminated state", (*_POD, "container", "reason"),
        ),
        lambda pod: [
            ((*_of(pod), each.name, each.last_state.terminated.reason), 1)
            for each in _statuses(pod)
            if each.last_state.terminated and each.last_state.terminated.reason
        ],
    ),
)  # fmt: skip


def _node_info(node: _Node) -> Iterable[Sample]:
    info = node.status.node_info
    inside = next((each.address for each in node.status.addresses or () if each.type == "InternalIP"), "")
    versions = (info.kernel_version, info.os_image, info.container_runtime_version, info.kubelet_version)
    yield (node.metadata.name, *versions, inside), 1


def _node_amounts(which: str) -> Callable[[_Node], Iterable[Sample]]:
    def samples(node: _Node) -> Iterable[Sample]:
        for resource, unit, number in _amounts(getattr(node.status, which)):
            yield (node.metadata.name, resource, unit), number

    return samples


_NODE_FAMILIES: tuple[tuple[Family, Callable[[_Node], Iterable[Sample]]], ...] = (
    (
        Family(
            "gauge", "kube_node_info", "Information about a cluster node",
            ("node", "kernel_version", "os_image", "container_runtime_version", "kubelet_version", "internal_ip"),
        ),
        _node_info,
    ),
    (
        Family("gauge", "kube_node_status_capacity", "The capacity of a node", ("node", "resource", "unit")),
        _node_amounts("capacity"),
    ),
    (
        Family("gauge", "kube_node_status_allocatable", "The allocatable of a node", ("node", "resource", "unit")),
        _node_amounts("allocatable"),
    ),
    (
        Family(
            "gauge", "kube_node_status_condition", "The condition of a cluster node", ("node", "condition", "status")
        ),
        lambda node: [
            ((node.metadata.name, each.type, status), float(each.status.lower() == status))
            for each in node.status.conditions or ()
            for status in _CONDITION_STATUS
        ],
    ),
    (
        Family("gauge", "kube_node_spec_unschedulable", "Whether a node can schedule new pods", ("node",)),
        lambda node: [((node.metadata.name,), float(node.spec.unschedulable))],
    ),
)  # fmt: skip
_REPLICA_SET_OWNER = Family(
    "gauge", "kube_replicaset_owner", "Information about the ReplicaSet's owner",
    ("namespace", "replicaset", "owner_kind", "owner_name", "owner_is_controller"),
)  # fmt: skip
_QUOTA = Family(
    "gauge", "kube_resourcequota", "Information about resource quota",
    ("namespace", "resourcequota", "resource", "type"),
)  # fmt: skip
FAMILIES = (
    *(family for family, _ in _POD_FAMILIES),
    *(family for family, _ in _NODE_FAMILIES),
    _REPLICA_SET_OWNER,
    _QUOTA,
)


def objects_page(store: Store) -> str:
    pods, nodes = _decoded(store, "/pods/", _Pod), _decoded(store, "/nodes/", _Node)
    parts = [family.written(sample for pod in pods for sample in read(pod)) for family, read in _POD_FAMILIES]
    parts += [family.written(sample for node in nodes for sample in read(node)) for family, read in _NODE_FAMILIES]
    parts.append(_REPLICA_SET_OWNER.written(_replica_set_owners(_decoded(store, "apps/replicasets/", _Named))))
    parts.append(_QUOTA.written(_quotas(_decoded(store, "/resourcequotas/", _Named))))
    return "".join(parts)


def targets_page(store: Store, address: str) -> bytes:
    """The nodes for `http_sd_configs`: all are scraped at the API server's address, each at its own path."""
    target = address.removeprefix("https://")
    nodes = [record.key.rpartition("/")[2] for record in store.list("/nodes/")[1]]
    return msgspec.json.encode([{"targets": [target], "labels": {"node": name}} for name in nodes])


def _decoded(store: Store, prefix: str, kind: type[Kind]) -> list[Kind]:
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(record.body) for record in store.list(prefix)[1]]


def _replica_set_owners(sets: Iterable[_Named]) -> Iterator[Sample]:
    for each in sets:
        for owner in each.metadata.owner_references or (_Owner(),):
            is_controller = str(bool(owner.controller)).lower() if owner.kind else ""
            yield (each.metadata.namespace, each.metadata.name, owner.kind, owner.name, is_controller), 1


def _quotas(quotas: Iterable[_Named]) -> Iterator[Sample]:
    for each in quotas:
        for kind in ("hard", "used"):
            for name, text in (getattr(each.status, kind) or {}).items():
                resource = name.removeprefix("requests.").removeprefix("limits.")
                for _, _, number in _amounts({resource: text}):
                    yield (each.metadata.namespace, each.metadata.name, name, kind), number
