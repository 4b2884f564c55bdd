"""Translations for topics a–g and k: vector input → rules' objects → the vector's layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.errors import InvalidNameError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.config.gates import GATES
from plimsoll.rules.config.table import BY_NAME
from plimsoll.rules.model import cgroup_names as names
from plimsoll.rules.model.gates import Gates, resolved_gates
from plimsoll.rules.model.objects import Pod, ResourceList, Resources, is_critical, is_node_critical
from plimsoll.rules.node.node_config import UNSET_RESERVATION, swap_in_use
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile, minor
from plimsoll.rules.quantity import MAX_INT64, QUANTITIES, Quantity, parse
from plimsoll.rules.resources import cpu, effective, footprint, values
from plimsoll.rules.resources import oom_score as oom_rules
from plimsoll.rules.resources import qos as qos_rules
from plimsoll.rules.resources.cri import unified as unified_texts
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.files import cpu_weight
from plimsoll.rules.resources.memory import page_label
from plimsoll.rules.resources.node_policy import NodePolicy, Reservation
from plimsoll.rules.resources.values import Values
from tests.conformance.aging import aged, big_names

Json = dict[str, Any]
POD_LEVEL_SINCE, LIMITS_SET_SINCE, SWAP_BEHAVIOR_SINCE = 32, 34, 33  # minor releases in which functions appeared
ANY_PROFILE = DEFAULT_PROFILE  # for topics that are the same in all
HOST_PAGE_SIZES = (2 << 20, 1 << 30)  # of the machine that made the vectors


def comparable(value: Any) -> Any:
    """Errors come in no particular order, nor do thresholds of one signal and grace period."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        if "detail" in value[0]:
            # 1.32 appends a diff, in a format that its library does not keep stable.
            cut = [{**item, "detail": item["detail"].partition("\n")[0]} for item in value]
            return sorted(json.dumps(item, sort_keys=True) for item in cut)
        if "gracePeriodSeconds" in value[0]:
            return sorted(value, key=lambda row: (row["signal"], sorted(map(str, row.items()))))
    return value


def feature_gates(given: Json, profile: Profile) -> dict[str, bool]:
    return {each.name: each.default(profile) for each in GATES} | (given.get("featureGates") or {})


def gate(given: Json, profile: Profile, name: str) -> bool:
    return feature_gates(given, profile)[name]


def gates_of(given: Json, profile: Profile) -> Gates:
    return resolved_gates(feature_gates(given, profile), profile)


def pod_of(document: Json, given: Json, profile: Profile) -> Pod:
    pod = pod_from_json(json.dumps(document))
    if given.get("default") is not False:
        pod = defaulted(pod, gates=gates_of(given, profile))
    return aged(pod, big_names(document), given["aged"]) if "aged" in given else pod


def without_age(given: Json) -> Json:
    return {key: value for key, value in given.items() if key != "aged"}


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


def qos(given: Json, profile: Profile) -> Json:
    gates = gates_of(given, profile)
    try:
        raw = pod_from_json(json.dumps(given["pod"]))
    except InvalidObjectError as error:
        return {"decodeError": error.errors[0].detail}
    pod = defaulted(raw, gates=gates)
    spec = pod.spec
    errors = create_errors(pod, gates=gates)
    kept = qos_rules.qos_class if profile.client_class_kept else qos_rules.computed_qos_class
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
        "apiserverStatusQOSClass": kept(pod, gates=gates),
        "defaulted": without_none(shown),
        "valid": not errors,
        "createErrors": errors_of(errors),
    }


def aggregate(given: Json, profile: Profile) -> Json:
    pod, gates = pod_of(given["pod"], given, profile), gates_of(given, profile)
    release = minor(profile.release)
    # The helpers know no gates: pod level counts as soon as they have it.
    there = msgspec.structs.replace(gates, pod_level=release >= POD_LEVEL_SINCE, claims=False)
    skipped = msgspec.structs.replace(there, pod_level=False)
    rule = profile.resize_footprint
    lists = {
        "requests": effective.pod_requests(pod, gates=there),
        "limits": effective.pod_limits(pod, gates=there),
        "requestsExcludeOverhead": effective.pod_requests(pod, gates=there, overhead=False),
        "limitsExcludeOverhead": effective.pod_limits(pod, gates=there, overhead=False),
        "requestsUseStatus": footprint.counted_requests(pod, rule, gates=there),
        "limitsUseStatus": footprint.counted_limits(pod, rule, gates=there),
    }
    if release >= POD_LEVEL_SINCE:
        lists["requestsSkipPodLevel"] = effective.pod_requests(pod, gates=skipped)
        lists["limitsSkipPodLevel"] = effective.pod_limits(pod, gates=skipped)
    if given.get("useDRA"):
        claims = msgspec.structs.replace(there, claims=True)
        lists["requestsDRA"] = effective.pod_requests(pod, gates=claims)
        lists["limitsDRA"] = effective.pod_limits(pod, gates=claims)
        lists["requestsUseStatusDRA"] = footprint.counted_requests(pod, rule, gates=claims)
        lists["limitsUseStatusDRA"] = footprint.counted_limits(pod, rule, gates=claims)
    found: Json = {key: texts(value) for key, value in lists.items()}
    if release >= POD_LEVEL_SINCE:
        found["podLevelResourcesSet"] = effective.pod_level_set(pod.spec.resources, gates)
        found["podLevelRequestsSet"] = effective.pod_level_requests_set(pod.spec.resources, gates)
    if release >= LIMITS_SET_SINCE:
        found["podLevelLimitsSet"] = effective.pod_level_limits_set(pod.spec.resources, gates)
    return found


