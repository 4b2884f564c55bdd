"""`plimsoll describe`: one object in words, with its events; pods and nodes with what their resources mean."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.cluster import Cluster, answered, cluster_options

if TYPE_CHECKING:
    from plimsoll.kube.discovery import Kind

Document = dict[str, Any]


@click.command("describe")
@click.argument("words", nargs=-1, required=True, metavar="KIND [NAME...] | KIND/NAME...")
@cluster_options
@click.option("-l", "--selector", default="", metavar="LABELS", help="All of a kind with these labels.")
def describe(words: tuple[str, ...], selector: str, **options: Any) -> int:
    """Say everything about objects, and what has happened to them.

    \b
    Examples:
      plimsoll describe pod web
      plimsoll describe node/n1
      plimsoll describe deployments
    """
    return answered(options, lambda cluster: _describe(cluster, words, selector))


async def _describe(cluster: Cluster, words: tuple[str, ...], selector: str) -> int:
    from plimsoll.cli.describe_lines import described

    printed = False
    for kind, document in await _objects(cluster, words, selector):
        events = await _events(cluster, kind, document)
        pods = await _pods_of(cluster, document) if kind.kind == "Node" else []
        if printed:
            click.echo("\n")
        for line in described(kind.kind, document, events, pods, time.time()):
            click.echo(line)
        printed = True
    if not printed:
        where = f" in {cluster.namespace} namespace" if cluster.namespace else ""
        click.echo(f"No resources found{where}.", err=True)
    return 0


async def _objects(cluster: Cluster, words: tuple[str, ...], selector: str) -> list[tuple[Kind, Document]]:
    from plimsoll.kube.request import get, listing

    if any("/" in word for word in words):
        pairs = [(await cluster.kind(word.partition("/")[0]), word.partition("/")[2]) for word in words]
    else:
        kind = await cluster.kind(words[0])
        pairs = [(kind, name) for name in words[1:]]
        if not pairs:
            namespace = cluster.namespace if kind.namespaced else ""
            listed = await cluster.ask(listing(kind.resource, namespace=namespace, labels=selector))
            about = {"apiVersion": kind.api_version, "kind": kind.kind}
            return [(kind, {**about, **each}) for each in listed.get("items") or ()]
    return [
        (kind, await cluster.ask(get(kind.resource, name, cluster.namespace if kind.namespaced else "")))
        for kind, name in pairs
    ]


async def _events(cluster: Cluster, kind: Kind, document: Document) -> list[Document]:
    from plimsoll.cli.event_lines import last_seen
    from plimsoll.kube.request import EVENTS, listing

    metadata = document.get("metadata") or {}
    fields = f"involvedObject.kind={kind.kind},involvedObject.name={metadata.get('name')}"
    if kind.namespaced and metadata.get("uid"):
        fields += f",involvedObject.uid={metadata['uid']}"
    listed = await cluster.ask(listing(EVENTS, namespace=str(metadata.get("namespace") or ""), fields=fields))
    return sorted(listed.get("items") or (), key=last_seen)


async def _pods_of(cluster: Cluster, node: Document) -> list[Document]:
    from plimsoll.kube.request import PODS, listing

    found = await cluster.ask(listing(PODS, fields=f"spec.nodeName={node['metadata']['name']}"))
    return [each for each in found.get("items") or () if _phase(each) not in ("Succeeded", "Failed")]


def _phase(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
