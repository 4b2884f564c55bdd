"""…/scale of the kinds that have replicas: the number of replicas as an object of its own (autoscaling/v1 Scale)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.api.handlers.patch import growth_bytes, patcher
from plimsoll.api.handlers.update import write
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.metadata import check_place
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.status import internal_error, invalid, not_found
from plimsoll.api.tables.views import document_of
from plimsoll.codec.schema.schema import schema
from plimsoll.errors import FieldError
from plimsoll.rules.controllers.adoption import selector_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import selector_text

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(document: JsonObject, resource: ApiResource | None = None) -> JsonObject:
    metadata, spec = document["metadata"], document.get("spec") or {}
    selector = selector_text(selector_of(document))
    replicas, current = spec.get("replicas"), (document.get("status") or {}).get("replicas") or 0
    desired = 1 if replicas is None else replicas
    custom = None if resource is None else resource.custom
    if custom is not None and custom.scale is not None:
        desired = _at(document, custom.scale.spec_replicas)
        if desired is None:
            reason = f"the spec replicas field .{custom.scale.spec_replicas} does not exist"
            raise internal_error(reason)
        current = _at(document, custom.scale.status_replicas) or 0
        selector = str(_at(document, custom.scale.selector) or "") if custom.scale.selector else ""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _KEPT if name in metadata},
        "spec": {"replicas": desired},
        "status": {"replicas": current, "selector": selector},
    }


def _at(document: JsonObject, path: str) -> Any:
    found: Any = document
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _with(document: JsonObject, path: str, value: Any) -> JsonObject:
    name, _, rest = path.partition(".")
    inner = document.get(name)
    return {**document, name: _with(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


async def get_scale(cluster: Cluster, call: ApiCall) -> Response:
    info = call.info
    record = cluster.store.get(key(info.resource, info.namespace, info.name))
    if record is None:
        raise not_found(info.resource, info.name)
    return Response(200, line(scale_of(decoded(record), info.resource)), is_ready=True)


async def write_scale(cluster: Cluster, call: ApiCall) -> Response:
    """PUT or PATCH: only `spec.replicas` is used, with the resourceVersion of the Scale as a precondition."""
    info = call.info
    options = write_options(info, call.user_agent)
    kind = schema("autoscaling/v1", "Scale")
    desired_scale: Callable[[JsonObject], JsonObject]
    if info.verb == "update":
        sent = await read_object(cluster, call, kind, options)
        desired_scale = lambda _: sent  # noqa: E731
    else:
        desired_scale = await patcher(cluster, call, options, kind)

    def mutate(live: JsonObject) -> tuple[JsonObject, bool]:
        scale = desired_scale(scale_of(live, info.resource))
        metadata = scale.get("metadata") or {}
        check_place(metadata, info.namespace, info.name, namespaced=info.resource.namespaced)
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        if replicas < 0:
            reason = FieldError("FieldValueInvalid", "spec.replicas", "must be greater than or equal to 0", replicas)
            raise invalid("autoscaling", "Scale", info.name, [reason])
        custom = info.resource.custom
        path = custom.scale.spec_replicas if custom is not None and custom.scale is not None else "spec.replicas"
        changed = _with(live, path, replicas)
        version = metadata.get("resourceVersion")
        changed["metadata"] = {**live["metadata"], "resourceVersion": version or live["metadata"]["resourceVersion"]}
        return changed, False

    answer = await write(cluster, call, options, mutate, growth_bytes=growth_bytes(call))
    return Response(answer.code, line(scale_of(document_of(answer.body), info.resource)), is_ready=True)
