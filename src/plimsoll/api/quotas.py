"""ResourceQuota: a pod is charged in the transaction that stores it, so that no two share the last room (01 §9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.api.cluster import Cluster, decoded, key
from plimsoll.api.kinds import stored_resource
from plimsoll.api.metadata import body_of
from plimsoll.api.status import forbidden
from plimsoll.api.strategies.pods import lean_pod
from plimsoll.codec.lean import from_document
from plimsoll.rules.policies import ResourceQuota
from plimsoll.rules.quota import charged, is_charged
from plimsoll.store.records import Decision, Record

Document = dict[str, Any]

_PODS = stored_resource("pods")
_QUOTAS = stored_resource("resourcequotas")


def quota_keys(
    cluster: Cluster, operation: str, subresource: str, namespace: str, new: Document | None, old: Document | None
) -> list[str]:
    """The quotas that a write of this pod must be measured by; mostly none."""
    found = cluster.policies("resourcequotas", namespace)
    if not found:
        return []
    if new is not None:
        before = None if old is None else lean_pod(old)
        if not is_charged(operation, subresource, lean_pod(new), before, cluster.profile):
            return []
    return [key(_QUOTAS, namespace, each["metadata"]["name"]) for each in found]


def charge(
    cluster: Cluster,
    records: Sequence[Record | None],
    versions: Sequence[int],
    new: Document,
    old: Document | None,
    *,
    dry_run: bool = False,
) -> list[Decision]:
    """The quotas' new bodies, None for those that stay as they are; raises 403."""
    documents = [decoded(record) if record is not None else None for record in records]
    quotas = [from_document(each, ResourceQuota) for each in documents if each is not None]
    before = None if old is None else lean_pod(old)
    result = charged(quotas, lean_pod(new), cluster.profile, before)
    if result.refusal:
        raise forbidden(_PODS, new["metadata"]["name"], result.refusal)
    changed = dict(zip((each.metadata.name for each in quotas), result.quotas, strict=True))
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
