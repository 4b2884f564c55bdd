"""Pods that nobody will end any more (spec 04 §7): whom the control plane deletes by itself.

Terminated pods above a threshold, the oldest first; pods on nodes that are gone; pods that are being deleted and never
got a node. A pod of a node that is merely silent is left alone: it may well be running.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.scheduling.fit import is_terminal

TERMINATED_KEPT = 12500


class Collected(msgspec.Struct, frozen=True):
    """`fail_first`: it never ended by itself, so its phase becomes Failed before it goes."""

    pod: Pod
    why: str
    fail_first: bool = False


def collected(pods: Iterable[Pod], nodes: Set[str], *, kept: int = TERMINATED_KEPT) -> list[Collected]:
    ended: list[Pod] = []
    found: list[Collected] = []
    for pod in pods:
        name = pod.spec.node_name
        if is_terminal(pod):
            ended.append(pod)
        elif name and name not in nodes:
            found.append(Collected(pod, f'node "{name}" is gone', fail_first=True))
        elif not name and pod.metadata.deletion_timestamp is not None:
            found.append(Collected(pod, "deleted before it had a node"))
    ended.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name))
    surplus = ended[: max(len(ended) - kept, 0)]
    return found + [Collected(pod, f"more than {kept} ended pods") for pod in surplus]
