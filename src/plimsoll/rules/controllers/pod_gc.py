"""Pod garbage collection (04 §7): pods that the control plane deletes by itself.

Terminated pods above a threshold, the oldest first; pods on nodes that do not exist; pods that are being deleted and
were never scheduled. A pod of an unreachable node is not deleted: it may still run.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.scheduling.fit import is_terminal

TERMINATED_THRESHOLD = 12500


class Collected(msgspec.Struct, frozen=True):
    """`fail_first`: it never terminated, so its phase becomes Failed before it is deleted; `is_orphan`: and a condition
    says that its node is gone."""

    pod: Pod
    why: str
    fail_first: bool = False
    is_orphan: bool = False


def collected(pods: Iterable[Pod], nodes: Set[str], *, threshold: int = TERMINATED_THRESHOLD) -> list[Collected]:
    ended: list[Pod] = []
    result: list[Collected] = []
    for pod in pods:
        name = pod.spec.node_name
        if is_terminal(pod):
            ended.append(pod)
        elif name and name not in nodes:
            result.append(Collected(pod, f'node "{name}" does not exist', fail_first=True, is_orphan=True))
        elif not name and pod.metadata.deletion_timestamp is not None:
            result.append(Collected(pod, "deleted before it was scheduled", fail_first=True))
    ended.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name))
    surplus = ended[: max(len(ended) - threshold, 0)]
    return result + [Collected(pod, f"more than {threshold} terminated pods") for pod in surplus]
