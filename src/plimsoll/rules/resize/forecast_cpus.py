"""Whether exclusive CPUs could be had, for whoever knows a node's pods but not which CPUs they own (02 §10).

How many are taken decides, hardly ever which: so the pods are given theirs anew, one after the other.
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


def foretold_cpu_refusal(
    plan: CpuPlan, policy: NodePolicy, held: Iterable[Pod]
) -> Callable[[Pod], AdmissionRefusal | None]:
    """`held`: all pods of the node with what is allocated to them, the one that will be asked about included."""
    owned: dict[str, dict[str, Cpus]] = {}

    def wanted(pod: Pod) -> dict[str, Cpus]:
        return assigned(_keyed(defaulted(pod, gates=policy.gates)), owned, plan, policy)

    for each in held:
        try:
            owned[load_key(each)] = wanted(each)
        except (NotEnoughCpusError, NotWholeCoresError):
            continue  # it runs all the same, so our order was not the node's; what it owns is not known

    def refusal(pod: Pod) -> AdmissionRefusal | None:
        try:
            wanted(pod)
        except (NotEnoughCpusError, NotWholeCoresError) as error:
            return AdmissionRefusal(error.reason, str(error))
        return None

    return refusal


def _keyed(pod: Pod) -> Pod:
    """Pods from manifests have no uid yet."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=load_key(pod)))
