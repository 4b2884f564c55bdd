"""Requests on a store that other servers write to, too: what this server knows may be a few milliseconds old."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.status import StatusError, timed_out, unavailable
from plimsoll.store.errors import OutcomeUnknownError, StoreError, TooLargeError

_BY_OBJECTS = (403, 404, 409, 422)  # refusals that depend on other objects, such as a namespace


async def handled(cluster: Cluster, call: ApiCall, handle: Callable[[], Awaitable[Response]]) -> Response:
    """A refusal because of objects that another server has changed meanwhile is none: it is tried with newer ones."""
    if not cluster.store.is_shared:
        return await handle()
    before = cluster.store.version
    try:
        return await handle()
    except StatusError as error:
        if error.code not in _BY_OBJECTS or not await cluster.store.fresh() or cluster.store.version == before:
            raise
    call.warnings.clear()
    return await handle()


async def became_newer(cluster: Cluster) -> bool:
    """Read etcd's revision; whether there was something that this server did not know."""
    if not cluster.store.is_shared:
        return False
    before = cluster.store.version
    return await cluster.store.fresh() and cluster.store.version != before


def refusal_by_store(error: StoreError) -> StatusError:
    if isinstance(error, OutcomeUnknownError):
        return timed_out(str(error))
    if isinstance(error, TooLargeError):
        return StatusError(413, "RequestEntityTooLarge", str(error), {})
    return unavailable(str(error))
