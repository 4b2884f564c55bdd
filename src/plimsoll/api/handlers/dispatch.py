"""Which handler serves which request. Other parts add handlers for what is not a stored object: metrics, reviews."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from plimsoll.api.handlers.create import create
from plimsoll.api.handlers.delete import delete, delete_collection
from plimsoll.api.handlers.list import get, list_objects
from plimsoll.api.handlers.patch import patch
from plimsoll.api.handlers.scale import get_scale, write_scale
from plimsoll.api.handlers.subresources import bind, evict
from plimsoll.api.handlers.update import update
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.kinds import RESOURCES
from plimsoll.api.machinery.negotiate import MediaType
from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.status import StatusError, no_such_resource

Handler = Callable[[Cluster, ApiCall], Awaitable[Response]]
# (group, resource, subresource, verb)
Route = tuple[str, str, str, str]

_PLAIN: dict[str, Handler] = {
    "create": create,
    "delete": delete,
    "deletecollection": delete_collection,
    "get": get,
    "patch": patch,
    "update": update,
}
_SPECIAL: dict[Route, Handler] = {
    ("", "bindings", "", "create"): bind,
    ("", "pods", "binding", "create"): bind,
    ("", "pods", "eviction", "create"): evict,
    **{
        (resource.group, resource.plural, "scale", verb): get_scale if verb == "get" else write_scale
        for resource in RESOURCES
        if resource.subresource("scale") is not None
        for verb in ("get", "update", "patch")
    },
}
_OF_THE_OBJECT = frozenset({"", "approval", "status", "resize", "ephemeralcontainers", "finalize"})


async def handle(cluster: Cluster, call: ApiCall, form: MediaType, added: dict[Route, Handler]) -> Response:
    """Raises StatusError. `added` are the handlers of other parts; watches are streamed elsewhere."""
    info = call.info
    route = (info.resource.group, info.resource.plural, info.subresource, info.verb)
    special = _SPECIAL.get(route) or added.get(route)
    if info.resource.custom is not None:
        if info.resource.custom.deprecation:
            call.warnings.append(info.resource.custom.deprecation)
        if info.subresource == "scale":
            special = get_scale if info.verb == "get" else write_scale
    if special is not None:
        return await special(cluster, call)
    if not info.resource.storage or info.subresource not in _OF_THE_OBJECT:
        raise _not_served(route)
    if info.subresource == "resize" and not (cluster.in_place and cluster.profile.resize_subresource):
        raise no_such_resource()
    if info.verb == "list":
        return await list_objects(cluster, call, form)
    return await _PLAIN[info.verb](cluster, call)


def is_plain_write(info: RequestInfo, added: dict[Route, Handler]) -> bool:
    """Whether it changes one stored object of a built-in kind, in no way of its own."""
    route = (info.resource.group, info.resource.plural, info.subresource, info.verb)
    is_object = bool(info.resource.storage) and info.resource.custom is None and info.subresource in _OF_THE_OBJECT
    is_special = route in _SPECIAL or route in added
    return is_object and not is_special and info.verb in ("create", "update", "patch", "delete")


def _not_served(route: Route) -> StatusError:
    what = "/".join(part for part in route[:3] if part)
    return StatusError(
        503, "ServiceUnavailable", f"this server does not serve {what}: the component for it is not running", {}
    )
