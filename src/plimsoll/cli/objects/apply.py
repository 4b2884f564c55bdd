"""`plimsoll apply -f`: server-side apply of every object in the files, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.terminal import inert
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.cli.manifests import Manifest
    from plimsoll.kube.discovery import DiscoveredKind

APPLY = "application/apply-patch+yaml"  # JSON is YAML
MANAGER = "plimsoll"
REFUSED = 2


@click.command("apply")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="Files, directories or - to apply.",
)
@cluster_options
@click.option("--dry-run", is_flag=True, help="Only let the server check the request.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another manager owns.")
def apply(files: tuple[str, ...], dry_run: bool, force_conflicts: bool, **options: Any) -> int:
    """Create or update objects from files (server-side apply).

    All files are read before the first object is sent. Exit code 2 if the server rejects any of them.

    \b
    Examples:
      plimsoll apply -f pod.yaml
      plimsoll apply -f deploy/ --dry-run
      cat pod.yaml | plimsoll apply -f - -n shop
    """
    from plimsoll.cli.manifests import read_manifests

    manifests = read_manifests(files)
    return answered(options, lambda cluster: _apply(cluster, manifests, dry_run, force_conflicts, options["namespace"]))


async def _apply(cluster: ClusterClient, manifests: list[Manifest], dry_run: bool, force: bool, namespace: str) -> int:
    from plimsoll.kube.discovery import kind_of_object
    from plimsoll.kube.request import ApiError

    kinds = await cluster.kinds()
    targets: list[tuple[Manifest, DiscoveredKind, str]] = []
    for manifest in manifests:
        kind = kind_of_object(kinds, manifest.api_version, manifest.kind)
        if namespace and kind.namespaced and manifest.namespace not in ("", namespace):
            title = f"{kind.title}/{manifest.name}"
            raise click.ClickException(
                f"{manifest.file}: {title} has namespace {manifest.namespace}, but -n is {namespace}"
            )
        targets.append((manifest, kind, (manifest.namespace or cluster.namespace) if kind.namespaced else ""))
    code = 0
    for manifest, kind, where in targets:
        try:
            done = await _applied(cluster, manifest, kind, where, dry_run, force)
        except ApiError as error:
            click.echo(f"plimsoll: {inert(manifest.file)}: {inert(str(error))}", err=True)
            if error.code == 409:
                click.echo("          use --force-conflicts to take over these fields", err=True)
            code = REFUSED
        else:
            click.echo(f"{kind.title}/{inert(manifest.name)} {done}{' (dry run)' if dry_run else ''}")
    return code


async def _applied(
    cluster: ClusterClient, manifest: Manifest, kind: DiscoveredKind, namespace: str, dry_run: bool, force: bool
) -> str:
    import msgspec

    from plimsoll.kube.request import Request, document, get

    before = await cluster.answer(get(kind.resource, manifest.name, namespace))
    query = {"fieldManager": MANAGER, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
    path = f"{kind.resource.path(namespace, manifest.name)}?{urlencode(query)}"
    answer = await cluster.answer(Request("PATCH", path, msgspec.json.encode(manifest.document), APPLY))
    after = document(answer)
    if before.status >= 400:
        return "created"
    return "unchanged" if _desired(document(before)) == _desired(after) else "configured"


def _desired(document: JsonObject) -> JsonObject:
    """The object without status and bookkeeping, which change by themselves."""
    metadata = document.get("metadata") or {}
    kept = {key: value for key, value in metadata.items() if key not in ("managedFields", "resourceVersion")}
    return {**document, "status": None, "metadata": kept}
