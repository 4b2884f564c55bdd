"""`plimsoll apply` and `plimsoll create`: write every object in the files, in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options, server_text
from plimsoll.cli.objects.files import file_options, read_files
from plimsoll.cli.objects.output import PLAIN, ObjectPrinter, output_option
from plimsoll.cli.objects.selection import ObjectName
from plimsoll.cli.parameters import DurationParam
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import OptionalValue, Verb, dry_run_option, dry_run_query, dry_run_words
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.cli.manifests import Manifest
    from plimsoll.kube.discovery import DiscoveredKind

APPLY = "application/apply-patch+yaml"  # JSON is YAML
MANAGER = "plimsoll"
FAILED = 1
VALIDATION = {"strict": "Strict", "true": "Strict", "warn": "Warn", "ignore": "Ignore", "false": "Ignore"}
Written = tuple[str, JsonObject]  # created, configured or unchanged; the object

_validate = console.option(
    "--validate",
    cls=OptionalValue,
    bare="strict",
    default="strict",
    type=console.Choice([*VALIDATION]),
    metavar="strict|warn|ignore",
    help="Whether unknown fields are an error, a warning, or ignored.",
)


@console.command("apply", cls=Verb)
@file_options(required=True)
@cluster_options
@dry_run_option("server")
@console.option("--force-conflicts", is_flag=True, help="Take over fields that another manager owns.")
@console.option("--server-side/--no-server-side", default=True, help="Always server-side.  [default: true]")
@console.option(
    "--field-manager", default=MANAGER, show_default=True, metavar="NAME", help="The manager that owns the fields."
)
@console.option("--wait", is_flag=True, help="Wait until the objects are ready (condition Ready or Available).")
@console.option(
    "--timeout", "timeout_s", type=DurationParam(), default="60s", show_default=True, help="How long --wait waits."
)
@_validate
@output_option(*PLAIN)
def apply(files: tuple[str, ...], recursive: bool, **options: Any) -> int:
    """Create or update objects from files (server-side apply).

    All files are read before the first object is sent. Exit code 1 if the server rejects any of them.

    \b
    Examples:
      plimsoll apply -f pod.yaml
      plimsoll apply -f deploy/ -R --dry-run=server
      cat pod.yaml | plimsoll apply -f - -n shop
    """
    if not options["server_side"]:
        raise console.UsageError("apply is always server-side: the server merges; leave --server-side out")
    manifests = read_files(files, recursive)
    return answered(options, lambda cluster: _write(cluster, manifests, _applied, options))


@console.command("create", cls=Verb)
@console.argument("words", nargs=-1, metavar="[namespace NAME]")
@file_options(required=False)
@cluster_options
@dry_run_option()
@_validate
@output_option(*PLAIN)
def create(words: tuple[str, ...], files: tuple[str, ...], recursive: bool, **options: Any) -> int:
    """Create objects from files, or a namespace. Exit code 1 if an object exists already.

    \b
    Examples:
      plimsoll create -f pod.yaml
      plimsoll create namespace shop
    """
    from plimsoll.cli.manifests import Manifest

    if bool(words) == bool(files) or (words and (len(words) != 2 or words[0] not in ("namespace", "ns"))):
        raise console.UsageError("specify -f FILE or `namespace NAME`; write other kinds to a file")
    if words:
        manifests = [Manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": words[1]}}, "")]
    else:
        manifests = read_files(files, recursive, generated_names=True)
    return answered(options, lambda cluster: _write(cluster, manifests, _created, options))


async def _write(
    cluster: ClusterClient,
    manifests: list[Manifest],
    write: Callable[[ClusterClient, Manifest, ObjectName, dict[str, Any]], Awaitable[Written]],
    options: dict[str, Any],
) -> int:
    from plimsoll.kube.request import ApiError

    code, done = 0, list[tuple[ObjectName, JsonObject]]()
    for manifest, name in await _targets(cluster, manifests, options["namespace"]):
        try:
            word, document = await write(cluster, manifest, name, options)
        except ApiError as error:
            console.echo("\n".join(map(inert, _failure(error, manifest).splitlines())), err=True)
            code = FAILED
            continue
        name = msgspec.structs.replace(name, name=str(document["metadata"].get("name") or name.name))
        done.append((name, document))
        if options["output"] is None:
            console.echo(f"{inert(str(name))} {word}{dry_run_words(options['dry_run'])}")
    if options["output"] is not None and done:
        _print(done, ObjectPrinter(options["output"]))
    if options.get("wait") and options["dry_run"] == "none":
        from plimsoll.cli.objects.wait import until_ready

        code = max(code, await until_ready(cluster, [name for name, _ in done], options["timeout_s"]))
    return code


async def _targets(
    cluster: ClusterClient, manifests: list[Manifest], namespace: str
) -> list[tuple[Manifest, ObjectName]]:
    """All before the first is sent: a kind that the server does not have is an error for all of them."""
    from plimsoll.kube.discovery import kind_of_object

    kinds: list[DiscoveredKind] = await cluster.kinds()
    found = []
    for manifest in manifests:
        kind = kind_of_object(kinds, manifest.api_version, manifest.kind)
        if namespace and kind.namespaced and manifest.namespace not in ("", namespace):
            title = f"{kind.title}/{manifest.name}"
            raise console.CommandError(
                f"{manifest.file}: {title} has namespace {manifest.namespace}, but -n is {namespace}"
            )
        where = (manifest.namespace or cluster.namespace) if kind.namespaced else ""
        found.append((manifest, ObjectName(kind, where, manifest.name)))
    return found


def _failure(error: Any, manifest: Manifest) -> str:
    """As kubectl prints it, with the file."""
    if error.reason != "Invalid" and manifest.file:
        message = f'error when creating "{manifest.file}": {error.message}'
        error = type(error)(error.code, error.reason, message)
    hint = "\n          use --force-conflicts to take over these fields" if error.is_conflict else ""
    return server_text(error) + hint


def _print(done: list[tuple[ObjectName, JsonObject]], printer: ObjectPrinter) -> None:
    if printer.each:
        printer.objects([(str(name), document) for name, document in done])
    elif len(done) == 1:
        printer.document(done[0][1])
    else:
        items = [document for _, document in done]
        printer.document({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {}})


async def _applied(cluster: ClusterClient, manifest: Manifest, name: ObjectName, options: dict[str, Any]) -> Written:
    from plimsoll.kube.request import Request, document, get, with_query

    resource = name.kind.resource
    before = await cluster.answer(get(resource, name.name, name.namespace))
    if options["dry_run"] == "client":
        return ("created" if before.status >= 400 else "configured"), manifest.document
    query = {"fieldManager": options["field_manager"], "force": str(options["force_conflicts"]).lower()}
    query |= {"fieldValidation": VALIDATION[options["validate"]], **dry_run_query(options["dry_run"])}
    path = with_query(resource.path(name.namespace, name.name), [*query.items()])
    after = await cluster.ask(Request("PATCH", path, msgspec.json.encode(manifest.document), APPLY))
    if before.status >= 400:
        return "created", after
    return ("unchanged" if _desired(document(before)) == _desired(after) else "configured"), after


async def _created(cluster: ClusterClient, manifest: Manifest, name: ObjectName, options: dict[str, Any]) -> Written:
    from plimsoll.kube.request import create as creating
    from plimsoll.kube.request import with_query

    if options["dry_run"] == "client":
        return "created", manifest.document
    query = {"fieldManager": MANAGER, "fieldValidation": VALIDATION[options["validate"]]}
    query |= dry_run_query(options["dry_run"])
    request = creating(name.kind.resource, manifest.document, name.namespace)
    request = msgspec.structs.replace(request, path=with_query(request.path, [*query.items()]))
    return "created", await cluster.ask(request)


def _desired(document: JsonObject) -> JsonObject:
    """The object without status and bookkeeping, which change by themselves."""
    metadata = document.get("metadata") or {}
    kept = {key: value for key, value in metadata.items() if key not in ("managedFields", "resourceVersion")}
    return {**document, "status": None, "metadata": kept}
