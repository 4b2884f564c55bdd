"""The reason for each file at each level of the tree: which fields, which numbers, which formula.

One function per level returns file name → Reason. Steps are built from the effective lists that the values were
computed from; the arithmetic is in `rules.resources.cpu`, `rules.resources.memory`,
`rules.resources.effective` and `rules.node.allocatable`.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.rules.cgroups.reasons import (
    Reason,
    memory_high_formula,
    quota_formula,
    shares_formula,
    sum_formula,
    weight_formula,
)
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    Container,
    Pod,
    QoSClass,
    ResourceList,
    container_fields,
    is_node_critical,
    is_pod_level_resource,
    is_sidecar,
    listed,
)
from plimsoll.rules.node.allocatable import PID, ClassSums
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.quantity import NANO_PER_MILLI, NANO_PER_UNIT, ZERO, Quantity
from plimsoll.rules.resources.effective import (
    container_limits,
    container_requests,
    pod_level_requests_set,
    pod_level_set,
)
from plimsoll.rules.resources.files import hugetlb_files
from plimsoll.rules.resources.memory import PAGE_CACHE_PERCENT
from plimsoll.rules.resources.node_policy import OOM_GROUP, NodePolicy, asked_oom_group
from plimsoll.rules.resources.oom_score import (
    LOWEST_BURSTABLE,
    burstable_score,
    memory_request_bytes,
    pod_share_bytes,
    smallest_request_bytes,
)
from plimsoll.rules.resources.values import UNLIMITED, Values, page_size_bytes

Reasons = dict[str, Reason]

# The memory files of both versions that hold a limit.
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")
_RESET = Reason("", "memoryReservationPolicy: None", "explicitly reset")
_GATE_OFF = Reason("", "feature gate MemoryQoS is off", "explicitly reset")


def _reset(policy: NodePolicy) -> Reason | None:
    """Why memory.min and memory.low are written as 0; None if requests decide."""
    if not policy.memory_qos:
        return _GATE_OFF
    return _RESET if policy.reservation == "none" else None


def _cpu_weight(cpu_milli: int, lead: str, source: str, setting: NodeConfig, *, container: bool = False) -> Reasons:
    lead = f"{lead}; " if lead else ""
    weight = setting.policy.weight if container else "linear"
    return {
        "cpu.weight": Reason(lead + weight_formula(cpu_milli, weight), source),
        "cpu.shares": Reason(lead + shares_formula(cpu_milli), source),
    }


def _cpu_quota(cpu_milli: int, lead: str, source: str, setting: NodeConfig) -> Reasons:
    lead = f"{lead}; " if lead else ""
    reason = Reason(lead + quota_formula(cpu_milli, setting.policy, systemd=setting.driver == "systemd"), source)
    return {"cpu.max": reason, "cpu.cfs_quota_us": reason, "cpu.cfs_period_us": Reason("", "cpuCFSQuotaPeriod")}


def _amount(quantity: Quantity | None, name: str) -> str:
    """Exact milli-cores or bytes, with fractions, so that sums are correct."""
    if quantity is None:
        return "0"
    unit = NANO_PER_MILLI if name == CPU else NANO_PER_UNIT
    whole, rest = divmod(quantity.nanos, unit)
    return f"{whole}.{str(unit + rest)[1:].rstrip('0')}" if rest else str(whole)


def _stated(expression: str, exact: Quantity, name: str) -> str:
    """`expression = result`, rounded up where the result is not whole."""
    shown = str(exact.milli if name == CPU else exact.value)
    return f"{expression} = {shown}" if _amount(exact, name) == shown else f"⌈{expression}⌉ = {shown}"


# --- node ---


def node_reasons(setting: NodeConfig, values: Values, sums: ClassSums, *, enforced: bool) -> Reasons:
    note = "pods are not enforced: sized from capacity, so that default shares do not starve them"
    if enforced:
        note = "absolute allocatable: the eviction threshold is not subtracted"
    capacity = setting.absolute if enforced else setting.capacity
    reasons = _cpu_weight(capacity[CPU].milli, *_subtraction(setting, CPU, enforced), setting)
    reasons |= dict.fromkeys(_LIMIT_FILES, Reason(*_subtraction(setting, MEMORY, enforced), note))
    if values.pids is not None and setting.machine.pid_capacity is not None:
        reserved = [amount.get(PID) for amount in (setting.reserved.system, setting.reserved.kube) if amount]
        terms = [_amount(amount, PID) for amount in reserved if amount and enforced]
        rest = " − ".join([str(setting.machine.pid_capacity), *terms])
        reasons["pids.max"] = Reason(
            f"max(⌈{rest}⌉, 1) = {max(values.pids, 1)}" if terms else "",
            "pid_max and threads-max" + ("" if not terms else ", less reserved pid"),
        )
    policy = setting.policy
    if values.memory_min_bytes is not None:
        total = f"{sums.guaranteed_memory_bytes} + {sums.burstable_memory_bytes} = {values.memory_min_bytes}"
        reason = Reason(total, "Σ requests.memory of Guaranteed + Burstable pods")
        reasons["memory.min"] = _reset(policy) or reason
        reasons["memory.low"] = _reset(policy) or Reason("", "Σ requests.memory of Burstable pods")
    for name in hugetlb_files(values, policy.cgroup_version) or {}:
        reasons[name] = Reason("2^62 = 4611686018427387904", "", "unbounded above pods")
    return reasons


def _subtraction(setting: NodeConfig, name: str, enforced: bool) -> tuple[str, str]:
    """capacity − systemReserved − kubeReserved, without the terms that are not set."""
    if not enforced:
        return "", f"capacity.{name}"
    terms, sources = [_amount(setting.capacity[name], name)], [f"capacity.{name}"]
    for field, resources in (("systemReserved", setting.reserved.system), ("kubeReserved", setting.reserved.kube)):
        if resources and name in resources:
            terms.append(_amount(resources[name], name))
            sources.append(f"{field}.{name}")
    if len(terms) == 1:
        return "", sources[0]
    return _stated(" − ".join(terms), setting.absolute[name], name), " − ".join(sources)


def reserved_reasons(field: str, resources: ResourceList) -> Reasons:
    cpu_milli = resources.get(CPU, ZERO).milli
    return {
        "cpu.shares": Reason(shares_formula(cpu_milli), f"{field}.cpu"),
        "cpu.weight": Reason(weight_formula(cpu_milli, "linear"), f"{field}.cpu"),
        "memory.min": Reason("", f"{field}.memory"),
        "pids.max": Reason("", f"{field}.pid"),
        **dict.fromkeys(_LIMIT_FILES, Reason("", f"{field}.memory")),
    }


# --- class ---

_LOW_NOTE = "kubepods has no memory.low of its own: effective only if cgroup2 is mounted with memory_recursiveprot"


def class_reasons(
    qos: QoSClass,
    setting: NodeConfig,
    sums: ClassSums,
    members: Sequence[tuple[ResourceList, ResourceList]],
    percent: int | None,
    shielded: Sequence[ResourceList],
) -> Reasons:
    """`members`: requests that count for cpu, and for memory, which ignores the gate (02 §6.2).

    `shielded`: the memory requests of pods that do not decline Memory QoS.
    """
    policy = setting.policy
    if qos == "BestEffort":
        least = Reason("", "", "always the least: 2 shares")
        reasons = {"cpu.weight": least, "cpu.shares": least}
    else:
        milli = [requests[CPU].milli for requests, _ in members if CPU in requests]
        lead = sum_formula(milli, sums.burstable_cpu_milli) if len(milli) > 1 else ""
        reasons = _cpu_weight(sums.burstable_cpu_milli, lead, "Σ requests.cpu of Burstable pods", setting)
        if reset := _reset(policy):
            reasons["memory.low"] = reset
        else:
            total = [requests[MEMORY].value for requests in shielded if MEMORY in requests]
            note = _LOW_NOTE if policy.reservation == "tiered" and not policy.low_of_kubepods else ""
            reason = Reason(sum_formula(total, sum(total)), "Σ requests.memory of Burstable pods", note)
            reasons["memory.min"] = reasons["memory.low"] = reason
    if percent is not None and policy.allocatable_memory_bytes:
        kept = f"{policy.allocatable_memory_bytes} − ⌊{sums.guaranteed_memory_bytes} · {percent} / 100⌋"
        burstable = policy.allocatable_memory_bytes - sums.guaranteed_memory_bytes * percent // 100
        formula = f"{kept} = {burstable}"
        if qos == "BestEffort":
            rest = burstable - sums.burstable_memory_bytes * percent // 100
            formula += f"; {burstable} − ⌊{sums.burstable_memory_bytes} · {percent} / 100⌋ = {rest}"
        reasons |= dict.fromkeys(_LIMIT_FILES, Reason(formula, f"qosReserved.memory: {percent}%"))
    return reasons


# --- pod ---


def pod_reasons(
    pod: Pod,
    base: str,
    requests: ResourceList,
    limits: ResourceList,
    qos: QoSClass,
    values: Values,
    setting: NodeConfig,
) -> Reasons:
    policy = setting.policy

    def steps(name: str, kind: str) -> tuple[str, str]:
        effective = requests if kind == "requests" else limits
        return _effective_steps(pod, base, name, kind, effective, policy.gates)

    if qos == "BestEffort":
        least = Reason("", "", "BestEffort: always the least, 2 shares")
        reasons: Reasons = {"cpu.weight": least, "cpu.shares": least}
    else:
        reasons = _cpu_weight(requests.get(CPU, ZERO).milli, *steps(CPU, "requests"), setting)
    lead, source = steps(CPU, "limits")
    reasons |= _cpu_quota(limits.get(CPU, ZERO).milli, lead, source, setting)
    if values.cpu_quota_us == UNLIMITED:
        reasons["cpu.max"] = reasons["cpu.cfs_quota_us"] = _without_quota(source, setting)
    reasons |= dict.fromkeys(_LIMIT_FILES, Reason(*steps(MEMORY, "limits")))
    lead, source = steps(MEMORY, "requests")
    reasons |= dict.fromkeys(("memory.min", "memory.low"), Reason(lead, source))
    reasons |= _page_cache_reason(requests.get(MEMORY, ZERO).value, source, values, setting)
    if values.memory_high_bytes is not None:
        request, limit = requests.get(MEMORY, ZERO).value, limits.get(MEMORY, ZERO).value
        formula = memory_high_formula(request, limit, values.memory_high_bytes, policy)
        reasons["memory.high"] = Reason(formula, "pod-level memory, memoryThrottlingFactor")
    reasons["pids.max"] = Reason("", "podPidsLimit")
    for name in hugetlb_files(values, policy.cgroup_version) or {}:
        reasons[name] = Reason("", "", "a page size of the host that the pod does not request")
    for resource in requests:
        if resource.startswith(HUGEPAGES_PREFIX):
            reasons[_hugetlb_name(resource, setting)] = Reason(*steps(resource, "requests"))
    return reasons


def _without_quota(source: str, setting: NodeConfig) -> Reason:
    if not setting.policy.cfs_quota:
        return Reason("", "cpuCFSQuota: false", "limits are not enforced")
    return Reason("", source, "owns its CPUs: no quota")


def _hugetlb_name(resource: str, setting: NodeConfig) -> str:
    values = Values(hugetlb={page_size_bytes(resource): 0})
    return next(iter(hugetlb_files(values, setting.policy.cgroup_version) or {}))


def _effective_steps(
    pod: Pod, base: str, name: str, kind: str, effective: ResourceList, gates: Gates
) -> tuple[str, str]:
    """The steps to one effective amount (01 §6): sum, largest init moment, pod level, overhead."""
    spec = pod.spec
    if name not in effective:
        return "", f"{base}.containers[*].resources.{kind}.{name}"
    resources = spec.resources
    overhead = (spec.overhead or {}).get(name)
    result = effective[name]
    own = listed(resources, kind)
    is_set = pod_level_requests_set(resources, gates) if kind == "requests" else pod_level_set(resources, gates)
    if gates.pod_level and is_set and name in own and is_pod_level_resource(name, gates.pod_level_hugepages):
        lead, source = _amount(own[name], name), f"{base}.resources.{kind}.{name}"
        plain = True
    else:
        lead, source, plain = _aggregate_expression(pod, base, name, kind)
        container_total = (container_requests(pod) if kind == "requests" else container_limits(pod)).get(name)
        if container_total is None:
            lead, plain = "0", True
    if overhead is not None and (kind == "requests" or result.nanos != 0) and overhead.nanos:
        source = f"{source} + {base}.overhead.{name}" if source else f"{base}.overhead.{name}"
        lead, plain = f"{lead} + {_amount(overhead, name)}", False
    if plain:
        return "", source
    return _stated(lead, result, name), source


def _aggregate_expression(pod: Pod, base: str, name: str, kind: str) -> tuple[str, str, bool]:
    def amount(container: Container) -> Quantity | None:
        return listed(container.resources, kind).get(name)

    spec = pod.spec
    running = [_amount(amount(container), name) for container in spec.containers if amount(container) is not None]
    fields = [
        f"{base}.containers[{index}].resources.{kind}.{name}"
        for index, container in enumerate(spec.containers)
        if amount(container) is not None
    ]
    moments, sidecars = [], []
    for index, container in enumerate(spec.init_containers):
        own = amount(container)
        if own is not None:
            fields.append(f"{base}.initContainers[{index}].resources.{kind}.{name}")
        if is_sidecar(container):
            if own is not None:
                sidecars.append(_amount(own, name))
                running.append(_amount(own, name))
        elif own is not None:
            moments.append(" + ".join([_amount(own, name), *sidecars]))
    source = fields[0] if len(fields) == 1 else f"Σ {kind}.{name} of {len(fields)} containers" if fields else ""
    total = " + ".join(running) or "0"
    if moments:
        return f"max({', '.join([total, *moments])})", source, False
    return total, source, len(running) <= 1


# --- container ---


def container_reasons(pod: Pod, base: str, index: int, values: Values, setting: NodeConfig) -> Reasons:
    """`index` counts init containers first."""
    spec, policy = pod.spec, setting.policy
    field, container = list(container_fields(spec, base))[index]
    own = f"{field}.resources"
    requests, limits = listed(container.resources, "requests"), listed(container.resources, "limits")
    inherited = listed(spec.resources, "limits") if policy.gates.pod_level else {}
    cpu_limit, cpu_source = _own_or_inherited(limits, inherited, CPU, own, base)
    _, memory_source = _own_or_inherited(limits, inherited, MEMORY, own, base)
    cpu_request, weight_source = requests.get(CPU), f"{own}.requests.cpu"
    if cpu_request is None:
        cpu_request, weight_source = cpu_limit, cpu_source
    reasons = _cpu_weight(cpu_request.milli, "", weight_source, setting, container=True)
    reasons |= _cpu_quota(cpu_limit.milli, "", cpu_source, setting)
    if values.cpu_quota_us == UNLIMITED:
        reasons["cpu.max"] = reasons["cpu.cfs_quota_us"] = _without_quota(f"{own}.requests.cpu", setting)
    request_bytes, own_limit = requests.get(MEMORY, ZERO).value, limits.get(MEMORY, ZERO).value
    reasons |= dict.fromkeys((*_LIMIT_FILES, "memory.memsw.limit_in_bytes"), Reason("", memory_source))
    no_request = "" if request_bytes else "no memory request: nothing to protect"
    protection = _reset(policy) or Reason("", f"{own}.requests.memory", no_request)
    reasons |= dict.fromkeys(("memory.min", "memory.low"), protection)
    reasons |= _page_cache_reason(request_bytes, f"{own}.requests.memory", values, setting)
    if values.memory_high_bytes == UNLIMITED:
        reasons["memory.high"] = _GATE_OFF
    elif values.memory_high_bytes is not None:
        note = "" if request_bytes or own_limit else setting.profile.notes.get("memory_high_without_request", "")
        if not own_limit and not note:
            note = "allocatable without the eviction threshold: not the amount that the Node object shows"
        base_source = f"{own}.limits.memory" if own_limit else "node allocatable in place of a limit"
        reasons["memory.high"] = Reason(
            memory_high_formula(request_bytes, own_limit, values.memory_high_bytes, policy),
            f"{own}.requests.memory, {base_source}, memoryThrottlingFactor",
            note,
        )
    asked = asked_oom_group(pod.metadata.annotations)
    group_source = "singleProcessOOMKill: false" if asked is None else f"metadata.annotations[{OOM_GROUP}]"
    reasons["memory.oom.group"] = Reason("", group_source)
    reasons["memory.swap.max"] = _swap_reason(request_bytes, values, setting)
    for name in hugetlb_files(values, policy.cgroup_version) or {}:
        reasons[name] = Reason("", f"{own}.limits", "every page size of the host is written")
    return reasons


def _own_or_inherited(
    limits: ResourceList, inherited: ResourceList, name: str, own: str, base: str
) -> tuple[Quantity, str]:
    if limits.get(name):
        return limits[name], f"{own}.limits.{name}"
    if inherited.get(name):
        return inherited[name], f"{base}.resources.limits.{name} (pod level)"
    return ZERO, f"{own}.limits.{name}"


def _page_cache_reason(request_bytes: int, source: str, values: Values, setting: NodeConfig) -> Reasons:
    """For pageCacheSafeMin: memory.min was reduced so that page cache has room below the limit."""
    minimum, limit = values.memory_min_bytes, values.memory_bytes
    if not setting.policy.page_cache_safe or not minimum or not limit or minimum >= request_bytes:
        return {}
    percent = 100 - PAGE_CACHE_PERCENT
    formula = f"min({request_bytes}, ⌊{limit} · {percent} / 100⌋ to a page) = {minimum}"
    return {"memory.min": Reason(formula, f"{source}, pageCacheSafeMin", "room is left for page cache below the limit")}


def _swap_reason(request_bytes: int, values: Values, setting: NodeConfig) -> Reason:
    policy = setting.policy
    if policy.unlimited_swap:
        return Reason("", "memorySwap.swapBehavior", "unlimited up to 1.29, unless LimitedSwap is set")
    if policy.swap_with_memory:
        return Reason("", "memorySwap.swapBehavior: LimitedSwap", "1.27: memory and swap together")
    if values.swap_bytes:
        terms = f"{request_bytes} / {policy.memory_capacity_bytes} · {policy.swap_capacity_bytes}"
        return Reason(f"⌊{terms}⌋ = {values.swap_bytes}", "memorySwap.swapBehavior: LimitedSwap")
    if policy.limited_swap and not policy.swap_capacity_bytes:
        return Reason("", "memorySwap.swapBehavior: LimitedSwap", "this node has no known swap (--capacity swap=…)")
    return Reason("", "memorySwap.swapBehavior", "no swap for this container")


def score_steps(pod: Pod, container: Container, qos: QoSClass, score: int, setting: NodeConfig) -> str:
    """The steps to a container's oom_score_adj (O-3)."""
    policy = setting.policy
    if is_node_critical(pod):
        return "system-node-critical: −997"
    if qos != "Burstable":
        return f"{qos}: {'−997' if qos == 'Guaranteed' else '1000'}"
    extra = pod_share_bytes(pod, setting.policy) if policy.gates.pod_level and policy.pod_level_oom_share else 0
    request, capacity = memory_request_bytes(container), policy.memory_capacity_bytes
    text, plain = _score_step(request, extra, capacity), burstable_score(request + extra, capacity)
    if container in pod.spec.init_containers and is_sidecar(container) and policy.sidecar_oom_rule:
        least = smallest_request_bytes(pod)
        other = burstable_score(least + extra, capacity)
        if other < plain:
            text, plain = f"{text}; as safe as the app: {_score_step(least, extra, capacity)}", other
    if plain < LOWEST_BURSTABLE:
        text += f"; never as safe as Guaranteed: max({plain}, {LOWEST_BURSTABLE}) = {score}"
    elif plain != score:
        text += f"; below BestEffort: min({plain}, 999) = {score}"
    return text.replace("-", "−")


def _score_step(request: int, extra: int, capacity: int) -> str:
    amount = f"({request} + {extra})" if extra else str(request)
    return f"1000 − ⌊1000 · {amount} / {capacity}⌋ = {burstable_score(request + extra, capacity)}"
