"""`plimsoll events`: lists the events of an object, a namespace or all namespaces, newest last."""

from __future__ import annotations

from typing import Any

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.printers import EVENTS_HEADER, Columns, event_order, row, shown
from plimsoll.cli.verb import Verb
from plimsoll.rules.model.json_object import JsonObject


@console.command("events", cls=Verb)
@cluster_options
@console.option("-A", "--all-namespaces", is_flag=True, help="Events of all namespaces.")
@console.option("--for", "about", default="", metavar="KIND/NAME", help="Only events about this object.")
@console.option("--types", default="", metavar="Warning,Normal", help="Only events of these types.")
@console.option("-w", "--watch", is_flag=True, help="Watch for new events after the list.")
@console.option("-o", "--output", type=console.Choice(["json", "yaml"]), help="[default: a table]")
@console.option("--no-headers", is_flag=True, help="No column names.")
def events(about: str, types: str, watch: bool, output: str | None, **options: Any) -> int:
    """List events, newest last.

    \b
    Examples:
      plimsoll events
      plimsoll events --for pod/web
      plimsoll events -A --types Warning -w
    """
    if about and "/" not in about:
        raise console.UsageError("--for must be KIND/NAME, for example pod/web")
    wanted = {each.strip() for each in types.split(",") if each.strip()}
    return answered(options, lambda cluster: _events(cluster, about, wanted, watch, output, options))


async def _events(
    cluster: ClusterClient, about: str, types: set[str], watch: bool, output: str | None, options: dict[str, Any]
) -> int:
    from plimsoll.kube.request import EVENTS, listing, watch_event, watching

    everywhere = bool(options["all_namespaces"])
    namespace, fields = "" if everywhere else cluster.namespace, ""
    if about:
        word, _, name = about.partition("/")
        kind = await cluster.kind(word)
        fields = f"involvedObject.kind={kind.kind},involvedObject.name={name}"
        if not kind.namespaced:  # kubelets write events about nodes to `default`
            namespace = "" if not options["namespace"] else cluster.namespace
    listed = await cluster.ask(listing(EVENTS, namespace=namespace, fields=fields))
    found = sorted((each for each in listed.get("items") or () if _of(each, types)), key=event_order)
    if output:
        console.echo(shown({"apiVersion": "v1", "kind": "List", "items": found}, output))
        return 0
    columns = Columns()
    now_s = _now_s()
    cells = [row(each, now_s, namespace=everywhere) for each in found]
    if cells and not options["no_headers"]:
        cells.insert(0, ["NAMESPACE", *EVENTS_HEADER] if everywhere else list(EVENTS_HEADER))
    for line in columns.lines(cells):
        console.echo(line)
    if not cells and not watch:
        console.echo(
            "No events found." if everywhere else f"No events found in {cluster.namespace} namespace.", err=True
        )
    if watch:
        version = str((listed.get("metadata") or {}).get("resourceVersion") or "")
        async for change in cluster.lines(watching(EVENTS, version, namespace=namespace, fields=fields)):
            event = watch_event(change)
            if event.type in ("ADDED", "MODIFIED") and _of(event.object, types):
                for text in columns.lines([row(event.object, _now_s(), namespace=everywhere)]):
                    console.echo(text)
    return 0


def _of(event: JsonObject, types: set[str]) -> bool:
    return not types or event.get("type") in types


def _now_s() -> float:
    import time

    return time.time()
