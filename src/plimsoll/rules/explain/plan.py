"""The values of one pod on a node, without reasons: `plimsoll plan`.

A PodPlan is a projection of `rules.cgroups.desired.Workload`. `batch` computes the same for whole blocks of pods.
"""

from __future__ import annotations

import msgspec

from plimsoll.errors import InvalidObjectError
from plimsoll.rules.cgroups.desired import Workload, pod_totals, sized
from plimsoll.rules.model.cgroup_names import UNKNOWN_UID, CgroupName, Driver, Parent, class_name, parent
from plimsoll.rules.model.objects import CPU, Pod, QoSClass, ResourceList
from plimsoll.rules.resources.bounds import fits, oversized
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.files import Files, files, hugetlb_files
from plimsoll.rules.resources.node_policy import NodePolicy, pod_policy
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED


class Placement(msgspec.Struct, frozen=True):
    """The parent cgroups of each QoS class, and the driver, which decides how names are spelled."""

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
    """Requests and limits are whole units: cpu in milli-cores, others in bytes or pieces."""

    namespace: str
    name: str
    uid: str
    qos_class: QoSClass
    requests: dict[str, int]
    limits: dict[str, int]
    cgroup: str
    files: Files
    containers: list[ContainerPlan]
    init_containers: int = 0  # how many of `containers` are init containers; they come first
    hugetlb: dict[str, int] | None = None


def pod_plan(raw: Pod, policy: NodePolicy, place: Placement) -> PodPlan:
    """The plan of one pod as it was decoded from JSON; defaulting is part of it. Ephemeral containers are left out.

    Raises InvalidObjectError for an amount that no value can be computed from.
    """
    if raw.spec.ephemeral_containers:
        raw = msgspec.structs.replace(raw, spec=msgspec.structs.replace(raw.spec, ephemeral_containers=()))
    policy = pod_policy(raw, policy)
    totals = pod_totals(defaulted(raw, gates=policy.gates), policy.gates)
    requests, limits = _whole(totals.requests), _whole(totals.limits)
    if not (fits(requests) and fits(limits)):
        raise InvalidObjectError(oversized(raw) or oversized(totals.pod))
    return _projected(sized(totals, policy, place.driver), requests, limits, policy, place)


def _whole(resources: ResourceList) -> dict[str, int]:
    return {name: quantity.milli if name == CPU else quantity.value for name, quantity in resources.items()}


def _projected(
    work: Workload, requests: dict[str, int], limits: dict[str, int], policy: NodePolicy, place: Placement
) -> PodPlan:
    version, metadata = policy.cgroup_version, work.pod.metadata
    return PodPlan(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        work.qos,
        requests,
        limits,
        place.parents[work.qos].child("pod" + (metadata.uid or UNKNOWN_UID)),
        files(work.values, version, "linear"),
        [
            ContainerPlan(container.name, score, files(values, version, policy.weight), hugetlb_files(values, version))
            for container, score, values in zip(work.containers, work.scores, work.container_values, strict=True)
        ],
        len(work.pod.spec.init_containers),
        hugetlb_files(work.values, version),
    )
