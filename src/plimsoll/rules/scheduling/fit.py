"""Whether a pod fits on a node (05 A1, A2; 01 E-15, E-16).

Both sides are computed once. `PodLoad` is a pod with its requests as the scheduler's integers; `NodeLoad` is a node
with the sums of its pods. Adding or removing a pod makes a new NodeLoad by one addition, and no filter reads the pods
again. The scheduler counts a pending pod from its spec, and a pod on a node by what it may still use
(`rules.resources.effective`).

`verdict` runs the filters in Kubernetes' order and stops at the first that refuses: unschedulable, node name, taints,
node affinity, host ports, resources. A refusal is *unresolvable* if removing other pods cannot help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from plimsoll.rules.model.objects import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PODS,
    Node,
    Pod,
    ResourceList,
    Taint,
    is_sidecar,
)
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import ZERO, from_milli, from_units
from plimsoll.rules.resources.effective import pod_level_requests_set, pod_requests
from plimsoll.rules.resources.footprint import counted_requests
from plimsoll.rules.resources.qos import BEST_EFFORT, qos_class
from plimsoll.rules.scheduling.selectors import is_tolerated, matches_affinity

Amounts = dict[str, int]  # cpu in milli, everything else in units
HostPort = tuple[str, str, int]  # address, protocol, port

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)
MEMORY_PRESSURE_KEY = "node.kubernetes.io/memory-pressure"

UNSCHEDULABLE = "node(s) were unschedulable"
OTHER_NODE_NAME = "node(s) didn't match the requested node name"
UNTOLERATED_TAINTS = "node(s) had untolerated taint(s)"
AFFINITY_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"

# E-15: the default of a container without cpu or memory request, for scoring only.
SCORING_DEFAULTS: ResourceList = {CPU: from_milli(100), MEMORY: from_units(200 * 1024 * 1024, "BinarySI")}

_ANY_ADDRESS = "0.0.0.0"


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """A pod and its amounts. `requests` has only amounts above zero."""

    pod: Pod
    requests: Amounts
    scored_cpu_milli: int = 0
    scored_memory_bytes: int = 0
    ports: tuple[HostPort, ...] = ()

    @property
    def key(self) -> str:
        return load_key(self.pod)

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


class NodeLoad(msgspec.Struct, frozen=True):
    """A node, its pods by key, and their sums."""

    node: Node
    allocatable: Amounts
    pods_allowed: int
    residents: dict[str, PodLoad]
    requested: Amounts
    scored_cpu_milli: int = 0
    scored_memory_bytes: int = 0

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def with_pods(self, pods: Iterable[PodLoad]) -> NodeLoad:
        """The load with these pods too; a pod that is already counted is replaced."""
        if not self.residents:
            arrived = {pod.key: pod for pod in pods}
            return self._moved(arrived, (), arrived.values())
        residents, leaving, coming = dict(self.residents), [], {}
        for pod in pods:
            key = pod.key
            before = residents.get(key)
            if before is not None and key not in coming:
                leaving.append(before)
            residents[key] = coming[key] = pod
        return self._moved(residents, leaving, coming.values())

    def without_pods(self, keys: Iterable[str]) -> NodeLoad:
        """The load without these pods; pods that are not counted are ignored."""
        residents, leaving = dict(self.residents), []
        for key in keys:
            pod = residents.pop(key, None)
            if pod is not None:
                leaving.append(pod)
        return self._moved(residents, leaving, ())

    def on(self, node: Node) -> NodeLoad:
        """The same pods on the current version of the node."""
        resources = node.status.allocatable
        if resources is None:  # the API server then uses the capacity
            resources = node.status.capacity or {}
        allowed = resources.get(PODS)
        return msgspec.structs.replace(
            self, node=node, allocatable=amounts(resources), pods_allowed=0 if allowed is None else allowed.value
        )

    def _moved(self, residents: dict[str, PodLoad], leaving: Iterable[PodLoad], coming: Iterable[PodLoad]) -> NodeLoad:
        requested = dict(self.requested)
        cpu_milli, memory_bytes = self.scored_cpu_milli, self.scored_memory_bytes
        for sign, pods in ((-1, leaving), (1, coming)):
            for pod in pods:
                for name, amount in pod.requests.items():
                    requested[name] = requested.get(name, 0) + sign * amount
                cpu_milli += sign * pod.scored_cpu_milli
                memory_bytes += sign * pod.scored_memory_bytes
        return NodeLoad(self.node, self.allocatable, self.pods_allowed, residents, requested, cpu_milli, memory_bytes)


EMPTY = NodeLoad(Node(), {}, 0, {}, {})


class Shortfall(msgspec.Struct, frozen=True, gc=False):
    """One resource that a node lacks for a pod."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def unresolvable(self) -> bool:
        return self.resource != PODS and self.requested > self.capacity

    @property
    def reason(self) -> str:
        return TOO_MANY_PODS if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def rejection(self) -> str:
        """The reason of a pod that the kubelet rejects (E-16)."""
        return f"OutOf{self.resource}"

    @property
    def rejection_message(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )


