"""The spread constraints that a pod has without asking: kube-scheduler's system defaults (05 A3).

A pod that belongs to a Service, ReplicaSet, StatefulSet or ReplicationController and has no constraints of its own is
spread over nodes (maxSkew 3) and zones (maxSkew 5), as far as possible (ScheduleAnyway). The selector is the union of
what those that it belongs to select.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from plimsoll.rules.model.objects import LabelSelector, Pod, TopologySpreadConstraint
from plimsoll.rules.scheduling.topology import HOSTNAME

ZONE = "topology.kubernetes.io/zone"
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),
)
OWNER_KINDS = frozenset(
    {("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}
)  # apiVersion, kind


class Owner(NamedTuple):
    """The controller of a pod, in the pod's namespace."""

    api_version: str
    kind: str
    name: str


def default_constraints(
    pod: Pod, services: Iterable[Mapping[str, str]], owner: LabelSelector | None
) -> tuple[TopologySpreadConstraint, ...]:
    """`services`: the selectors of the Services in the pod's namespace; `owner`: the selector of its controller."""
    if pod.spec.topology_spread_constraints:
        return ()
    labels = pod.metadata.labels or {}
    wanted: dict[str, str] = {}
    for selector in services:
        if selector and selector.items() <= labels.items():
            wanted.update(selector)
    expressions = owner.match_expressions if owner is not None else ()
    wanted.update((owner.match_labels if owner is not None else None) or {})
    if not wanted and not expressions:
        return ()
    both = LabelSelector(wanted, expressions)
    return tuple(msgspec.structs.replace(each, label_selector=both) for each in SYSTEM_DEFAULTS)
