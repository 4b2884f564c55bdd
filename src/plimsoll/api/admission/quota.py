"""ResourceQuota: an object is charged in the transaction that stores it, so two never use the same remainder (01 §9).

Pods are charged for their requests and limits and as objects; everything else only as objects (`count/…`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.api.machinery.status import forbidden
from plimsoll.codec.lean.lean import from_document, lean_pod
from plimsoll.rules.admission.quota import (
    SERVICE_COUNTS,
    Charge,
    bounds_claims,
    charged,
    charged_object,
    claim_usage,
    increase,
    is_charged,
    object_names,
    one_of,
    service_usage,
)
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.store.records import Decision, Record

_PODS = stored_resource("pods")
_QUOTAS = stored_resource("resourcequotas")
_NOT_COUNTED = frozenset({"events", "leases"})  # frequent, and never limited


def quota_keys(
    cluster: Cluster, operation: str, subresource: str, namespace: str, new: JsonObject | None, old: JsonObject | None
) -> list[str]:
    """The quotas that apply to a write of this pod; mostly none."""
    quotas = cluster.policies("resourcequotas", namespace)
    if not quotas:
        return []
    if new is not None:
        before = None if old is None else lean_pod(old)
        if not is_charged(operation, subresource, lean_pod(new), before, cluster.profile):
            return []
    return [key(_QUOTAS, namespace, quota["metadata"]["name"]) for quota in quotas]


def charge(
    cluster: Cluster,
    records: Sequence[Record | None],
    versions: Sequence[int],
    new: JsonObject,
    old: JsonObject | None,
    *,
    dry_run: bool = False,
) -> list[Decision]:
    """The quotas' new bodies, None for those that stay as they are; raises 403."""
    documents, quotas = _read(records)
    before = None if old is None else lean_pod(old)
    result = charged(quotas, lean_pod(new), cluster.profile, before)
    if result.refusal:
        raise forbidden(_PODS, new["metadata"]["name"], result.refusal)
    return _decisions(documents, versions, result, dry_run=dry_run)


def counting_keys(cluster: Cluster, resource: ApiResource, namespace: str) -> list[str]:
    """The quotas that limit the number of objects of a kind other than pods; mostly none."""
    names = charged_names(resource)
    quotas = cluster.policies("resourcequotas", namespace) if names else []
    if resource.storage == "persistentvolumeclaims":
        return [
            key(_QUOTAS, namespace, quota["metadata"]["name"])
            for quota in quotas
            if any(map(bounds_claims, (quota.get("spec") or {}).get("hard") or ()))
        ]
    return [
        key(_QUOTAS, namespace, quota["metadata"]["name"])
        for quota in quotas
        if not names.isdisjoint((quota.get("spec") or {}).get("hard") or ())
    ]


def charge_object(
    resource: ApiResource,
    records: Sequence[Record | None],
    versions: Sequence[int],
    new: JsonObject,
    old: JsonObject | None = None,
    *,
    dry_run: bool = False,
) -> list[Decision]:
    """As `charge`, for an object that is not a pod: a new one, or for a Service what the update adds."""
    documents, quotas = _read(records)
    is_claim = resource.storage == "persistentvolumeclaims"
    result = charged_object(quotas, _object_charges(resource, new, old), new if is_claim else None)
    if result.refusal:
        raise forbidden(resource, new["metadata"]["name"], result.refusal)
    return _decisions(documents, versions, result, dry_run=dry_run)


def _object_charges(resource: ApiResource, new: JsonObject, old: JsonObject | None) -> ResourceList:
    if resource.storage == "persistentvolumeclaims":
        return claim_usage(new) if old is None else increase(claim_usage(new), claim_usage(old))
    services = service_usage(new) if resource.storage == "services" else {}
    if old is not None:
        return increase(services, service_usage(old))
    return {**one_of(counted_names(resource)), **services}


def charged_names(resource: ApiResource) -> frozenset[str]:
    """All names of quotas that a write of this kind may be charged under."""
    names = counted_names(resource)
    return names | SERVICE_COUNTS if resource.storage == "services" else names


@lru_cache(512)  # custom resources come and go
def counted_names(resource: ApiResource) -> frozenset[str]:
    """The names of this kind's object count in quotas; empty for kinds that are not counted."""
    is_counted = resource.namespaced and resource.storage and resource.plural not in _NOT_COUNTED
    return frozenset(object_names(resource.group, resource.plural)) if is_counted else frozenset()


def _read(records: Sequence[Record | None]) -> tuple[list[JsonObject | None], list[ResourceQuota]]:
    documents = [decoded(record) if record is not None else None for record in records]
    return documents, [from_document(document, ResourceQuota) for document in documents if document is not None]


def _decisions(
    documents: Sequence[JsonObject | None], versions: Sequence[int], result: Charge, *, dry_run: bool
) -> list[Decision]:
    changed = {quota.metadata.name: quota for quota in result.quotas}
    decisions: list[Decision] = []
    for document, version in zip(documents, versions, strict=True):
        if document is None or dry_run:
            decisions.append(None)
            continue
        used = changed[document["metadata"]["name"]].status.used or {}
        shown = {name: str(amount) for name, amount in used.items()}
        status = document.get("status") or {}
        if shown == status.get("used", {}):
            decisions.append(None)
        else:
            decisions.append(body_of({**document, "status": {**status, "used": shown}}, version))
    return decisions
