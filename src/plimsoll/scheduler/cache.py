"""The scheduler's cache of the cluster: the nodes with their loads, and the pods on them, bound or assumed.

A pod counts on its node from the scheduling decision on (assumed), until the API shows it bound or the binding fails.
Each change returns whether it may make a waiting pod schedulable.
"""

from __future__ import annotations

import bisect

from plimsoll.rules.model.objects import LabelSelector, Node, Pod
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.default_spread import Owner, default_constraints
from plimsoll.rules.scheduling.fit import NodeLoad, PodLoad, is_terminal, node_load, resident_load
from plimsoll.rules.scheduling.topology import Topology, concerns_others, depends_on_others
from plimsoll.scheduler.claims import ClaimCache


class SchedulerCache:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._loads: dict[str, NodeLoad] = {}
        self._names: list[str] = []  # sorted
        self._node_of: dict[str, str] = {}  # by pod uid
        self._orphaned: dict[str, dict[str, Pod]] = {}  # node → uid → pod, for nodes that are not known
        self._assumed: set[str] = set()
        self._with_affinity: set[str] = set()  # uids of placed pods that other pods must be checked against
        self.namespaces: dict[str, dict[str, str]] = {}  # name → labels
        self.owners: dict[str, Owner] = {}  # of waiting pods, by uid
        self.services: dict[str, dict[str, dict[str, str]]] = {}  # selectors by namespace and name
        self.controllers: dict[tuple[str, Owner], LabelSelector] = {}  # of ReplicaSets and the like, by namespace
        self.claims = ClaimCache()
        self.changed: set[str] = set()  # nodes whose load changed; a consumer of the loads clears it
        self.nodes_version = 0  # increases when a node is added, removed or changed

    def __len__(self) -> int:
        return len(self._names)

    def loads(self) -> list[NodeLoad]:
        return [self._loads[name] for name in self._names]

    def load(self, name: str) -> NodeLoad | None:
        return self._loads.get(name)

    def resident(self, uid: str) -> PodLoad | None:
        """A placed pod as it is counted; None where its node is not known."""
        load = self._loads.get(self._node_of.get(uid, ""))
        return None if load is None else load.residents.get(uid)

    def put_node(self, node: Node) -> bool:
        """True where the node is new or has changed; False for a mere heartbeat."""
        name = node.metadata.name
        before = self._loads.get(name)
        if before is not None:
            if before.node.spec == node.spec and _offers_same(before.node, node):
                return False
            fresh = node_load(node, (), self._profile).with_pods(before.residents.values())
        else:
            bisect.insort(self._names, name)
            fresh = node_load(node, self._orphaned.pop(name, {}).values(), self._profile)
        self._set(name, fresh)
        self.nodes_version += 1
        return True

    def drop_node(self, name: str) -> None:
        load = self._loads.pop(name, None)
        if load is None:
            return
        self._names.remove(name)
        self.changed.discard(name)
        self.nodes_version += 1
        if load.residents:
            self._orphaned[name] = {uid: resident.pod for uid, resident in load.residents.items()}

    def put_pod(self, pod: Pod) -> bool:
        """A pod that has a node. True where it frees resources: it ended, or requests less than before."""
        uid, name = pod.metadata.uid, pod.spec.node_name
        self._assumed.discard(uid)
        if is_terminal(pod):
            return self.drop_pod(uid)
        before = self._node_of.get(uid)
        if before is not None and before != name:
            self.drop_pod(uid)
        self._node_of[uid] = name
        self._note_affinity(pod)
        node = self._loads.get(name)
        if node is None:
            self._orphaned.setdefault(name, {})[uid] = pod
            return False
        load, known = resident_load(pod, self._profile), node.residents.get(uid)
        self._set(name, node.with_pods((load,)))
        return known is not None and any(load.requests.get(key, 0) < amount for key, amount in known.requests.items())

    def drop_pod(self, uid: str) -> bool:
        name = self._node_of.pop(uid, None)
        self._assumed.discard(uid)
        self._with_affinity.discard(uid)
        if name is None:
            return False
        node = self._loads.get(name)
        if node is None:
            self._orphaned.get(name, {}).pop(uid, None)
            return False
        self._set(name, node.without_pods((uid,)))
        return True

    def assume(self, load: PodLoad, name: str) -> None:
        uid = load.pod.metadata.uid
        self._node_of[uid] = name
        self._assumed.add(uid)
        self._note_affinity(load.pod)
        self._set(name, self._loads[name].with_pods((load,)))

    def forget(self, uid: str) -> None:
        """The binding failed: drop an assumed pod. One that the API shows as bound stays."""
        if uid in self._assumed:
            self.drop_pod(uid)

    def topology(self, pod: Pod) -> Topology | None:
        """The other pods as the rules need them, where they matter for this one."""
        namespace, owner = pod.metadata.namespace, self.owners.get(pod.metadata.uid)
        selector = self.controllers.get((namespace, owner)) if owner is not None else None
        defaults = default_constraints(pod, self.services.get(namespace, {}).values(), selector)
        if not self._with_affinity and not defaults and not depends_on_others(pod):
            return None
        return Topology(pod, self.loads(), self.namespaces, defaults)

    def is_placed(self, uid: str) -> bool:
        return uid in self._node_of

    def _note_affinity(self, pod: Pod) -> None:
        if concerns_others(pod):
            self._with_affinity.add(pod.metadata.uid)

    def _set(self, name: str, load: NodeLoad) -> None:
        self._loads[name] = load
        self.changed.add(name)


def _offers_same(one: Node, other: Node) -> bool:
    return (
        one.status.allocatable == other.status.allocatable
        and one.status.capacity == other.status.capacity
        and one.metadata.labels == other.metadata.labels
    )
