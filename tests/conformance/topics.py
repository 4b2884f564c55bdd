"""Translations for topics a–h and k: vector input → rules' objects → the vector's layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.errors import InvalidConfigError, InvalidNameError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.config.thresholds import eviction_reservation, parsed_thresholds
from plimsoll.rules.model import cgroup_names as names
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod, ResourceList, Resources, is_critical, is_node_critical
from plimsoll.rules.node import allocatable
from plimsoll.rules.quantity import MAX_INT64, QUANTITIES, Quantity, parse
from plimsoll.rules.resources import cpu, effective, values
from plimsoll.rules.resources import oom_score as oom_rules
from plimsoll.rules.resources import qos as qos_rules
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.memory import page_label
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.values import Values

Json = dict[str, Any]
HOST_PAGE_SIZES = (2 << 20, 1 << 30)  # of the machine that made the vectors


def comparable(value: Any) -> Any:
    """Errors come in no particular order, nor do thresholds of one signal and grace period."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        if "detail" in value[0]:
            return sorted(json.dumps(item, sort_keys=True) for item in value)
        if "gracePeriodSeconds" in value[0]:
            return sorted(value, key=lambda row: (row["signal"], sorted(map(str, row.items()))))
    return value


def counted_apart(topic: str, given: Json) -> bool:
    if topic != "g_quantity":
        return bool(given.get("huge"))
    quantities = []
    for text in filter(None, (given.get("a"), given.get("b"))):
        with suppress(InvalidQuantityError):
            quantities.append(parse(text))
    if len(quantities) == 2:
        quantities += [quantities[0] + quantities[1], quantities[0] - quantities[1]]
    largest = {"DecimalSI": 10**21, "BinarySI": 1 << 70}
    return any(q.nanos < 0 or q.value >= largest.get(q.format, q.value + 1) for q in quantities)


def gate(given: Json, name: str, default: bool) -> bool:
    return bool((given.get("featureGates") or {}).get(name, default))


def gates_of(given: Json) -> Gates:
    return Gates(pod_level=gate(given, "PodLevelResources", True))


def pod_of(document: Json, given: Json) -> Pod:
    pod = pod_from_json(json.dumps(document))
    return pod if given.get("default") is False else defaulted(pod, gates=gates_of(given))


def texts(resources: ResourceList) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in resources.items()}


def amounts(resources: dict[str, str] | None) -> ResourceList | None:
    return None if resources is None else {name: QUANTITIES[text] for name, text in resources.items()}


def without_none(document: Json) -> Json:
    return {key: value for key, value in document.items() if value is not None}


def resources_of(resources: Resources) -> Json:
    pairs = (("requests", resources.requests), ("limits", resources.limits))
    return {key: texts(value) for key, value in pairs if value is not None}


def errors_of(errors: list[Any]) -> list[Json]:
    return [{"type": error.type, "field": error.field, "detail": error.detail} for error in errors]


def qos(given: Json) -> Json:
    gates = gates_of(given)
    try:
        raw = pod_from_json(json.dumps(given["pod"]))
    except InvalidObjectError as error:
        return {"decodeError": error.errors[0].detail}
    pod = defaulted(raw, gates=gates)
    spec = pod.spec
    errors = create_errors(pod, gates=gates)
    shown = {
        "containers": [{"name": c.name, "resources": resources_of(c.resources)} for c in spec.containers],
        "initContainers": [{"name": c.name, "resources": resources_of(c.resources)} for c in spec.init_containers],
        "resources": None if spec.resources is None else resources_of(spec.resources),
        "overhead": None if spec.overhead is None else texts(spec.overhead),
    }
    return {
        "qosClass": qos_rules.computed_qos_class(pod, gates=gates),
        "getPodQOS": qos_rules.qos_class(pod, gates=gates),
        "qosClassWithoutDefaulting": qos_rules.computed_qos_class(raw, gates=gates),
        "apiserverStatusQOSClass": qos_rules.qos_class(pod, gates=gates),
        "defaulted": without_none(shown),
        "valid": not errors,
        "createErrors": errors_of(errors),
    }


def aggregate(given: Json) -> Json:
    pod = pod_of(given["pod"], given)
    lists = {
        "requests": effective.pod_requests(pod),
        "limits": effective.pod_limits(pod),
        "requestsExcludeOverhead": effective.pod_requests(pod, overhead=False),
        "limitsExcludeOverhead": effective.pod_limits(pod, overhead=False),
        "requestsSkipPodLevel": effective.pod_requests(pod, gates=Gates(pod_level=False)),
        "limitsSkipPodLevel": effective.pod_limits(pod, gates=Gates(pod_level=False)),
        "requestsUseStatus": effective.counted_requests(pod),
        "limitsUseStatus": effective.counted_limits(pod),
    }
    return {
        **{key: texts(value) for key, value in lists.items()},
        "podLevelResourcesSet": effective.pod_level_set(pod.spec.resources),
        "podLevelRequestsSet": effective.pod_level_requests_set(pod.spec.resources),
        "podLevelLimitsSet": effective.pod_level_limits_set(pod.spec.resources),
    }


