"""ResourceQuota: what a pod is charged for, and when a quota refuses it (01 §9).

A pod's usage is its effective requests and limits under the quota's names (`requests.cpu`, `limits.memory`, `pods` …).
A quota applies if it limits any of these names and the pod matches all of its scopes. It refuses a pod that does not
specify cpu or memory where the quota limits them (K-4), and a charge that exceeds the rest of the quota (K-5). An
update is charged only for what it adds (K-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import OBJECT_COUNTS
from plimsoll.rules.model.objects import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PODS,
    Pod,
    ResourceList,
    SelectorTerm,
)
from plimsoll.rules.model.policies import ResourceQuota, ResourceQuotaStatus, ScopeRequirement
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import QUANTITIES, ZERO, from_units
from plimsoll.rules.resources.effective import added, pod_level_set
from plimsoll.rules.resources.footprint import counted_limits, counted_requests
from plimsoll.rules.resources.qos import BEST_EFFORT, qos_class
from plimsoll.rules.scheduling.selectors import matches_label

COUNT_PODS = "count/pods"
_ONE = from_units(1)
_SPEC_AT_POD_LEVEL = Gates(pod_level_status_counted=False)  # E-11: quotas charge pod-level values from the spec
_EMPTY: ResourceList = {}
_MUST_BE_NAMED = frozenset({CPU, MEMORY, f"requests.{CPU}", f"requests.{MEMORY}", f"limits.{CPU}", f"limits.{MEMORY}"})
_POD_NAMES = _MUST_BE_NAMED | {
    COUNT_PODS,
    PODS,
    EPHEMERAL_STORAGE,
    f"requests.{EPHEMERAL_STORAGE}",
    f"limits.{EPHEMERAL_STORAGE}",
}


class Charge(msgspec.Struct, frozen=True):
    """The quotas after the charge, or the refusal (the text after `pods "x" is forbidden: `)."""

    quotas: tuple[ResourceQuota, ...]
    refusal: str = ""


# --- usage ---


def usage(pod: Pod, profile: Profile, *, grace_elapsed: bool = False) -> ResourceList:
    """What the pod is charged for (K-1); a terminated pod, or one past the grace period of its deletion, only as an
    object (K-2)."""
    if grace_elapsed or pod.status.phase in ("Succeeded", "Failed"):
        return {COUNT_PODS: _ONE}
    rule = profile.resize_footprint
    gates = DEFAULT_GATES if rule == "pod" else _SPEC_AT_POD_LEVEL
    requests, limits = counted_requests(pod, rule, gates=gates), counted_limits(pod, rule, gates=gates)
    return {COUNT_PODS: _ONE, **_named(requests, limits)}


def _named(requests: ResourceList, limits: ResourceList) -> ResourceList:
    """Requests and limits under the names of quotas (K-1)."""
    charges: ResourceList = {PODS: _ONE}
    for name, quantity in requests.items():
        if name in (CPU, MEMORY, EPHEMERAL_STORAGE) or name.startswith(HUGEPAGES_PREFIX):
            charges[name] = charges[f"requests.{name}"] = quantity
        elif _is_extended(name):
            charges[f"requests.{name}"] = quantity
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE):
        if name in limits:
            charges[f"limits.{name}"] = limits[name]
    return charges


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def increase(new: ResourceList, old: ResourceList) -> ResourceList:
    """What an update adds, by name; nothing for what shrinks (K-3)."""
    charges: ResourceList = {}
    for name, quantity in new.items():
        difference = quantity - old[name] if name in old else quantity
        if difference.nanos > 0:
            charges[name] = difference
    return charges


def bounds_pods(name: str) -> bool:
    """Whether pods are charged under this quota name."""
    if name in _POD_NAMES or name.startswith((HUGEPAGES_PREFIX, f"requests.{HUGEPAGES_PREFIX}")):
        return True
    return name.startswith("requests.") and _is_extended(name.removeprefix("requests."))


def used_by(quota: ResourceQuota, pods: Iterable[Pod], profile: Profile, expired: Iterable[Pod] = ()) -> ResourceList:
    """`status.used` for the names of `spec.hard` that pods are charged under; `expired` are past their grace period."""
    total = {name: ZERO for name in quota.spec.hard or _EMPTY if bounds_pods(name)}
    for group, elapsed in ((pods, False), (expired, True)):
        for pod in group:
            if in_scopes(quota, pod):
                own = usage(pod, profile, grace_elapsed=elapsed)
                total = added(total, {name: own[name] for name in total.keys() & own.keys()})
    return total


# --- scopes ---


def in_scopes(quota: ResourceQuota, pod: Pod) -> bool:
    """Whether the pod matches all of the quota's scopes; a quota without scopes applies to every pod (K-6)."""
    return all(_in_scope(scope, pod) for scope in _scopes(quota))


