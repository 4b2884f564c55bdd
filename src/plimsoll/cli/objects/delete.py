"""`plimsoll delete`: deletes objects by name, by label or from a file, and waits until they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.terminal import inert

if TYPE_CHECKING:
    from plimsoll.cli.manifests import Manifest
    from plimsoll.kube.discovery import DiscoveredKind

WAIT_S = 60.0
NOT_GONE, REFUSED = 1, 2
Target = tuple["DiscoveredKind", str, str]  # kind, namespace, name


@click.command("delete")
@click.argument("words", nargs=-1, metavar="[KIND NAME... | KIND/NAME...]")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE|DIR|-", help="Delete the objects in these files."
)
@cluster_options
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Delete the objects of the kind with these labels."
)
@click.option("--all", "every", is_flag=True, help="Delete all objects of the kind in the namespace.")
@click.option(
    "--grace-period", type=click.IntRange(0), metavar="SECONDS", help="Override the grace period of the object."
)
@click.option("--ignore-not-found", is_flag=True, help="Do not fail if an object does not exist.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the objects are gone.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), default=WAIT_S, show_default=True)
def delete(words: tuple[str, ...], files: tuple[str, ...], **options: Any) -> int:
    """Delete objects.

    Exit code 1 if an object is not gone in time, 2 if the server rejects the request.

    \b
    Examples:
      plimsoll delete pod web
      plimsoll delete pods -l app=web
      plimsoll delete -f pod.yaml --grace-period 0
    """
    if bool(words) == bool(files):
        raise click.UsageError("specify objects or -f FILE")
    manifests: list[Manifest] = []
    if files:
        from plimsoll.cli.manifests import read_manifests

        manifests = read_manifests(files)
    return answered(options, lambda cluster: _delete(cluster, words, manifests, options))


async def _delete(
    cluster: ClusterClient, words: tuple[str, ...], manifests: list[Manifest], options: dict[str, Any]
) -> int:
    targets = await (_from_words(cluster, words, options) if words else _from_manifests(cluster, manifests))
    if not targets:
        click.echo("No resources found.", err=True)
        return 0
    import asyncio

    from plimsoll.kube.request import ApiError, delete

    code, going = 0, []
    for kind, namespace, name in targets:
        try:
            await cluster.ask(delete(kind.resource, name, namespace, grace_s=options["grace_period"]))
        except ApiError as error:
            if not (error.is_gone and options["ignore_not_found"]):
                click.echo(f"plimsoll: {inert(str(error))}", err=True)
                code = REFUSED
            continue
        click.echo(f'{kind.title} "{inert(name)}" deleted')
        going.append((kind, namespace, name))
    if not options["wait"]:
        return code
    try:
        async with asyncio.timeout(options["timeout_s"]):
            for target in going:
                await _gone(cluster, target)
    except TimeoutError:
        kind, _, name = target
        click.echo(
            f"plimsoll: {kind.title}/{inert(name)} still exists after {options['timeout_s']:g} s; "
            "see `plimsoll describe`; --grace-period 0 ends a pod at once",
            err=True,
        )
        return NOT_GONE
    return code


async def _from_words(cluster: ClusterClient, words: tuple[str, ...], options: dict[str, Any]) -> list[Target]:
    from plimsoll.kube.request import listing

    if any("/" in word for word in words):
        pairs = [word.partition("/") for word in words]
        found = [(await cluster.kind(word), name) for word, _, name in pairs]
    else:
        kind = await cluster.kind(words[0])
        found = [(kind, name) for name in words[1:]]
        if not found:
            if not options["selector"] and not options["every"]:
                raise click.UsageError(f"specify names of {kind.plural}, -l LABELS or --all")
            namespace = cluster.namespace if kind.namespaced else ""
            listed = await cluster.ask(listing(kind.resource, namespace=namespace, labels=options["selector"]))
            found = [(kind, str(each["metadata"]["name"])) for each in listed.get("items") or ()]
    return [(kind, cluster.namespace if kind.namespaced else "", name) for kind, name in found]


async def _from_manifests(cluster: ClusterClient, manifests: list[Manifest]) -> list[Target]:
    from plimsoll.kube.discovery import kind_of_object

    kinds = await cluster.kinds()
    found: list[Target] = []
    for each in reversed(manifests):  # in reverse order of creation
        kind = kind_of_object(kinds, each.api_version, each.kind)
        found.append((kind, (each.namespace or cluster.namespace) if kind.namespaced else "", each.name))
    return found


async def _gone(cluster: ClusterClient, target: Target) -> None:
    """Watch the object until it is deleted, or replaced by another with the same name."""
    from plimsoll.kube.request import document, get, watch_event, watching

    kind, namespace, name = target
    uid = ""
    while True:
        answer = await cluster.answer(get(kind.resource, name, namespace))
        if answer.status == 404:
            return
        metadata = document(answer, kind.kind).get("metadata") or {}
        if uid and metadata.get("uid") != uid:
            return
        uid = str(metadata.get("uid") or "")
        watch = watching(
            kind.resource,
            str(metadata.get("resourceVersion") or ""),
            namespace=namespace,
            fields=f"metadata.name={name}",
        )
        async for line in cluster.lines(watch):
            event = watch_event(line)
            if event.type == "DELETED":
                return
            if event.type == "ERROR":
                break
