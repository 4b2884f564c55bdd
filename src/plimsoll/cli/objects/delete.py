"""`plimsoll delete`: deletes objects by name, by label or from a file, and waits until they are gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options, server_text
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.files import file_options, read_files
from plimsoll.cli.objects.selection import ObjectName, in_manifests, selected, selector_options
from plimsoll.cli.parameters import DurationParam
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import Verb, dry_run_option, dry_run_words

if TYPE_CHECKING:
    from plimsoll.cli.manifests import Manifest
    from plimsoll.kube.request import Request, ResourcePath

FAILED = 1
IMMEDIATE = (
    "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "
    "The resource may continue to run on the cluster indefinitely."
)


@console.command("delete", cls=Verb)
@console.argument("words", nargs=-1, type=ObjectWords(), metavar="[KIND NAME... | KIND/NAME...]")
@file_options(required=False)
@cluster_options
@selector_options()
@console.option(
    "--grace-period", type=console.IntRange(-1), default=-1, metavar="SECONDS", help="[default: the object's]"
)
@console.option("--now", is_flag=True, help="The same as --grace-period=1.")
@console.option("--force", is_flag=True, help="With --grace-period=0: do not wait for the node.")
@console.option(
    "--cascade",
    type=console.Choice(["background", "foreground", "orphan"]),
    default="background",
    show_default=True,
    help="Whether objects that this one owns are deleted after it, before it, or not at all.",
)
@console.option("--ignore-not-found", is_flag=True, help="Do not fail if an object does not exist.")
@console.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the objects are gone.")
@console.option("--timeout", "timeout_s", type=DurationParam(), default="60s", show_default=True, help="0: no limit.")
@dry_run_option()
@console.option("-o", "--output", type=console.Choice(["name"]), help="Print only KIND/NAME.")
def delete(words: tuple[str, ...], files: tuple[str, ...], recursive: bool, **options: Any) -> int:
    """Delete objects. Exit code 1 if the server refuses it, or an object is not gone in time.

    \b
    Examples:
      plimsoll delete pod web
      plimsoll delete pods -l app=web --wait=false
      plimsoll delete pod web --force --grace-period=0
      plimsoll delete -f pod.yaml --ignore-not-found
    """
    if bool(words) == bool(files):
        raise console.UsageError("specify objects or -f FILE")
    if options["now"]:
        if options["grace_period"] >= 0:
            raise console.UsageError("--now and --grace-period exclude each other")
        options["grace_period"] = 1
    if options["force"]:
        if options["grace_period"] > 0:
            raise console.UsageError("--force and --grace-period greater than 0 exclude each other")
        options["grace_period"], options["wait"] = 0, False
        console.echo(IMMEDIATE, err=True)
    manifests = read_files(files, recursive) if files else []
    return answered(options, lambda cluster: _delete(cluster, words, manifests, options))


async def _delete(
    cluster: ClusterClient, words: tuple[str, ...], manifests: list[Manifest], options: dict[str, Any]
) -> int:
    from plimsoll.kube.request import ApiError

    if words:
        targets = await selected(cluster, words, options)
    else:  # in reverse order of creation
        targets = (await in_manifests(cluster, manifests))[::-1]
    if not targets:
        console.echo("No resources found", err=True)
        return 0
    code, going = 0, []
    for target in targets:
        try:
            if options["dry_run"] != "client":
                await cluster.ask(_request(target, options))
        except ApiError as error:
            if not (error.is_gone and options["ignore_not_found"]):
                console.echo(inert(server_text(error)), err=True)
                code = FAILED
            continue
        console.echo(_deleted(target, options))
        going.append(target)
    if options["dry_run"] != "none" or not options["wait"]:
        return code
    try:
        async with asyncio.timeout(options["timeout_s"] or None):
            for target in going:
                await gone(cluster, target.kind.resource, target.namespace, target.name)
    except TimeoutError:
        console.echo(
            f"plimsoll: {inert(str(target))} still exists after {options['timeout_s']:g} s; "
            "see `plimsoll describe`; --grace-period 0 ends a pod at once",
            err=True,
        )
        return FAILED
    return code


def _deleted(target: ObjectName, options: dict[str, Any]) -> str:
    if options["output"]:
        return inert(str(target))
    where = f" from {target.namespace} namespace" if target.namespace else ""
    word = "force deleted" if options["force"] else "deleted"
    return inert(f'{target.kind.title} "{target.name}" {word}{where}{dry_run_words(options["dry_run"])}')


def _request(target: ObjectName, options: dict[str, Any]) -> Request:
    from plimsoll.kube.request import JSON, Request

    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    body["propagationPolicy"] = str(options["cascade"]).capitalize()
    if options["grace_period"] >= 0:
        body["gracePeriodSeconds"] = options["grace_period"]
    if options["dry_run"] == "server":
        body["dryRun"] = ["All"]
    path = target.kind.resource.path(target.namespace, target.name)
    return Request("DELETE", path, msgspec.json.encode(body), JSON)


async def gone(cluster: ClusterClient, resource: ResourcePath, namespace: str, name: str, uid: str = "") -> None:
    """Watch the object until it is deleted, or replaced by another with the same name."""
    from plimsoll.kube.request import document, get, watch_event, watching

    while True:
        answer = await cluster.answer(get(resource, name, namespace))
        if answer.status == 404:
            return
        metadata = document(answer, resource.kind).get("metadata") or {}
        if uid and metadata.get("uid") != uid:
            return
        uid = str(metadata.get("uid") or "")
        version = str(metadata.get("resourceVersion") or "")
        async for line in cluster.lines(
            watching(resource, version, namespace=namespace, fields=f"metadata.name={name}")
        ):
            event = watch_event(line)
            if event.type == "DELETED":
                return
            if event.type == "ERROR":
                break
