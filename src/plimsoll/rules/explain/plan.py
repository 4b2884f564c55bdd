"""One pod → everything a node will do with it, as plain values: the batch form of `explain` (`plimsoll plan`).

This is the hot path for fleets: no formulas, no texts, nothing computed that is not printed.
"""

from __future__ import annotations

import msgspec

from plimsoll.errors import InvalidObjectError
from plimsoll.rules.model.cgroup_names import UNKNOWN_UID, CgroupName, Driver, Parent, class_name, parent
from plimsoll.rules.model.objects import CPU, Pod, QoSClass
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.resources.bounds import fits, oversized
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.effective import pod_limits, pod_requests
from plimsoll.rules.resources.exclusive_cpus import exclusive_cpus, pod_exclusive_cpus
from plimsoll.rules.resources.files import Files, files, hugetlb_files
from plimsoll.rules.resources.node_policy import NodePolicy, pod_policy
from plimsoll.rules.resources.oom_score import oom_scores
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from plimsoll.rules.resources.values import (
    as_kept,
    container_values,
    pod_values,
    with_host_pages,
)


class Placement(msgspec.Struct, frozen=True):
    """Where pods' cgroups go: the parents of each class and the driver that spells the names."""

    driver: Driver
    parents: dict[QoSClass, Parent]


def placement(pods_root: CgroupName, driver: Driver) -> Placement:
    classes: tuple[QoSClass, ...] = (GUARANTEED, BURSTABLE, BEST_EFFORT)
    return Placement(driver, {qos: parent(class_name(pods_root, qos), driver) for qos in classes})


class ContainerPlan(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    name: str
    oom_score_adj: int
    files: Files
    hugetlb: dict[str, int] | None = None


class PodPlan(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Requests and limits are whole units: cpu in milli-cores, everything else in bytes or pieces."""

    namespace: str
    name: str
    uid: str
    qos_class: QoSClass
    requests: dict[str, int]
    limits: dict[str, int]
    cgroup: str
    files: Files
    containers: list[ContainerPlan]
    init_containers: int = 0  # how many of `containers` are init containers: they come first
    hugetlb: dict[str, int] | None = None


def pod_plan(raw: Pod, policy: NodePolicy, place: Placement) -> PodPlan:
    """The plan of one pod as it came from JSON; defaulting is part of it. Raises InvalidObject on absurd amounts."""
    policy = pod_policy(raw, policy)
    pod_level, version, weight = policy.pod_level, policy.cgroup_version, policy.weight
    pod = allocated_from_status(defaulted(raw, pod_level=pod_level))
    metadata, spec = pod.metadata, pod.spec
    qos = qos_class(pod, pod_level=pod_level)
    requests = pod_requests(pod, pod_level=pod_level)
    limits = pod_limits(pod, pod_level=pod_level)
    whole_requests = {name: each.milli if name == CPU else each.value for name, each in requests.items()}
    whole_limits = {name: each.milli if name == CPU else each.value for name, each in limits.items()}
    if not (fits(whole_requests) and fits(whole_limits)):
        raise InvalidObjectError(oversized(raw) or oversized(pod))
    everybody = spec.init_containers + spec.containers
    scores = oom_scores(
        pod,
        qos,
        policy.memory_capacity_bytes,
        pod_level=pod_level and policy.pod_level_oom_share,
        sidecar_rule=policy.sidecar_oom_rule,
    )
    containers = []
    for container, score in zip(everybody, scores, strict=True):
        owns = exclusive_cpus(pod, container, qos, policy) > 0
        own = as_kept(container_values(pod, container, qos, policy, exclusive_cpus=owns), place.driver)
        hugetlb = None if own.hugetlb is None else hugetlb_files(own, version)
        containers.append(ContainerPlan(container.name, score, files(own, version, weight), hugetlb))
    owns = pod_exclusive_cpus(pod, qos, policy) > 0
    values = pod_values(pod, qos, requests, limits, policy, exclusive_cpus=owns)
    values = as_kept(with_host_pages(values, policy), place.driver)
    return PodPlan(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        qos,
        whole_requests,
        whole_limits,
        place.parents[qos].child("pod" + (metadata.uid or UNKNOWN_UID)),
        files(values, version, "linear"),
        containers,
        len(spec.init_containers),
        None if values.hugetlb is None else hugetlb_files(values, version),
    )