def _scopes(quota: ResourceQuota) -> Iterator[ScopeRequirement]:
    for name in quota.spec.scopes:
        yield ScopeRequirement(name, "Exists")
    if quota.spec.scope_selector is not None:
        yield from quota.spec.scope_selector.match_expressions


def _in_scope(scope: ScopeRequirement, pod: Pod) -> bool:
    match scope.scope_name:
        case "BestEffort":
            return qos_class(pod) == BEST_EFFORT
        case "NotBestEffort":
            return qos_class(pod) != BEST_EFFORT
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "PriorityClass":
            name = pod.spec.priority_class_name
            return matches_label(SelectorTerm("class", scope.operator, scope.values), {"class": name} if name else {})
        case "CrossNamespacePodAffinity":
            return refers_to_namespaces(pod)
    return False


def refers_to_namespaces(pod: Pod) -> bool:
    """Whether a pod affinity or anti-affinity names namespaces or selects them."""
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    return any(
        bool(term.namespaces) or term.namespace_selector is not None
        for each in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if each is not None
        for term in (*each.required, *(weighted.pod_affinity_term for weighted in each.preferred))
    )


def is_terminating(pod: Pod) -> bool:
    """A pod that terminates by itself: the scope means `activeDeadlineSeconds`, not a deletion."""
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def scope_may_bound(scope: str, name: str) -> bool:
    """Whether a quota with this scope may limit this standard name. BestEffort only counts pods (K-6)."""
    if scope == "BestEffort":
        return name == PODS
    return name == PODS or name in _MUST_BE_NAMED


# --- admission ---


def is_charged(operation: str, subresource: str, pod: Pod, old: Pod | None, profile: Profile) -> bool:
    """Whether quotas apply to this request on a pod (K-3)."""
    if operation == "CREATE":
        return not subresource
    if operation != "UPDATE":
        return False
    if subresource == "resize":
        return True
    if subresource or old is None:
        return False
    return profile.resize_by_plain_patch or is_terminating(pod) != is_terminating(old)


def charged(quotas: Sequence[ResourceQuota], pod: Pod, profile: Profile, old: Pod | None = None) -> Charge:
    """Charge a new pod, or the increase over `old`, to every quota that applies; one refusal refuses the request."""
    before = tuple(quotas)
    applying: list[int] = []
    for index, quota in enumerate(before):
        names = sorted(filter(bounds_pods, quota.status.hard or _EMPTY))
        if not names or not in_scopes(quota, pod):
            continue
        missing = unspecified(pod, names)
        if missing:
            return Charge(before, f"failed quota: {quota.metadata.name}: {missing}")
        if not (quota.status.used or _EMPTY).keys() >= set(names):
            return Charge(before, f"status unknown for quota: {quota.metadata.name}, resources: {','.join(names)}")
        applying.append(index)
    if not applying:
        return Charge(before)
    whole = usage(pod, profile)
    added_to_old = whole if old is None else increase(whole, usage(old, profile))
    after = list(before)
    for index in applying:
        quota = before[index]
        # A pod that enters a quota's scope by this update is charged in full.
        delta = added_to_old if old is not None and in_scopes(quota, old) else whole
        used, refusal = _used_after(quota, delta)
        if refusal:
            return Charge(before, refusal)
        after[index] = msgspec.structs.replace(quota, status=ResourceQuotaStatus(quota.status.hard, used))
    return Charge(tuple(after))


def one_of(names: Iterable[str]) -> ResourceList:
    return dict.fromkeys(names, _ONE)


def object_names(group: str, plural: str) -> tuple[str, ...]:
    """The names under which a quota may limit the number of objects: `count/deployments.apps`; some have a short
    name."""
    full = f"count/{plural}.{group}" if group else f"count/{plural}"
    return (plural, full) if not group and plural in OBJECT_COUNTS else (full,)


NODE_PORTS, LOAD_BALANCERS = "services.nodeports", "services.loadbalancers"
SERVICE_COUNTS = frozenset({NODE_PORTS, LOAD_BALANCERS})


def service_usage(service: JsonObject) -> ResourceList:
    """What a service is charged for beside being an object: node ports and load balancers."""
    spec = service.get("spec") or {}
    ports = spec.get("ports") or []
    match spec.get("type"):
        case "NodePort":
            return {NODE_PORTS: from_units(len(ports))}
        case "LoadBalancer":
            allocated = len(ports) if spec.get("allocateLoadBalancerNodePorts") is not False else 0
            named = sum(1 for port in ports if port.get("nodePort"))
            return {LOAD_BALANCERS: _ONE, NODE_PORTS: from_units(max(allocated, named))}
    return {}