def oom(given: Json) -> Json:
    pod, gates = pod_of(given["pod"], given), gates_of(given)
    qos_class = qos_rules.qos_class(pod, gates=gates)
    scores = oom_rules.oom_scores(pod, qos_class, NodePolicy(given["node"]["memoryCapacity"], gates=gates))
    containers = pod.spec.init_containers + pod.spec.containers
    return {
        "qosClass": qos_class,
        "critical": is_critical(pod),
        "nodeCritical": is_node_critical(pod),
        "containers": [
            {"name": container.name, "oomScoreAdj": score} for container, score in zip(containers, scores, strict=True)
        ],
    }


def policy_of(given: Json) -> NodePolicy:
    kubelet, node = given["kubelet"], given.get("node") or {}
    memory = (node.get("allocatable") or {}).get("memory")
    unified = kubelet["cgroupVersion"] == 2
    return NodePolicy(
        memory_capacity_bytes=node.get("memoryCapacity", 0),
        allocatable_memory_bytes=None if memory is None else QUANTITIES[memory].value,
        swap_capacity_bytes=node.get("swapCapacity", 0),
        cgroup_version=kubelet["cgroupVersion"],
        cfs_quota=kubelet["cpuCFSQuota"],
        period_us=kubelet["cpuCFSQuotaPeriodUs"],
        custom_period=gate(given, "CustomCPUCFSQuotaPeriod", True),
        memory_qos=unified and gate(given, "MemoryQoS", False),
        reservation="tiered" if kubelet["memoryReservationPolicy"] == "TieredReservation" else "none",
        throttling_factor=kubelet.get("memoryThrottlingFactor", 0.9),
        oom_group=unified and kubelet.get("singleProcessOOMKill") is False,
        limited_swap=kubelet.get("swapBehavior") == "LimitedSwap",
        swap_controller=kubelet.get("swapControllerAvailable", False),
        hugepage_sizes=HOST_PAGE_SIZES,
        gates=gates_of(given),
    )


def unified_of(found: Values) -> dict[str, str] | None:
    named = {
        "memory.min": found.memory_min_bytes,
        "memory.low": found.memory_low_bytes,
        "memory.high": found.memory_high_bytes,
        "memory.oom.group": found.oom_group,
        "memory.swap.max": found.swap_bytes,
    }
    return {key: str(value) for key, value in named.items() if value is not None} or None


def config_of(found: Values) -> Json:
    shares = found.cpu_shares
    return without_none(
        {
            "cpuShares": shares,
            "cpuWeight": None if shares is None else cpu.weight_linear(shares),
            "cpuQuota": found.cpu_quota_us,
            "cpuPeriod": found.cpu_period_us,
            "memory": found.memory_bytes,
            "pidsLimit": found.pids,
            "hugePageLimit": {str(size): limit for size, limit in found.hugetlb.items()} if found.hugetlb else None,
            "unified": unified_of(found),
        }
    )


def pod_cgroup(given: Json) -> Json:
    policy, pod = policy_of(given), pod_of(given["pod"], given)
    gates = policy.gates
    qos_class = qos_rules.qos_class(pod, gates=gates)
    found = values.pod_values(
        pod,
        qos_class,
        effective.pod_requests(pod, gates=gates),
        effective.pod_limits(pod, gates=gates),
        policy,
    )
    config = config_of(found)
    unused = ("hugePageLimit", "cpuWeight") if policy.cgroup_version == 1 else ("hugePageLimit", "cpuShares")
    written = {key: value for key, value in config.items() if value and key not in unused}
    return {"qosClass": qos_class, "resourceConfig": config, "libcontainer": written}


def container(given: Json) -> Json:
    policy, pod = policy_of(given), pod_of(given["pod"], given)
    qos_class = qos_rules.qos_class(pod, gates=policy.gates)
    scores = oom_rules.oom_scores(pod, qos_class, policy)
    rows = []
    for item, score in zip(pod.spec.init_containers + pod.spec.containers, scores, strict=True):
        found = values.container_values(pod, item, qos_class, policy)
        shares = found.cpu_shares or 0
        limited = values.uses_limited_swap(pod, item, qos_class, policy)
        row = {
            "name": item.name,
            "cpuShares": shares,
            "cpuQuota": found.cpu_quota_us or 0,
            "cpuPeriod": found.cpu_period_us or 0,
            "memoryLimitInBytes": found.memory_bytes or 0,
            "memorySwapLimitInBytes": found.memory_and_swap_bytes or 0,
            "oomScoreAdj": score,
            "hugepageLimits": {page_label(size): limit for size, limit in (found.hugetlb or {}).items()},
            "swapBehavior": "LimitedSwap" if limited else "NoSwap",
            "linearCpuWeight": cpu.weight_linear(shares),
            "runcCpuWeight": cpu.weight_quadratic(shares),
            "unified": unified_of(found),
        }
        rows.append(without_none(row))
    return {"qosClass": qos_class, "containers": rows}


