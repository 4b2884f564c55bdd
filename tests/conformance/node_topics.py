"""Translations for topic h: what a node allocates and the cgroups of its QoS classes."""

from __future__ import annotations

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.thresholds import eviction_reservation, parsed_thresholds
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.node import allocatable
from plimsoll.rules.profile import Profile
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.values import Values
from tests.conformance.topics import (
    HOST_PAGE_SIZES,
    Json,
    amounts,
    config_of,
    gate,
    gates_of,
    pod_of,
    reservation,
    texts,
)


def node(given: Json, profile: Profile) -> Json:
    capacity = amounts(given["capacity"]) or {}
    try:
        eviction = eviction_reservation(parsed_thresholds(given["evictionHard"]), capacity)
    except InvalidConfigError as error:
        return {"evictionHardError": error.reason}
    reserved = allocatable.Reserved(amounts(given["systemReserved"]), amounts(given["kubeReserved"]), eviction)
    absolute = allocatable.absolute_allocatable(capacity, reserved)
    status = allocatable.machine_capacity(
        given["numCores"], capacity["memory"].value, given["maxPods"], given["podsPerCore"], capacity
    )
    enforced, unified = given["enforceNodeAllocatable"], given["cgroupVersion"] == 2
    found = {
        "allocatableAbsolute": texts(absolute),
        "reservation": texts(allocatable.total_reservation(capacity, reserved)),
        "valid": not allocatable.reservation_errors(capacity, reserved),
        "nodeStatusCapacity": texts(status),
        "nodeStatusAllocatable": texts(allocatable.node_allocatable(status, reserved)),
        "kubepodsCgroup": config_of(
            allocatable.kubepods_values(
                capacity,
                reserved,
                enforce_pods="pods" in enforced and given["cgroupsPerQOS"],
                pid_capacity=given["pidCapacity"],
                protection_reset=profile.memory_high_reset and unified and not gate(given, profile, "MemoryQoS"),
            )
        ),
        "reservedCgroups": _reserved_cgroups(given, reserved, profile),
        "qosCgroups": _class_cgroups(given, absolute, profile),
    }
    if given.get("start"):
        found["qosCgroupsStart"] = _started(given, profile)
    return found


def _reserved_cgroups(given: Json, reserved: allocatable.Reserved, profile: Profile) -> Json:
    found = {}
    for name, resources in (("system", reserved.system), ("kube", reserved.kube)):
        for suffix in ("", "-compressible"):
            if f"{name}-reserved{suffix}" in given["enforceNodeAllocatable"]:
                found[f"/{name}"] = config_of(
                    allocatable.reserved_values(
                        resources or {}, compressible=bool(suffix), memory_qos=gate(given, profile, "MemoryQoS")
                    )
                )
    return found


def _class_policy(given: Json, profile: Profile, absolute: ResourceList) -> NodePolicy:
    return NodePolicy(
        memory_capacity_bytes=0,
        allocatable_memory_bytes=absolute["memory"].value if "memory" in absolute else None,
        cgroup_version=given["cgroupVersion"],
        memory_qos=gate(given, profile, "MemoryQoS") and given["cgroupVersion"] == 2,
        reservation=reservation(given, profile),
        low_of_kubepods=profile.memory_low_of_kubepods,
        hugepage_sizes=HOST_PAGE_SIZES,
        gates=gates_of(given, profile),
    )


def _started(given: Json, profile: Profile) -> Json:
    found = allocatable.started_class_values(_class_policy(given, profile, {}))
    named = {"": found.kubepods, "/burstable": found.burstable, "/besteffort": found.besteffort}
    return {f"/kubepods{name}": config_of(each) for name, each in named.items() if each != Values()}


def _class_cgroups(given: Json, absolute: ResourceList, profile: Profile) -> Json:
    policy = _class_policy(given, profile, absolute)
    pods = (pod_of(document, given, profile) for document in given["pods"])
    sums = allocatable.class_sums(pods, gates=policy.gates)
    percent = given["qosReserved"].get("memory") if gate(given, profile, "QOSReserved") else None
    found = allocatable.class_values(sums, policy, percent)
    return {
        "/kubepods": config_of(found.kubepods),
        "/kubepods/burstable": config_of(found.burstable),
        "/kubepods/besteffort": config_of(found.besteffort),
    }
