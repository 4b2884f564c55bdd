"""Which container of a node owns which CPUs, memory and devices, for `plimsoll describe node`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll.cli.terminal import inert, table
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.cli.client import ClusterClient


async def owner_lines(cluster: ClusterClient, node: JsonObject) -> list[str]:
    """Empty for a kubelet, which has no such page, and for a node that does not answer."""
    from plimsoll.cli.node_info import NoSuchPageError, node_page
    from plimsoll.codec.owners import OwnersPage
    from plimsoll.kube.request import ApiError

    try:
        page = await node_page(cluster, str(node["metadata"]["name"]), "owners", OwnersPage)
    except (NoSuchPageError, ApiError):
        return []
    lines = [f"  shared CPUs: {page.shared_cpus}"] if page.shared_cpus else []
    rows = [
        [inert(f"  {each.namespace}/{each.pod}"), inert(each.container), inert(", ".join(each.owns.words()))]
        for each in page.owners
    ]
    lines += table(rows, ("  Pod", "Container", "Owns")) if rows else ()
    return ["Exclusive resources:", *lines] if lines else []