class FitVerdict(msgspec.Struct, frozen=True, gc=False):
    """The result of the filters for one node; no reasons means that the pod fits."""

    reasons: tuple[str, ...] = ()
    unresolvable: bool = False

    @property
    def fits(self) -> bool:
        return not self.reasons


FITS = FitVerdict()
Filter = Callable[[NodeLoad], FitVerdict | None]


# --- loads ---


def amounts(resources: ResourceList) -> Amounts:
    """The resources that schedulers know, rounded up: the three of every node first, then the others by name."""
    result: Amounts = {}
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE):
        quantity = resources.get(name)
        if quantity:
            result[name] = quantity.milli if name == CPU else quantity.value
    if len(resources) > len(result):
        for name in sorted(filter(is_scalar, resources)):
            if resources[name]:
                result[name] = resources[name].value
    return result


def is_scalar(name: str) -> bool:
    """Huge pages and names with a prefix; any other name that is not one of Kubernetes' own is ignored by the
    scheduler."""
    return "/" in name or name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-"))


def load_key(pod: Pod) -> str:
    """Identifies a pod of a node."""
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


def is_terminal(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def requesting_load(pod: Pod) -> PodLoad:
    """What the node's own admission counts: requests, ports, and one pod."""
    return PodLoad(pod, amounts(pod_requests(pod)), ports=host_ports(pod))


def waiting_load(pod: Pod) -> PodLoad:
    """A pending pod counts from its spec only (A1)."""
    return _weighed(pod, pod_requests(pod), pod_requests(pod, absent=SCORING_DEFAULTS))


def resident_load(pod: Pod, profile: Profile) -> PodLoad:
    """A pod on a node counts its requests and what it may still use while a resize is pending (A1, E-10)."""
    rule = profile.resize_footprint
    requests = counted_requests(pod, rule)
    absent = SCORING_DEFAULTS
    if pod_level_requests_set(pod.spec.resources):
        # With pod-level requests a default counts only for a resource that neither level requests.
        absent = {name: quantity for name, quantity in absent.items() if name not in requests}
    return _weighed(pod, requests, counted_requests(pod, rule, absent=absent) if absent else requests)


def _weighed(pod: Pod, requests: ResourceList, scored: ResourceList) -> PodLoad:
    cpu, memory = scored.get(CPU, ZERO), scored.get(MEMORY, ZERO)
    return PodLoad(pod, amounts(requests), cpu.milli, memory.value, host_ports(pod))


def node_load(node: Node, pods: Iterable[Pod], profile: Profile) -> NodeLoad:
    """The node with its pods; terminated pods do not count, pods being deleted do (A1)."""
    return EMPTY.on(node).with_pods(resident_load(pod, profile) for pod in pods if not is_terminal(pod))


def allocated_load(node: Node, pods: Iterable[Pod]) -> NodeLoad:
    """The node as its own admission counts: the active pods, each with its allocated resources."""
    return EMPTY.on(node).with_pods(map(requesting_load, pods))


def with_nominated(node: NodeLoad, nominated: Iterable[PodLoad], pod: PodLoad) -> NodeLoad:
    """The node with the nominated pods of equal or higher priority (A2)."""
    rivals = [each for each in nominated if each.priority >= pod.priority and each.key != pod.key]
    return node.with_pods(rivals) if rivals else node


# --- filters ---


def verdict(pod: PodLoad, node: NodeLoad, profile: Profile, others: Filter | None = None) -> FitVerdict:
    """`others`: the filter by the other pods of the cluster, which runs last (`rules.scheduling.topology`)."""
    refusal = node_refusal(pod.pod, node.node, profile)
    if refusal is not None:
        return FitVerdict((refusal,), unresolvable=True)
    if pod.ports and ports_taken(pod.ports, node.residents.values()):
        return FitVerdict((PORTS_TAKEN,))
    missing = shortfalls(pod.requests, node)
    if missing:
        return FitVerdict(tuple(each.reason for each in missing), any(each.unresolvable for each in missing))
    return (others(node) if others is not None else None) or FITS


def shortfalls(requests: Amounts, node: NodeLoad) -> list[Shortfall]:
    """Every insufficient resource; a resource that is not requested is never short (A2, E-16)."""
    short: list[Shortfall] = []
    count = len(node.residents)
    if count + 1 > node.pods_allowed:
        short.append(Shortfall(PODS, 1, count, node.pods_allowed))
    allocatable, requested = node.allocatable, node.requested
    for name, amount in requests.items():
        capacity, used = allocatable.get(name, 0), requested.get(name, 0)
        if amount > capacity - used:
            short.append(Shortfall(name, amount, used, capacity))
    return short


def kubelet_shortfalls(requests: Amounts, node: NodeLoad) -> list[Shortfall]:
    """As the kubelet admits: an extended resource that the node does not know is not checked (E-16)."""
    known = {
        name: amount
        for name, amount in requests.items()
        if name in node.allocatable or "/" not in name or "kubernetes.io/" in name
    }
    return shortfalls(known, node)


def node_refusal(pod: Pod, node: Node, profile: Profile) -> str | None:
    """The filters of the node itself, without its load; their refusals are all unresolvable."""
    spec = pod.spec
    if node.spec.unschedulable and not is_tolerated(UNSCHEDULABLE_TAINT, spec.tolerations):
        return UNSCHEDULABLE
    if spec.node_name and spec.node_name != node.metadata.name:
        return OTHER_NODE_NAME
    for taint in node.spec.taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, spec.tolerations):
            is_memory_pressure = taint.key == MEMORY_PRESSURE_KEY and taint.effect == NO_SCHEDULE
            if profile.memory_pressure_tolerated and is_memory_pressure and qos_class(pod) != BEST_EFFORT:
                continue
            if profile.taint_text_names_taint:
                return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
            return UNTOLERATED_TAINTS
    if (spec.node_selector or spec.affinity is not None) and not matches_affinity(pod, node):
        return AFFINITY_MISMATCH
    return None


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of the containers that run permanently. In the host's network every port is a host port."""
    spec = pod.spec
    ports: list[HostPort] = []
    for container in (*filter(is_sidecar, spec.init_containers), *spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                ports.append((port.host_ip or _ANY_ADDRESS, port.protocol or "TCP", number))
    return tuple(ports)


def ports_taken(wanted: tuple[HostPort, ...], residents: Iterable[PodLoad]) -> bool:
    return any(_collide(own, other) for resident in residents for other in resident.ports for own in wanted)


def _collide(one: HostPort, other: HostPort) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or _ANY_ADDRESS in (one[0], other[0]))
