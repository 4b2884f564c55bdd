"""Whether a user may make a request, and what its selectors choose."""

from __future__ import annotations

from plimsoll.api.auth.authorizer import attributes, authorize, create_of
from plimsoll.api.auth.roles import is_allowed
from plimsoll.api.handlers.list import read_selection
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.selectors import Selection
from plimsoll.api.machinery.status import StatusError
from plimsoll.api.machinery.users import User
from plimsoll.api.server.shared_store import became_newer

_MAY_CREATE = ("update", "patch")
COLLECTION_VERBS = ("list", "watch", "deletecollection")


async def authorized_selection(cluster: Cluster, info: RequestInfo, user: User) -> Selection:
    """Raises 403, and then 400 for selectors that cannot be read."""
    chosen, unreadable = Selection(info.resource.storage), None
    if info.query and info.verb in COLLECTION_VERBS:
        try:
            chosen = await read_selection(cluster, info, user)
        except StatusError as error:
            unreadable = error
    try:
        authorize(user, info, chosen, cluster)
    except StatusError:
        if not await became_newer(cluster):
            raise
        authorize(user, info, chosen, cluster)
    if unreadable is not None:
        raise unreadable
    return chosen


def may_create(cluster: Cluster, info: RequestInfo, user: User) -> bool:
    """Whether a PUT or PATCH of an object that does not exist may create it."""
    if info.verb not in _MAY_CREATE or info.subresource:
        return False
    return is_allowed(user, attributes(create_of(info), Selection(info.resource.storage)), cluster)
