"""Our own pages at a node's endpoint, read through the API server: what the agent knows of kills and of pressure.

What they say is `rules.node_pages`. A kubelet has no such pages; then it is said, and what to ask instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from plimsoll.errors import PlimsollError

if TYPE_CHECKING:
    from plimsoll.cli.cluster import Cluster

Page = TypeVar("Page", bound=msgspec.Struct)


class NoSuchPage(PlimsollError):
    """The node does not serve it."""


async def node_page(cluster: Cluster, node: str, page: str, kind: type[Page]) -> Page:
    from plimsoll.kube.request import Request, api_error

    answer = await cluster.answer(Request("GET", f"/api/v1/nodes/{node}/proxy/{page}"))
    if answer.status == 404:
        raise NoSuchPage(
            f"node {node} has no /{page}: it is run by a kubelet or by an older plimsoll; "
            f"`plimsoll describe node {node}` and `plimsoll events -A --types Warning` show what it tells"
        )
    if answer.status >= 400:
        raise api_error(answer)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise NoSuchPage(f"node {node}: /{page}: {error}; node and command are of different versions") from None
