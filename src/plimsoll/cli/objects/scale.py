"""`plimsoll scale`: sets the number of replicas through the `scale` subresource."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.failure import FailedError
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.files import file_options
from plimsoll.cli.objects.selection import ObjectName, selected, selector_options
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import Verb, dry_run_option, dry_run_query, dry_run_words


@console.command("scale", cls=Verb)
@console.argument("words", nargs=-1, type=ObjectWords(), metavar="KIND NAME... | KIND/NAME...")
@file_options(required=False)
@console.option("--replicas", type=console.IntRange(0), required=True, metavar="N", help="The number of replicas.")
@console.option("--current-replicas", type=int, default=-1, metavar="N", help="Only if there are N replicas now.")
@cluster_options
@selector_options()
@dry_run_option()
def scale(words: tuple[str, ...], **options: Any) -> int:
    """Set the number of replicas of a Deployment, ReplicaSet or StatefulSet.

    \b
    Examples:
      plimsoll scale deployment/web --replicas 3
      plimsoll scale --current-replicas=2 --replicas=3 deployment web
    """

    async def each(cluster: ClusterClient) -> int:
        for name in await selected(cluster, words, options):
            await _scale(cluster, name, options)
        return 0

    return answered(options, each)


async def _scale(cluster: ClusterClient, name: ObjectName, options: dict[str, Any]) -> None:
    from plimsoll.kube.request import MERGE, Request, get, patch, with_query

    resource = name.kind.resource
    if "scale" not in name.kind.subresources:
        await cluster.ask(get(resource, name.name, name.namespace))  # if it does not exist, that is the error
        raise FailedError(f"error: cannot scale {inert(str(name))}: {name.kind.plural} have no scale subresource")
    wanted = options["current_replicas"]
    if wanted >= 0:
        path = resource.path(name.namespace, name.name, "scale")
        now = await cluster.ask(Request("GET", path))
        replicas = (now.get("spec") or {}).get("replicas") or 0
        if replicas != wanted:
            raise FailedError(f"error: Expected replicas to be {wanted}, was {replicas}")
    if options["dry_run"] == "client":
        await cluster.ask(get(resource, name.name, name.namespace))
    else:
        body = {"spec": {"replicas": options["replicas"]}}
        request = patch(resource, name.name, body, name.namespace, "scale", content_type=MERGE)
        path = with_query(request.path, [*dry_run_query(options["dry_run"]).items()])
        await cluster.ask(msgspec.structs.replace(request, path=path))
    console.echo(f"{inert(str(name))} scaled{dry_run_words(options['dry_run'])}")