def services_used(services: Iterable[JsonObject], hard: Iterable[str]) -> dict[str, str]:
    """`status.used` of node ports and load balancers, as far as the quota limits them."""
    total: ResourceList = dict.fromkeys(SERVICE_COUNTS & set(hard), ZERO)
    for service in services:
        own = service_usage(service)
        total = added(total, {name: own[name] for name in total.keys() & own.keys()})
    return {name: str(amount) for name, amount in total.items()}


CLAIMS, STORAGE = "persistentvolumeclaims", "requests.storage"
_OF_CLASS = ".storageclass.storage.k8s.io/"


def claim_usage(claim: JsonObject) -> ResourceList:
    """What a claim is charged for: itself and its storage, also under the name of its class."""
    spec = claim.get("spec") or {}
    requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    old = (claim["metadata"].get("annotations") or {}).get("volume.beta.kubernetes.io/storage-class")
    of_class = old or spec.get("storageClassName")
    charges: ResourceList = {CLAIMS: _ONE}
    if requested is not None:
        charges[STORAGE] = QUANTITIES[str(requested)]
    if of_class:
        charges |= {f"{of_class}{_OF_CLASS}{name}": amount for name, amount in tuple(charges.items())}
    return {**charges, f"count/{CLAIMS}": _ONE}


def bounds_claims(name: str) -> bool:
    return name in (CLAIMS, STORAGE, f"count/{CLAIMS}") or _OF_CLASS in name


def claims_used(quota: ResourceQuota, claims: Iterable[JsonObject]) -> dict[str, str]:
    """`status.used` of what claims are charged for, as far as the quota limits it."""
    total: ResourceList = {name: ZERO for name in quota.spec.hard or _EMPTY if bounds_claims(name)}
    for claim in claims if total else ():
        if in_claim_scopes(quota, claim):
            own = claim_usage(claim)
            total = added(total, {name: own[name] for name in total.keys() & own.keys()})
    return {name: str(amount) for name, amount in total.items()}


def in_claim_scopes(quota: ResourceQuota, claim: JsonObject) -> bool:
    """Of the scopes only VolumeAttributesClass concerns claims: the class that is asked for, being set or in use."""
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    of_claim = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    names = {str(name) for name in of_claim if name}
    for scope in _scopes(quota):
        if scope.scope_name != "VolumeAttributesClass":
            return False
        labels = [{"class": name} for name in names] or [{}]
        term = SelectorTerm("class", scope.operator, scope.values)
        if not any(matches_label(term, each) for each in labels):
            return False
    return True


def charged_object(quotas: Sequence[ResourceQuota], charges: ResourceList, claim: JsonObject | None = None) -> Charge:
    """Charge for an object that is not a pod. Quotas with scopes apply only to the claims in them."""
    before = tuple(quotas)
    after: list[ResourceQuota] = []
    for quota in before:
        bounded = sorted((quota.status.hard or _EMPTY).keys() & charges.keys())
        if not bounded or (any(_scopes(quota)) and (claim is None or not in_claim_scopes(quota, claim))):
            after.append(quota)
            continue
        if not (quota.status.used or _EMPTY).keys() >= set(bounded):
            return Charge(before, f"status unknown for quota: {quota.metadata.name}, resources: {','.join(bounded)}")
        used, refusal = _used_after(quota, {name: charges[name] for name in bounded})
        if refusal:
            return Charge(before, refusal)
        after.append(msgspec.structs.replace(quota, status=ResourceQuotaStatus(quota.status.hard, used)))
    return Charge(tuple(after))


def _used_after(quota: ResourceQuota, delta: ResourceList) -> tuple[ResourceList, str]:
    hard, used = quota.status.hard or _EMPTY, quota.status.used or _EMPTY
    requested = {name: quantity for name, quantity in delta.items() if quantity and name in hard}
    after = added(used, requested)
    exceeded = sorted(name for name in requested if after[name] > hard[name])
    if not exceeded:
        return after, ""
    return used, (
        f"exceeded quota: {quota.metadata.name}, requested: {_listed(requested, exceeded)}, "
        f"used: {_listed(used, exceeded)}, limited: {_listed(hard, exceeded)}"
    )


def _listed(resources: ResourceList, names: Iterable[str]) -> str:
    return ",".join(f"{name}={resources[name]}" for name in names)


def unspecified(pod: Pod, names: Iterable[str]) -> str:
    """`must specify …` for containers without cpu or memory where a quota limits it, or empty (K-4)."""
    if pod_level_set(pod.spec.resources):
        return ""
    required = sorted(_MUST_BE_NAMED.intersection(names))
    missing: dict[str, set[str]] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        named = _named(container.resources.requests or _EMPTY, container.resources.limits or _EMPTY)
        for name in required:
            if name not in named:
                missing.setdefault(name, set()).add(container.name)
    if not missing:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))
