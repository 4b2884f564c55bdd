"""The admission chain: what a cluster adds to an object, and what it refuses, in Kubernetes' order (05 B6, 01 §8).

    NamespaceLifecycle → LimitRanger → ServiceAccount → Priority → DefaultTolerationSeconds → RuntimeClass
    → NodeRestriction (`node_restriction`) → (validation) → LimitRanger → resize capacity → ResourceQuota (`quota`,
    inside the write)

Each step reads the policies it needs, calls a rule and writes the result into a copy of the document.
"""

from __future__ import annotations

from plimsoll.api.machinery.cluster import Cluster, decoded
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.status import StatusError, forbidden, not_found
from plimsoll.api.strategies.pods import version_of
from plimsoll.codec.defaults.resources import written
from plimsoll.codec.defaults.runtime_class import with_class
from plimsoll.codec.lean.lean import from_document, lean_pod
from plimsoll.rules.admission.limit_range import is_limited, limit_range_refusal, limit_ranged
from plimsoll.rules.admission.networking import CLASS_ANNOTATION, DEFAULT_INGRESS_CLASS
from plimsoll.rules.admission.node_restriction import is_mirror
from plimsoll.rules.admission.resize import capacity_verdict
from plimsoll.rules.admission.runtime_class import not_found as class_not_found
from plimsoll.rules.admission.runtime_class import runtime_class_refusal
from plimsoll.rules.admission.service_account import (
    VOLUME_PREFIX,
    account_name,
    mirror_refusal,
    secret_refusal,
    with_account,
)
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node
from plimsoll.rules.model.policies import LimitRange, RuntimeClass
from plimsoll.rules.resources.defaulting import BUILT_IN
from plimsoll.rules.storage.objects import OLD_CLASS, default_class
from plimsoll.store.records import Record

_PODS = stored_resource("pods")
_NAMESPACES = stored_resource("namespaces")
_DEFAULT_TOLERATION_S = 300
_DEFAULT_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PREEMPT = "PreemptLowerPriority"
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")


# --- NamespaceLifecycle ---


