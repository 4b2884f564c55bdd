"""The forecast of exclusive CPUs: whether the static CPU manager can assign them to a resized pod (02 §10).

The number of CPUs decides, hardly ever which ones. So all pods are assigned CPUs again, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from plimsoll.rules.cpumanager.assignment import CpuPlan, NotEnoughCpusError, NotWholeCoresError, assigned
from plimsoll.rules.cpumanager.topology import Cpus
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.scheduling.fit import load_key


def predicted_cpu_refusal(
    plan: CpuPlan, policy: NodePolicy, allocated: Iterable[Pod]
) -> Callable[[Pod], AdmissionRefusal | None]:
    """`allocated`: all pods of the node with their allocated resources, the pod in question included."""
    owned: dict[str, dict[str, Cpus]] = {}

    def assign(pod: Pod) -> dict[str, Cpus]:
        return assigned(_keyed(defaulted(pod, gates=policy.gates)), owned, plan, policy)

    for pod in allocated:
        try:
            owned[load_key(pod)] = assign(pod)
        except (NotEnoughCpusError, NotWholeCoresError):
            continue  # it runs, so the node used another order; its CPUs are unknown

    def refusal(pod: Pod) -> AdmissionRefusal | None:
        try:
            assign(pod)
        except (NotEnoughCpusError, NotWholeCoresError) as error:
            return AdmissionRefusal(error.reason, str(error))
        return None

    return refusal


def _keyed(pod: Pod) -> Pod:
    """Pods from manifests have no uid yet."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=load_key(pod)))
