"""…/scale of the kinds that have replicas: the number of replicas as an object of its own (autoscaling/v1 Scale)."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api.handlers.patch import patcher
from plimsoll.api.handlers.update import write
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.metadata import check_place
from plimsoll.api.machinery.request_info import write_options
from plimsoll.api.machinery.status import invalid, not_found
from plimsoll.api.tables.views import document_of
from plimsoll.codec.schema.schema import schema
from plimsoll.errors import FieldError
from plimsoll.rules.controllers.adoption import selector_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import selector_text

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(document: JsonObject) -> JsonObject:
    metadata, spec = document["metadata"], document.get("spec") or {}
    replicas = spec.get("replicas")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _KEPT if name in metadata},
        "spec": {"replicas": 1 if replicas is None else replicas},
        "status": {
            "replicas": (document.get("status") or {}).get("replicas") or 0,
            "selector": selector_text(selector_of(document)),
        },
    }


async def get_scale(cluster: Cluster, call: ApiCall) -> Response:
    info = call.info
    record = cluster.store.get(key(info.resource, info.namespace, info.name))
    if record is None:
        raise not_found(info.resource, info.name)
    return Response(200, line(scale_of(decoded(record))), is_ready=True)


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
        scale = desired_scale(scale_of(live))
        metadata = scale.get("metadata") or {}
        check_place(metadata, info.namespace, info.name, namespaced=True)
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        if replicas < 0:
            reason = FieldError("FieldValueInvalid", "spec.replicas", "must be greater than or equal to 0", replicas)
            raise invalid("autoscaling", "Scale", info.name, [reason])
        changed = {**live, "spec": {**(live.get("spec") or {}), "replicas": replicas}}
        version = metadata.get("resourceVersion")
        changed["metadata"] = {**live["metadata"], "resourceVersion": version or live["metadata"]["resourceVersion"]}
        return changed, False

    answer = await write(cluster, call, options, mutate)
    return Response(answer.code, line(scale_of(document_of(answer.body))), is_ready=True)
