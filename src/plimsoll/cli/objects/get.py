"""`plimsoll get`: displays objects as tables, JSON, YAML or names, once or with a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.printers import ACCEPT, Columns, as_table, header, rows, shown, without_managed_fields
from plimsoll.cli.terminal import inert
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind
    from plimsoll.kube.request import Request


@click.command("get")
@click.argument("words", nargs=-1, required=True, metavar="KIND[,KIND] [NAME...] | KIND/NAME...")
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="[default: a table]")
@click.option("-l", "--selector", default="", metavar="LABELS", help="app=web,tier!=cache")
@click.option("--field-selector", default="", metavar="FIELDS", help="spec.nodeName=n1")
@click.option("-w", "--watch", is_flag=True, help="Watch for changes after the list.")
@click.option("--no-headers", is_flag=True)
def get(words: tuple[str, ...], watch: bool, **options: Any) -> int:
    """Display objects.

    \b
    Examples:
      plimsoll get pods
      plimsoll get pods -A -o wide
      plimsoll get pod web -o yaml
      plimsoll get pod/web node/n1
      plimsoll get pods -l app=web -w
    """
    return answered(options, lambda cluster: _get(cluster, words, watch, options))


async def _get(cluster: ClusterClient, words: tuple[str, ...], watch: bool, options: dict[str, Any]) -> int:
    asked = await _asked(cluster, words)
    if watch and (len(asked) != 1 or options["output"] not in (None, "wide", "name")):
        raise click.UsageError("-w supports one kind or one object, as a table")
    if options["output"] in ("json", "yaml"):
        return await _documents(cluster, asked, options)
    many = len({kind for kind, _ in asked}) > 1
    printed = 0
    for kind, name in asked:
        request = _request(cluster, kind, name, options, ACCEPT)
        found = as_table(await cluster.ask(request))
        if printed and found.get("rows") and options["output"] != "name":
            click.echo()
        columns = Columns()
        printed += _print(found, kind, many, columns, options, head=not options["no_headers"])
        if watch:
            await _follow(cluster, kind, name, found, columns, options)
    if not printed:
        where = "" if options["all_namespaces"] or not asked[0][0].namespaced else f" in {cluster.namespace} namespace"
        click.echo(f"No resources found{where}.", err=True)
    return 0


async def _asked(cluster: ClusterClient, words: tuple[str, ...]) -> list[tuple[DiscoveredKind, str]]:
    """The kinds, each with a name if one object is named."""
    from plimsoll.kube.discovery import kinds_meant

    kinds = await cluster.kinds()
    if any("/" in word for word in words):
        pairs = [word.partition("/") for word in words]
        if any(not kind or not name for kind, _, name in pairs):
            raise click.UsageError("use KIND/NAME for every object, or one KIND followed by names")
        return [(await cluster.kind(kind), name) for kind, _, name in pairs]
    meant = kinds_meant(kinds, words[0])
    if len(words) > 1 and len(meant) > 1:
        raise click.UsageError("names need exactly one kind: `plimsoll get pod web api`")
    return [(kind, name) for kind in meant for name in (words[1:] or ("",))]


def _request(cluster: ClusterClient, kind: DiscoveredKind, name: str, options: dict[str, Any], accept: str) -> Request:
    from plimsoll.kube.request import get as one
    from plimsoll.kube.request import listing

    namespace = cluster.namespace if kind.namespaced and not options["all_namespaces"] else ""
    if name:
        if options["all_namespaces"]:
            raise click.UsageError("a named object has one namespace: use -n, not -A")
        request = one(kind.resource, name, namespace)
    else:
        fields, labels = options["field_selector"], options["selector"]
        request = listing(kind.resource, namespace=namespace, fields=fields, labels=labels)
    return msgspec.structs.replace(request, accept=accept)


def _print(
    found: JsonObject,
    kind: DiscoveredKind,
    many: bool,
    columns: Columns,
    options: dict[str, Any],
    *,
    head: bool = False,
) -> int:
    if options["output"] == "name":
        for row in found.get("rows") or ():
            click.echo(f"{kind.title}/{inert(str(row['object']['metadata']['name']))}")
        return len(found.get("rows") or ())
    wide, namespaces = options["output"] == "wide", bool(options["all_namespaces"]) and kind.namespaced
    cells = list(rows(found, wide=wide, namespaces=namespaces, prefix=f"{kind.title}/" if many else ""))
    if cells:
        if head:
            cells.insert(0, header(found, wide=wide, namespaces=namespaces))
        for line in columns.lines(cells):
            click.echo(line)
    return len(cells)


async def _follow(
    cluster: ClusterClient,
    kind: DiscoveredKind,
    name: str,
    listed: JsonObject,
    columns: Columns,
    options: dict[str, Any],
) -> None:
    from plimsoll.kube.request import ApiError, watch_event, watching

    fields = options["field_selector"] if not name else f"metadata.name={name}"
    request = watching(
        kind.resource,
        str((listed.get("metadata") or {}).get("resourceVersion") or ""),
        namespace=cluster.namespace if kind.namespaced and not options["all_namespaces"] else "",
        fields=fields,
        labels=options["selector"],
    )
    definitions = listed.get("columnDefinitions") or []
    async for line in cluster.lines(msgspec.structs.replace(request, accept=ACCEPT)):
        event = watch_event(line)
        if event.type == "BOOKMARK":
            continue
        if event.type == "ERROR":
            status = event.object
            raise ApiError(int(status.get("code") or 500), str(status.get("reason")), str(status.get("message")))
        changed = as_table(event.object)
        changed.setdefault("columnDefinitions", definitions)
        definitions = changed["columnDefinitions"] or definitions
        _print({**changed, "columnDefinitions": definitions}, kind, False, columns, options)


async def _documents(cluster: ClusterClient, asked: list[tuple[DiscoveredKind, str]], options: dict[str, Any]) -> int:
    found = [await cluster.ask(_request(cluster, kind, name, options, "application/json")) for kind, name in asked]
    if len(found) == 1 and asked[0][1]:
        click.echo(shown(without_managed_fields(found[0]), options["output"]))
        return 0
    items = [item for document in found for item in _items(document)]
    whole = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}
    click.echo(shown(without_managed_fields(whole), options["output"]))
    return 0


def _items(document: JsonObject) -> list[JsonObject]:
    """The items of a list, each with apiVersion and kind, which the server sets only on the list."""
    if not isinstance(document.get("items"), list):
        return [document]
    kind = str(document.get("kind", "")).removesuffix("List")
    about = {"apiVersion": document.get("apiVersion"), "kind": kind}
    return [{**about, **each} for each in document["items"]]
