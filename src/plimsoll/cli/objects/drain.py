"""`plimsoll cordon`, `uncordon` and `drain`: keep pods off a node, and evict those on it.

Pods are evicted through the API, which respects disruption budgets: while a budget does not allow it (429), the
eviction is repeated every 5 s, as kubectl does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options, server_text
from plimsoll.cli.failure import FailedError
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.delete import gone
from plimsoll.cli.parameters import DurationParam
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import DryRun, Verb, dry_run_option, dry_run_query, dry_run_words
from plimsoll.rules.model.json_object import JsonObject

RETRY_S = 5.0
MIRROR = "kubernetes.io/config.mirror"


class DrainRules(msgspec.Struct, frozen=True):
    """What --ignore-daemonsets, --delete-emptydir-data and --force allow."""

    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    force: bool = False


class DrainPlan(msgspec.Struct, frozen=True):
    """The pods to evict; reasons with pods that forbid it, and that a person should know."""

    pods: list[JsonObject]
    errors: dict[str, list[str]]
    warnings: dict[str, list[str]]


def drain_plan(pods: Sequence[JsonObject], rules: DrainRules) -> DrainPlan:
    plan = DrainPlan([], {}, {})
    for pod in pods:
        removed, error, warning = _verdict(pod, rules)
        name = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        if error:
            plan.errors.setdefault(error, []).append(name)
        if warning:
            plan.warnings.setdefault(warning, []).append(name)
        if removed:
            plan.pods.append(pod)
    return plan


def _verdict(pod: JsonObject, rules: DrainRules) -> tuple[bool, str, str]:
    """Whether it is evicted, and the reasons, as kubectl words them."""
    metadata = pod["metadata"]
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    if MIRROR in (metadata.get("annotations") or {}):
        return False, "", ""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True, "", ""
    if owner is not None and owner.get("kind") == "DaemonSet":
        if rules.ignore_daemonsets:
            return False, "", "ignoring DaemonSet-managed Pods"
        return False, "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)", ""
    warning = ""
    if any("emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or ()):
        if not rules.delete_emptydir_data:
            return False, "Pods with local storage (use --delete-emptydir-data to override)", ""
        warning = "deleting Pods with local storage"
    if owner is None:
        if not rules.force:
            return False, "Pods that declare no controller (use --force to override)", ""
        warning = "deleting Pods that declare no controller"
    return True, "", warning


def listed_reasons(reasons: dict[str, list[str]]) -> list[str]:
    return [f"{reason}: {', '.join(names)}" for reason, names in reasons.items()]


_NODES = (
    console.argument("nodes", nargs=-1, type=ObjectWords("nodes"), metavar="NODE..."),
    cluster_options,
    console.option("-l", "--selector", default="", metavar="LABELS", help="The nodes with these labels."),
    dry_run_option(),
)


def _of_nodes(command: Any) -> Any:
    for option in reversed(_NODES):
        command = option(command)
    return command


@console.command("cordon", cls=Verb)
@_of_nodes
def cordon(nodes: tuple[str, ...], **options: Any) -> int:
    """Mark nodes as unschedulable: no new pods are bound to them."""
    return answered(options, lambda cluster: _cordon(cluster, nodes, True, options))


@console.command("uncordon", cls=Verb)
@_of_nodes
def uncordon(nodes: tuple[str, ...], **options: Any) -> int:
    """Mark nodes as schedulable."""
    return answered(options, lambda cluster: _cordon(cluster, nodes, False, options))


@console.command("drain", cls=Verb)
@_of_nodes
@console.option("--ignore-daemonsets", is_flag=True, help="Leave the pods of DaemonSets on the node.")
@console.option("--delete-emptydir-data", is_flag=True, help="Evict pods with emptyDir volumes; their data is lost.")
@console.option("--force", is_flag=True, help="Evict pods without a controller; they are not created again.")
@console.option("--grace-period", type=int, default=-1, metavar="SECONDS", help="[default: that of each pod]")
@console.option(
    "--timeout", "timeout_s", type=DurationParam(), default="0s", help="Give up after this. [default: never]"
)
@console.option("--pod-selector", default="", metavar="LABELS", help="Only pods with these labels.")
@console.option("--disable-eviction", is_flag=True, help="Delete the pods, without regard to disruption budgets.")
def drain(nodes: tuple[str, ...], **options: Any) -> int:
    """Mark nodes as unschedulable and evict their pods, as before maintenance.

    Exit code 1 if pods remain: those that need --ignore-daemonsets, --delete-emptydir-data or --force, and those that
    a disruption budget protected until --timeout.

    \b
    Examples:
      plimsoll drain n1 --ignore-daemonsets --delete-emptydir-data
      plimsoll drain n1 --force --grace-period=10 --timeout=5m
      plimsoll drain n1 --dry-run=client
    """
    return answered(options, lambda cluster: _drain(cluster, nodes, options))


async def _nodes(cluster: ClusterClient, names: tuple[str, ...], options: dict[str, Any]) -> list[JsonObject]:
    from plimsoll.kube.request import NODES, get, listing

    if bool(names) == bool(options["selector"]):
        raise console.UsageError("specify NODE... or -l LABELS")
    if options["selector"]:
        return [*((await cluster.ask(listing(NODES, labels=options["selector"]))).get("items") or ())]
    plain = [name.removeprefix("node/").removeprefix("nodes/") for name in names]
    return [await cluster.ask(get(NODES, name)) for name in plain]


async def _cordon(cluster: ClusterClient, names: tuple[str, ...], on: bool, options: dict[str, Any]) -> int:
    for node in await _nodes(cluster, names, options):
        await _cordoned(cluster, node, on, options["dry_run"])
    return 0


async def _cordoned(cluster: ClusterClient, node: JsonObject, on: bool, dry_run: DryRun) -> None:
    from plimsoll.kube.request import NODES, patch, with_query

    name, word = str(node["metadata"]["name"]), "cordoned" if on else "uncordoned"
    already = "already " if bool((node.get("spec") or {}).get("unschedulable")) == on else ""
    if not already and dry_run != "client":
        request = patch(NODES, name, {"spec": {"unschedulable": on or None}})
        path = with_query(request.path, [*dry_run_query(dry_run).items()])
        await cluster.ask(msgspec.structs.replace(request, path=path))
    console.echo(f"node/{inert(name)} {already}{word}{dry_run_words(dry_run)}")


async def _drain(cluster: ClusterClient, names: tuple[str, ...], options: dict[str, Any]) -> int:
    from plimsoll.kube.request import ApiError

    nodes = await _nodes(cluster, names, options)
    for node in nodes:
        await _cordoned(cluster, node, True, options["dry_run"])
    failed: dict[str, str] = {}
    for node in nodes:
        name = str(node["metadata"]["name"])
        try:
            await _emptied(cluster, name, options)
        except (FailedError, ApiError) as error:
            failed[name] = server_text(error) if isinstance(error, ApiError) else str(error)
            console.echo(
                f'error: unable to drain node "{inert(name)}" due to error: {inert(failed[name])}, '
                "continuing command...",
                err=True,
            )
        else:
            console.echo(f"node/{inert(name)} drained{dry_run_words(options['dry_run'])}")
    if failed:
        console.echo("There are pending nodes to be drained:", err=True)
        for name in failed:
            console.echo(f" {inert(name)}", err=True)
        raise FailedError("\n".join(failed.values()))
    return 0


async def _emptied(cluster: ClusterClient, node: str, options: dict[str, Any]) -> None:
    from plimsoll.kube.request import PODS, listing

    found = await cluster.ask(listing(PODS, fields=f"spec.nodeName={node}", labels=options["pod_selector"]))
    rules = DrainRules(options["ignore_daemonsets"], options["delete_emptydir_data"], options["force"])
    plan = drain_plan(found.get("items") or (), rules)
    if plan.errors:
        raise FailedError(_aggregated([f"cannot delete {each}" for each in listed_reasons(plan.errors)]))
    if plan.warnings:
        console.echo(f"Warning: {inert('; '.join(listed_reasons(plan.warnings)))}", err=True)
    timeout_s = options["timeout_s"]
    left = {_name(pod): pod for pod in plan.pods}
    tasks = [asyncio.create_task(_evicted(cluster, pod, left, options)) for pod in plan.pods]
    try:
        async with asyncio.timeout(timeout_s or None):
            results = await asyncio.gather(*tasks, return_exceptions=True)
    except TimeoutError:
        reasons = [f"error when evicting {pod}: global timeout reached: {timeout_s:g}s" for pod in left]
        message = _aggregated(reasons)
        console.echo(
            f'There are pending pods in node "{inert(node)}" when an error occurred: {inert(message)}', err=True
        )
        for pod in left.values():
            console.echo(f"pod/{inert(str(pod['metadata']['name']))}", err=True)
        raise FailedError(message) from None
    errors = [each for each in results if isinstance(each, BaseException)]
    for error in errors:
        if not isinstance(error, FailedError):
            raise error
    if errors:
        raise FailedError(_aggregated(list(map(str, errors))))


def _aggregated(errors: list[str]) -> str:
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _name(pod: JsonObject) -> str:
    return f'pods/"{pod["metadata"]["name"]}" -n "{pod["metadata"].get("namespace")}"'


async def _evicted(
    cluster: ClusterClient, pod: JsonObject, left: dict[str, JsonObject], options: dict[str, Any]
) -> None:
    """Evict one pod and wait until it is gone."""
    from plimsoll.kube.request import PODS, ApiError

    metadata, dry_run = pod["metadata"], options["dry_run"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    word = "deleting" if options["disable_eviction"] else "evicting"
    while True:
        console.echo(f"{word} pod {inert(namespace)}/{inert(name)}{dry_run_words(dry_run)}")
        if dry_run == "client":
            return
        try:
            await cluster.ask(_request(pod, options))
        except ApiError as error:
            if error.is_gone:
                break
            if error.code != 429 or dry_run == "server":
                raise FailedError(f"error when {word} {_name(pod)}: {error.message}") from error
            console.echo(
                f"error when evicting {inert(_name(pod))} (will retry after {RETRY_S:g}s): {inert(error.message)}",
                err=True,
            )
            await asyncio.sleep(RETRY_S)
            continue
        if dry_run == "server":
            return
        await gone(cluster, PODS, namespace, name, str(metadata.get("uid")))
        break
    left.pop(_name(pod), None)
    console.echo(f"pod/{inert(name)} {'deleted' if options['disable_eviction'] else 'evicted'}")


def _request(pod: JsonObject, options: dict[str, Any]) -> Any:
    from plimsoll.kube.request import PODS, create, delete, with_query

    name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"].get("namespace") or "")
    grace_s = options["grace_period"] if options["grace_period"] >= 0 else None
    if options["disable_eviction"]:
        request = delete(PODS, name, namespace, grace_s=grace_s)
        return msgspec.structs.replace(
            request, path=with_query(request.path, [*dry_run_query(options["dry_run"]).items()])
        )
    settings: dict[str, Any] = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    if options["dry_run"] == "server":
        settings["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": settings,
    }
    return create(PODS, body, namespace, name, "eviction")
