"""What a request costs, estimated before it is answered."""

from __future__ import annotations

from plimsoll.api.admission.hooks import has_hooks
from plimsoll.api.handlers.dispatch import Handler, Route, is_plain_write
from plimsoll.api.machinery.bodies import AT_ONCE_BYTES, YAML_AT_ONCE_BYTES
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, key, prefix
from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.selectors import Selection
from plimsoll.api.server.authorized import COLLECTION_VERBS
from plimsoll.api.server.fairness import LONG_OBJECTS

SELECTOR_TERMS = 50


def objects_read(cluster: Cluster, info: RequestInfo) -> int:
    """How many objects the request reads, at most."""
    if info.verb not in COLLECTION_VERBS:
        return 1
    if not info.resource.storage:
        return LONG_OBJECTS + 1  # computed from others: the metrics of all pods
    count = cluster.store.count(prefix(info.resource, info.namespace))
    limit = info.option("limit")
    selects = info.option("labelSelector") or info.option("fieldSelector")
    if info.verb == "list" and not selects and limit.isdecimal() and len(limit) < 9 and int(limit):
        return min(count, int(limit))
    return count


def watch_cost(chosen: Selection) -> int:
    """What each change costs a watch: its selector is evaluated; 50 terms take as long as all else."""
    return 1 + sum(1 + len(term.values) for term in chosen.labels) // SELECTOR_TERMS


def is_long_write(cluster: Cluster, info: RequestInfo, body_bytes: int, content_type: str) -> bool:
    """Whether so much is in memory meanwhile, several times as objects, or takes so long, that only a few may run."""
    if body_bytes > AT_ONCE_BYTES or (body_bytes and "yaml" in content_type):
        return True
    return _is_live_large(cluster, info)


def leaves(cluster: Cluster, call: ApiCall, added: dict[Route, Handler]) -> bool:
    """Whether a long write is handled in the write process: not if it is short YAML, nor if it needs more of the
    server than its store (who has which role, addresses of services, definitions, webhooks and policies)."""
    info = call.info
    if not is_plain_write(info, added) or info.resource.storage in _NEED_MORE or info.resource.group == _RBAC:
        return False
    is_short = "yaml" in call.content_type and len(call.body) <= YAML_AT_ONCE_BYTES and b"*" not in call.body
    return not (is_short and not _is_live_large(cluster, info)) and not has_hooks(cluster, info.resource)


_NEED_MORE = ("services", "customresourcedefinitions", "certificatesigningrequests", "clustertrustbundles")
_RBAC = "rbac.authorization.k8s.io"


def _is_live_large(cluster: Cluster, info: RequestInfo) -> bool:
    live = cluster.store.get(key(info.resource, info.namespace, info.name)) if info.name else None
    return live is not None and len(live.body) > AT_ONCE_BYTES