def check_namespace(record: Record | None, resource: ApiResource, namespace: str, name: str) -> None:
    """New objects need a namespace that exists and is not being deleted."""
    if record is None:
        raise not_found(_NAMESPACES, namespace)
    if b'"deletionTimestamp":' in record.body and decoded(record)["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(resource, name, why, [cause])


# --- pods ---


def admitted_pod(cluster: Cluster, document: JsonObject) -> JsonObject:
    """A new pod with what the cluster adds to it; raises 403."""
    document = _limit_ranged(cluster, document)
    spec = dict(document.get("spec") or {})
    _check_supported(spec, document["metadata"]["name"], cluster.gates.off)
    spec = _with_service_account(cluster, document, spec)
    _set_priority(cluster, spec, document["metadata"]["name"])
    _set_tolerations(spec)
    return _with_runtime_class(cluster, {**document, "spec": spec})


def admitted_claim(cluster: Cluster, claim: JsonObject) -> JsonObject:
    """A claim that names no class gets the default one (DefaultStorageClass)."""
    spec = claim.get("spec") or {}
    if spec.get("storageClassName") is not None or OLD_CLASS in (claim["metadata"].get("annotations") or {}):
        return claim
    name = default_class(cluster.policies("storageclasses"))
    return {**claim, "spec": {**spec, "storageClassName": name}} if name else claim


def admitted_ingress(cluster: Cluster, ingress: JsonObject) -> JsonObject:
    """An ingress that names no class gets the default one (DefaultIngressClass)."""
    spec = ingress.get("spec") or {}
    if spec.get("ingressClassName") is not None or CLASS_ANNOTATION in (ingress["metadata"].get("annotations") or {}):
        return ingress
    name = default_class(cluster.policies("ingressclasses"), DEFAULT_INGRESS_CLASS)
    return {**ingress, "spec": {**spec, "ingressClassName": name}} if name else ingress


def admitted_pod_update(old: JsonObject, new: JsonObject) -> JsonObject:
    """A PUT need not repeat what admission added at creation."""
    spec, before = dict(new.get("spec") or {}), old.get("spec") or {}
    for field in ("serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "priorityClassName"):
        if spec.get(field) is None and before.get(field) is not None:
            spec[field] = before[field]
    _set_tolerations(spec)
    return {**new, "spec": spec}


def limit_ranged_resize(cluster: Cluster, old: JsonObject, new: JsonObject) -> JsonObject:
    """Profile 1.36: a resize gets the namespace's defaults too (L-3)."""
    return _limit_ranged(cluster, new) if _is_resize_limited(cluster, old) else new


def check_limit_ranges(cluster: Cluster, document: JsonObject) -> None:
    ranges = _limit_ranges(cluster, document)
    if not ranges:
        return
    refusal = limit_range_refusal(lean_pod(document), ranges)
    if refusal:
        raise forbidden(_PODS, document["metadata"]["name"], refusal)


def check_limit_ranges_on_resize(cluster: Cluster, old: JsonObject, new: JsonObject) -> None:
    if _is_resize_limited(cluster, old):
        check_limit_ranges(cluster, new)


def _is_resize_limited(cluster: Cluster, old: JsonObject) -> bool:
    deleted = bool(old["metadata"].get("deletionTimestamp"))
    return is_limited("UPDATE", "resize", cluster.profile, old_is_deleted=deleted)


def check_capacity(cluster: Cluster, old: JsonObject, new: JsonObject) -> None:
    """PodResizeValidator: profile 1.36 refuses a resize that exceeds the node's allocatable."""
    if not cluster.profile.too_large_refused_by_api:
        return
    node_name = (new.get("spec") or {}).get("nodeName") or ""
    document = cluster.document("nodes", "", node_name) if node_name else None
    node = None if document is None else from_document(document, Node)
    refusal = capacity_verdict(version_of(old), version_of(new), node)
    if refusal is not None:
        causes = [{"reason": refusal.reason}] if refusal.reason else []
        raise forbidden(_PODS, new["metadata"]["name"], refusal.message, causes)


def _limit_ranges(cluster: Cluster, document: JsonObject) -> list[LimitRange]:
    ranges = cluster.policies("limitranges", document["metadata"]["namespace"])
    return [from_document(limit_range, LimitRange) for limit_range in ranges]


def _limit_ranged(cluster: Cluster, document: JsonObject) -> JsonObject:
    ranges = _limit_ranges(cluster, document)
    if not ranges:
        return document
    before = lean_pod(document)
    after = limit_ranged(before, ranges)
    if after is before:
        return document
    filled = written(document, after, before)
    metadata = {**document["metadata"], "annotations": after.metadata.annotations}
    return {**filled, "metadata": metadata}


def _check_supported(spec: JsonObject, name: str, off: frozenset[str]) -> None:
    """What no node of this cluster could do; while their gate is off, claims are dropped."""
    if spec.get("resourceClaims") and "DynamicResourceAllocation" not in off:
        raise forbidden(_PODS, name, "spec.resourceClaims: this API server has no ResourceClaims: remove it")


def _with_runtime_class(cluster: Cluster, document: JsonObject) -> JsonObject:
    spec, pod_name = document["spec"], document["metadata"]["name"]
    name = spec.get("runtimeClassName")
    if not name and not spec.get("overhead"):
        return document
    found = cluster.document("runtimeclasses", "", name) if name else None
    if name and found is None:
        raise forbidden(_PODS, pod_name, class_not_found(name))
    runtime_class = None if found is None else from_document(found, RuntimeClass)
    before = lean_pod(document)
    refusal = runtime_class_refusal(before, runtime_class)
    if refusal or runtime_class is None:
        raise forbidden(_PODS, pod_name, refusal or class_not_found(name))
    return with_class(document, before, runtime_class)


def _with_service_account(cluster: Cluster, document: JsonObject, spec: JsonObject) -> JsonObject:
    metadata = document["metadata"]
    if is_mirror(document):  # it has no access to the API, so it gets no service account
        if refusal := mirror_refusal(document):
            raise forbidden(_PODS, metadata["name"], refusal)
        return spec
    name, namespace = account_name(spec), metadata["namespace"]
    account = cluster.document("serviceaccounts", namespace, name)
    if account is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden(_PODS, metadata["name"], why)
    # A server without a CA has no `kube-root-ca.crt`, so the volume could not be mounted.
    volume_name = cluster.generated_name(VOLUME_PREFIX) if cluster.root_ca else ""
    changed = with_account(spec, account, volume_name)
    if refusal := secret_refusal(changed, account):
        raise forbidden(_PODS, metadata["name"], refusal)
    return changed


def _set_priority(cluster: Cluster, spec: JsonObject, pod_name: str) -> None:
    name = spec.get("priorityClassName") or ""
    priority_class = _default_class(cluster) if not name else cluster.document("priorityclasses", "", name)
    if priority_class is not None:
        spec["priorityClassName"] = priority_class["metadata"]["name"]
        priority, policy = priority_class.get("value") or 0, priority_class.get("preemptionPolicy") or _PREEMPT
    elif name in BUILT_IN:
        priority, policy = BUILT_IN[name], _PREEMPT
    elif name:
        raise forbidden(_PODS, pod_name, f"no PriorityClass with name {name} was found")
    else:
        priority, policy = 0, _PREEMPT
    for field, words, value in (
        ("priority", "integer value of priority", priority),
        ("preemptionPolicy", "string value of PreemptionPolicy", policy),
    ):
        sent = spec.get(field)
        if sent is not None and sent != value:
            raise _priority_refusal(pod_name, words, sent, value)
        spec[field] = value


def _priority_refusal(pod_name: str, words: str, sent: object, value: object) -> StatusError:
    why = (
        f"the {words} ({sent}) must not be provided in pod spec; priority admission controller computed {value} "
        "from the given PriorityClass name"
    )
    return forbidden(_PODS, pod_name, why)


def _default_class(cluster: Cluster) -> JsonObject | None:
    """The class with globalDefault; of several, the lowest (as Kubernetes chooses)."""
    classes = cluster.policies("priorityclasses")
    defaults = [priority_class for priority_class in classes if priority_class.get("globalDefault")]
    return min(defaults, key=lambda priority_class: priority_class.get("value") or 0, default=None)


def _set_tolerations(spec: JsonObject) -> None:
    """Pods stay 5 minutes on a node that fails, unless they set the tolerations themselves."""
    own = list(spec.get("tolerations") or [])
    covered = {toleration.get("key") for toleration in own if toleration.get("effect") in ("NoExecute", "", None)}
    added = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _DEFAULT_TOLERATION_S}
    missing = [{"key": taint, **added} for taint in _DEFAULT_TAINTS if covered.isdisjoint((taint, "", None))]
    if own or missing:
        spec["tolerations"] = own + missing
