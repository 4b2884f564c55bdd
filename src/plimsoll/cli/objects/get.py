"""`plimsoll get`: displays objects as tables, documents, names, templates or columns; once or with a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options, server_text
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.files import file_options
from plimsoll.cli.objects.output import PLAIN, TEMPLATES, ObjectPrinter, output_option, sort_key
from plimsoll.cli.objects.selection import ObjectName, named, selector_options
from plimsoll.cli.printers import ACCEPT, Columns, TableForm, as_table, header, rows
from plimsoll.cli.terminal import inert, on_terminal
from plimsoll.cli.verb import Verb
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind
    from plimsoll.kube.request import Request

EVENT_WIDTH = len("MODIFIED")


@console.command("get", cls=Verb)
@console.argument("words", nargs=-1, type=ObjectWords(), metavar="KIND[,KIND] [NAME...] | KIND/NAME...")
@file_options(required=False)
@cluster_options
@selector_options(every=False)
@output_option("wide", *PLAIN, *TEMPLATES)
@console.option("-w", "--watch", is_flag=True, help="Watch for changes after the list.")
@console.option("--watch-only", is_flag=True, help="Watch for changes without the list.")
@console.option("--output-watch-events", is_flag=True, help="Show the type of each change: ADDED, MODIFIED, DELETED.")
@console.option("--sort-by", default="", metavar="PATH", help="Sort by this field: .metadata.creationTimestamp")
@console.option("--show-labels", is_flag=True, help="Show all labels as the last column.")
@console.option("-L", "--label-columns", multiple=True, metavar="LABEL,...", help="Show these labels as columns.")
@console.option("--no-headers", is_flag=True, help="No column names.")
@console.option("--ignore-not-found", is_flag=True, help="Do not fail if an object does not exist.")
@console.option("--raw", default="", metavar="PATH", help="Print what the server has at this path: /healthz")
@console.option("--show-managed-fields", is_flag=True, help="Keep managedFields in JSON and YAML.")
@console.option(
    "--allow-missing-template-keys/--no-missing-template-keys",
    default=True,
    help="A field that an object does not have selects nothing, or is an error.  [default: nothing]",
)
def get(words: tuple[str, ...], **options: Any) -> int:
    """Display objects. Exit code 1 if an object does not exist.

    \b
    Examples:
      plimsoll get pods
      plimsoll get pods -A -o wide --sort-by .metadata.creationTimestamp
      plimsoll get pod web -o yaml
      plimsoll get pod/web node/n1
      plimsoll get pods -l app=web -w
      plimsoll get pods -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
      plimsoll get pods -o custom-columns=NAME:.metadata.name,QOS:.status.qosClass
    """
    if options["raw"]:
        if words or options["files"]:
            raise console.UsageError("--raw takes no other arguments")
        return answered(options, lambda cluster: _raw(cluster, options["raw"]))
    if not words and not options["files"]:
        raise console.UsageError("specify a kind: `plimsoll get pods`, `plimsoll get pod NAME`")
    options["watch"] = options["watch"] or options["watch_only"]
    output = options["output"]
    documents = None
    if output is not None and output.form != "wide":
        documents = ObjectPrinter(
            output,
            headers=not options["no_headers"],
            allow_missing=options["allow_missing_template_keys"],
            managed=options["show_managed_fields"],
        )
    return answered(options, lambda cluster: _get(cluster, words, documents, options))


async def _raw(cluster: ClusterClient, path: str) -> int:
    from plimsoll.kube.request import Request, api_error

    if not path.startswith("/"):
        raise console.UsageError(f"--raw {path}: must begin with /")
    answer = await cluster.answer(Request("GET", path, accept="*/*"))
    if answer.status >= 400:
        raise api_error(answer)
    text = answer.body.decode("utf-8", "backslashreplace")
    console.echo("\n".join(map(inert, text.split("\n"))) if on_terminal() else text, nl=False)
    return 0


async def _get(
    cluster: ClusterClient, words: tuple[str, ...], documents: ObjectPrinter | None, options: dict[str, Any]
) -> int:
    asked = await named(cluster, words, options)
    if options["watch"] and len(asked) != 1:
        raise console.UsageError("-w supports one kind or one object")
    accept = ACCEPT if documents is None else "application/json"
    found, code = await _answers(cluster, asked, accept, options)
    tables = _Tables(options, len({each.kind for each in asked}) > 1)
    if not options["watch_only"]:
        if documents is None:
            printed = sum(tables.add(kind, each) for kind, each in _by_kind(found).items())
            if not printed and not code and not (options["ignore_not_found"] and asked[0].name):
                where = f" in {inert(asked[0].namespace)} namespace." if asked[0].namespace else ""
                console.echo(f"No resources found{where}", err=True)
        elif found:
            _print_documents(documents, asked, found, options["sort_by"])
    if options["watch"] and found:
        kind, listed = found[0]
        async for event in _events(cluster, asked[0], listed, accept, options):
            tables.change(kind, event) if documents is None else _print_change(documents, kind, event, options)
    return code


def _by_kind(found: list[tuple[DiscoveredKind, JsonObject]]) -> dict[DiscoveredKind, JsonObject]:
    """One table for each kind, also if several of its objects are named."""
    tables: dict[DiscoveredKind, JsonObject] = {}
    for kind, answer in found:
        table = as_table(answer)
        known = tables.setdefault(kind, {**table, "rows": []})
        known["rows"] += table.get("rows") or ()
    return tables


async def _answers(
    cluster: ClusterClient, asked: list[ObjectName], accept: str, options: dict[str, Any]
) -> tuple[list[tuple[DiscoveredKind, JsonObject]], int]:
    """What the server has; errors about single objects are printed, and the exit code is 1."""
    from plimsoll.kube.request import ApiError

    found, code = [], 0
    for each in asked:
        try:
            found.append((each.kind, await cluster.ask(_request(each, options, accept))))
        except ApiError as error:
            if not (error.is_gone and each.name and options["ignore_not_found"]):
                console.echo(inert(server_text(error)), err=True)
                code = 1
    return found, code


def _request(what: ObjectName, options: dict[str, Any], accept: str) -> Request:
    from plimsoll.kube.request import get as one
    from plimsoll.kube.request import listing

    if what.name:
        request = one(what.kind.resource, what.name, what.namespace)
    else:
        fields, labels = options["field_selector"], options["selector"]
        request = listing(what.kind.resource, namespace=what.namespace, fields=fields, labels=labels)
    path = request.path
    if options["sort_by"] and accept == ACCEPT:  # rows are sorted by fields of the whole object
        path += ("&" if "?" in path else "?") + "includeObject=Object"
    return msgspec.structs.replace(request, accept=accept, path=path)


class _Tables:
    """Prints the tables of one or several kinds, and the changes of a watch."""

    def __init__(self, options: dict[str, Any], many: bool) -> None:
        self._options, self._many = options, many
        self._columns, self._printed = Columns(), 0
        self._definitions: list[Any] = []

    def add(self, kind: DiscoveredKind, found: JsonObject) -> int:
        listed = list(found.get("rows") or ())
        if self._options["sort_by"]:
            key = sort_key(self._options["sort_by"], [row["object"] for row in listed])
            listed.sort(key=lambda row: key(row["object"]))
        if self._printed and listed:
            console.echo()
        if self._many:
            self._columns = Columns()
        self._printed += len(listed)
        self._print(kind, {**found, "rows": listed}, head=not self._options["no_headers"])
        return len(listed)

    def change(self, kind: DiscoveredKind, event: JsonObject) -> None:
        changed = as_table(event["object"])
        self._print(kind, {**changed, "columnDefinitions": changed.get("columnDefinitions")}, event["type"])

    def _print(self, kind: DiscoveredKind, found: JsonObject, event: str = "", *, head: bool = False) -> None:
        self._definitions = found.get("columnDefinitions") or self._definitions
        found = {**found, "columnDefinitions": self._definitions}
        form = TableForm(
            wide=self._options["output"] is not None,
            namespaces=self._options["all_namespaces"] and kind.namespaced,
            prefix=f"{kind.title}/" if self._many else "",
            labels=tuple(name for each in self._options["label_columns"] for name in each.split(",") if name),
            all_labels=self._options["show_labels"],
        )
        cells = list(rows(found, form))
        if cells and head:
            cells.insert(0, header(found, form))
        if self._options["output_watch_events"]:
            first = ["EVENT"] if cells and head else []
            events = [*first, *[f"{event or 'ADDED':<{EVENT_WIDTH}}"] * (len(cells) - len(first))]
            cells = [[word, *line] for word, line in zip(events, cells, strict=True)]
        for line in self._columns.lines(cells):
            console.echo(line)


def _print_documents(
    documents: ObjectPrinter,
    asked: list[ObjectName],
    found: list[tuple[DiscoveredKind, JsonObject]],
    sort_by: str,
) -> None:
    items = [(kind, item) for kind, document in found for item in _items(document)]
    if sort_by:
        key = sort_key(sort_by, [item for _, item in items])
        items.sort(key=lambda pair: key(pair[1]))
    if documents.each:
        documents.objects([(f"{kind.title}/{item['metadata']['name']}", item) for kind, item in items])
    elif len(asked) == 1 and asked[0].name:
        documents.document(found[0][1])
    else:
        listed = [item for _, item in items]
        documents.document({"apiVersion": "v1", "items": listed, "kind": "List", "metadata": {"resourceVersion": ""}})


def _print_change(documents: ObjectPrinter, kind: DiscoveredKind, event: JsonObject, options: dict[str, Any]) -> None:
    changed = event["object"]
    if documents.each:
        documents.objects([(f"{kind.title}/{changed['metadata']['name']}", changed)])
        return
    if options["output"].form == "yaml":
        console.echo("---")
    documents.document(event if options["output_watch_events"] else changed)


async def _events(
    cluster: ClusterClient, what: ObjectName, listed: JsonObject, accept: str, options: dict[str, Any]
) -> Any:
    from plimsoll.kube.request import ApiError, watch_event, watching

    request = watching(
        what.kind.resource,
        str((listed.get("metadata") or {}).get("resourceVersion") or ""),
        namespace=what.namespace,
        fields=f"metadata.name={what.name}" if what.name else options["field_selector"],
        labels=options["selector"],
    )
    async for line in cluster.lines(msgspec.structs.replace(request, accept=accept)):
        event = watch_event(line)
        if event.type == "BOOKMARK":
            continue
        if event.type == "ERROR":
            status = event.object
            raise ApiError(int(status.get("code") or 500), str(status.get("reason")), str(status.get("message")))
        yield {"type": event.type, "object": event.object}


def _items(document: JsonObject) -> list[JsonObject]:
    """The items of a list, each with apiVersion and kind, which the server sets only on the list."""
    if not isinstance(document.get("items"), list):
        return [document]
    kind = str(document.get("kind", "")).removesuffix("List")
    about = {"apiVersion": document.get("apiVersion"), "kind": kind}
    return [{**about, **each} for each in document["items"]]