def cgroup_names(given: Json) -> Json:
    def root() -> names.CgroupName:
        return names.root_name(given["cgroupRoot"], cgroups_per_qos=given["cgroupsPerQOS"])

    def name() -> names.CgroupName:
        return names.pod_name(root(), given["qosClass"], given["uid"])

    found = {
        "cgroupName": _or_panic(lambda: list(name())),
        "cgroupfs": _or_panic(lambda: names.cgroupfs_path(name())),
        "systemd": _or_panic(lambda: names.systemd_path(name())),
        "nodeAllocatableRootCgroupfs": _or_panic(lambda: names.cgroupfs_path(root())),
        "nodeAllocatableRootSystemd": _or_panic(lambda: names.systemd_path(root())),
    }
    if "parse" in given:
        found["parsedSystemd"] = list(names.parse_systemd(given["parse"]))
        found["parsedCgroupfs"] = list(names.parse_cgroupfs(given["parse"]))
        found["isSystemdStyle"] = names.is_systemd_style(given["parse"])
    return found


def _or_panic(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except InvalidNameError as error:
        return {"panic": str(error)}


def quantity(given: Json) -> Json:
    found: Json = {}
    read: dict[str, Quantity] = {}
    for key in ("a", "b"):
        if key in given:
            try:
                read[key] = parse(given[key])
                found[key] = _quantity_facts(read[key])
            except InvalidQuantityError as error:
                found[key] = {"ok": False, "error": error.reason}
    if len(read) == 2:
        total, rest = read["a"] + read["b"], read["a"] - read["b"]
        found["add"], found["sub"] = str(total), str(rest)
        found["cmp"] = (read["a"] > read["b"]) - (read["a"] < read["b"])
        found["addValue"], found["addMilliValue"] = _int64(total.value), _int64(total.milli)
    return found


def _quantity_facts(item: Quantity) -> Json:
    rounded = item.rounded_to_milli()
    return {
        "ok": True,
        "value": _int64(item.value),
        "milliValue": _int64(item.milli),
        "string": str(item),
        "sign": (item.nanos > 0) - (item.nanos < 0),
        "format": item.format,
        "roundUpMilli": str(rounded),
        "roundUpMilliExact": rounded is item,
        "fitsInt64": abs(item.value) <= MAX_INT64,
        "milliFitsInt64": abs(item.milli) <= MAX_INT64,
    }


def _int64(number: int) -> str | Overflowed:
    return str(number) if abs(number) <= MAX_INT64 else Overflowed()


class Overflowed:
    """Past int64 the real code answers 0 or a wrapped figure, which says nothing: equal to any text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    __hash__ = None  # type: ignore[assignment]


def node(given: Json) -> Json:
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
    enforced = given["enforceNodeAllocatable"]
    return {
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
            )
        ),
        "reservedCgroups": _reserved_cgroups(given, reserved),
        "qosCgroups": _class_cgroups(given, absolute),
    }


def _reserved_cgroups(given: Json, reserved: allocatable.Reserved) -> Json:
    found = {}
    for name, resources in (("system", reserved.system), ("kube", reserved.kube)):
        for suffix in ("", "-compressible"):
            if f"{name}-reserved{suffix}" in given["enforceNodeAllocatable"]:
                found[f"/{name}"] = config_of(
                    allocatable.reserved_values(
                        resources or {}, compressible=bool(suffix), memory_qos=gate(given, "MemoryQoS", False)
                    )
                )
    return found


def _class_cgroups(given: Json, absolute: ResourceList) -> Json:
    gates = gates_of(given)
    policy = NodePolicy(
        memory_capacity_bytes=0,
        allocatable_memory_bytes=absolute["memory"].value if "memory" in absolute else None,
        memory_qos=gate(given, "MemoryQoS", False) and given["cgroupVersion"] == 2,
        reservation="tiered" if given["memoryReservationPolicy"] == "TieredReservation" else "none",
        hugepage_sizes=HOST_PAGE_SIZES,
        gates=gates,
    )
    sums = allocatable.class_sums((pod_of(document, given) for document in given["pods"]), gates=gates)
    percent = given["qosReserved"].get("memory") if gate(given, "QOSReserved", False) else None
    found = allocatable.class_values(sums, policy, percent)
    return {
        "/kubepods": config_of(found.kubepods),
        "/kubepods/burstable": config_of(found.burstable),
        "/kubepods/besteffort": config_of(found.besteffort),
    }


def convert(given: Json) -> Json:
    period = given["periodUs"] if gate(given, "CustomCPUCFSQuotaPeriod", True) else cpu.DEFAULT_PERIOD_US
    shares, quota = cpu.shares(given["milliCPU"]), cpu.quota_us(given["milliCPU"], period)
    weight = cpu.weight_linear(shares)
    return {
        "shares": shares,
        "quota": quota,
        "weight": weight,
        "runcWeight": cpu.weight_quadratic(shares),
        "milliFromShares": cpu.milli_from_shares(shares),
        "sharesFromWeight": cpu.shares_from_weight(weight),
        "milliFromQuota": cpu.milli_from_quota(quota, period),
    }