def oom(given: Json, profile: Profile) -> Json:
    pod, gates = pod_of(given["pod"], given, profile), gates_of(given, profile)
    qos_class = qos_rules.qos_class(pod, gates=gates)
    policy = NodePolicy(
        given["node"]["memoryCapacity"],
        gates=gates,
        pod_level_oom_share=profile.pod_level_oom_share,
        pod_level_oom_share_floored=profile.pod_level_oom_share_floored,
        sidecar_oom_rule=profile.sidecar_oom_rule,
    )
    scores = oom_rules.oom_scores(pod, qos_class, policy)
    containers = pod.spec.init_containers + pod.spec.containers
    return {
        "qosClass": qos_class,
        "critical": is_critical(pod),
        "nodeCritical": is_node_critical(pod),
        "containers": [
            {"name": container.name, "oomScoreAdj": score} for container, score in zip(containers, scores, strict=True)
        ],
    }


def policy_of(given: Json, profile: Profile) -> NodePolicy:
    kubelet, node = given["kubelet"], given.get("node") or {}
    memory = (node.get("allocatable") or {}).get("memory")
    unified = kubelet["cgroupVersion"] == 2
    swap = swap_in_use(kubelet.get("swapBehavior") or "", profile, gate=gate(given, profile, "NodeSwap"))
    return NodePolicy(
        memory_capacity_bytes=node.get("memoryCapacity", 0),
        allocatable_memory_bytes=None if memory is None else QUANTITIES[memory].value,
        swap_capacity_bytes=node.get("swapCapacity", 0),
        cgroup_version=kubelet["cgroupVersion"],
        cfs_quota=kubelet["cpuCFSQuota"],
        period_us=kubelet["cpuCFSQuotaPeriodUs"],
        custom_period=gate(given, profile, "CustomCPUCFSQuotaPeriod"),
        memory_qos=unified and gate(given, profile, "MemoryQoS"),
        reservation=reservation(kubelet, profile),
        high_without_request=profile.memory_high_without_request,
        high_of_pod=profile.memory_high_of_pod,
        high_reset=profile.memory_high_reset and unified and not gate(given, profile, "MemoryQoS"),
        throttling_factor=kubelet.get(
            "memoryThrottlingFactor", BY_NAME["memoryThrottlingFactor"].default_in(profile.name)
        ),
        oom_group=profile.memory_oom_group and unified and kubelet.get("singleProcessOOMKill", False) is False,
        limited_swap=swap == "LimitedSwap",
        unlimited_swap=swap == "UnlimitedSwap",
        swap_with_memory=profile.swap_rule == "memory and swap",
        critical_pods_swap=profile.critical_pods_swap,
        swap_controller=kubelet.get("swapControllerAvailable", False),
        hugepage_sizes=HOST_PAGE_SIZES,
        gates=gates_of(given, profile),
        pod_level_oom_share=profile.pod_level_oom_share,
        pod_level_oom_share_floored=profile.pod_level_oom_share_floored,
        pod_level_hugepages_inherited=profile.pod_level_hugepages_inherited,
        sidecar_oom_rule=profile.sidecar_oom_rule,
    )


def reservation(given: Json, profile: Profile) -> Reservation:
    if given.get("memoryReservationPolicy") == "TieredReservation":
        return "tiered"
    return UNSET_RESERVATION[profile.memory_min_from_requests]


def unified_of(found: Values) -> dict[str, str] | None:
    return unified_texts(found) or None


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


def pod_cgroup(given: Json, profile: Profile) -> Json:
    policy, pod = policy_of(given, profile), pod_of(given["pod"], without_age(given), profile)
    gates = policy.gates
    # The real code computes the class after the sums.
    qos_class = qos_rules.qos_class(pod_of(given["pod"], given, profile), gates=gates)
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


def container(given: Json, profile: Profile) -> Json:
    policy, pod = policy_of(given, profile), pod_of(given["pod"], given, profile)
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
            "swapBehavior": swap_word(limited, profile),
            "linearCpuWeight": cpu.weight_linear(shares),
            "runcCpuWeight": cpu_weight(shares, profile.container_weight),
            "unified": unified_of(found),
        }
        rows.append(without_none(row))
    return {"qosClass": qos_class, "containers": rows}


def swap_word(limited: bool, profile: Profile) -> str | None:
    if minor(profile.release) < SWAP_BEHAVIOR_SINCE:
        return None
    return "LimitedSwap" if limited else "NoSwap"


def cgroup_names(given: Json, profile: Profile) -> Json:
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


def quantity(given: Json, profile: Profile) -> Json:
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


def convert(given: Json, profile: Profile) -> Json:
    period = given["periodUs"] if gate(given, profile, "CustomCPUCFSQuotaPeriod") else cpu.DEFAULT_PERIOD_US
    shares, quota = cpu.shares(given["milliCPU"]), cpu.quota_us(given["milliCPU"], period)
    weight = cpu.weight_linear(shares)
    return {
        "shares": shares,
        "quota": quota,
        "weight": weight,
        "runcWeight": cpu_weight(shares, profile.container_weight),
        "milliFromShares": cpu.milli_from_shares(shares),
        "sharesFromWeight": cpu.shares_from_weight(weight),
        "milliFromQuota": cpu.milli_from_quota(quota, period),
    }
