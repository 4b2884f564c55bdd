"""Exclusive CPUs in a forecast: whether the static CPU manager can assign them to a resized pod, and which (02 §10).

The number of CPUs decides, hardly ever which ones: all pods of the node are assigned CPUs again, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.cpumanager.assignment import CPU_ERRORS, CpuPlan, assigned
from plimsoll.rules.cpumanager.pools import CpuPools
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.scheduling.fit import load_key

SHARED = "shared pool"


class CpuChange(msgspec.Struct, frozen=True):
    """`cpuset.cpus` of a container, or of all containers of the shared pool."""

    name: str
    before: str
    after: str


class PredictedCpus:
    """`allocated`: all pods of the node with their allocated resources, the resized pod included."""

    def __init__(self, plan: CpuPlan, policy: NodePolicy, allocated: Iterable[Pod]) -> None:
        self._plan, self._policy = plan, policy
        self._pools = plan.pools({})
        for pod in allocated:
            try:
                self._pools = self._assigned(pod)
            except CPU_ERRORS:
                continue  # it runs, so the node used another order; its CPUs are unknown

    def refusal(self, pod: Pod) -> AdmissionRefusal | None:
        try:
            self._assigned(pod)
        except CPU_ERRORS as error:
            return AdmissionRefusal(error.reason, str(error))
        return None

    def changes(self, pod: Pod) -> tuple[CpuChange, ...]:
        """What a resize that is accepted changes; an example, because a node may have chosen other CPUs."""
        key = load_key(pod)
        before, after = self._pools, self._assigned(pod)
        if before.shared == after.shared:
            return ()
        old, new = before.owned.get(key, {}), after.owned.get(key, {})
        changed = [
            CpuChange(name, cpu_text(old.get(name, before.shared)), cpu_text(new.get(name, after.shared)))
            for name in dict.fromkeys([*old, *new])
        ]
        return (*changed, CpuChange(SHARED, cpu_text(before.shared), cpu_text(after.shared)))

    def _assigned(self, pod: Pod) -> CpuPools:
        return assigned(_keyed(defaulted(pod, gates=self._policy.gates)), self._pools, self._plan, self._policy)


def _keyed(pod: Pod) -> Pod:
    """Pods from manifests have no uid yet."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=load_key(pod)))
