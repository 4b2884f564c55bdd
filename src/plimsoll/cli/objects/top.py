"""`plimsoll top`: CPU and memory that nodes and pods use, from metrics.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered
from plimsoll.cli.failure import FailedError
from plimsoll.cli.node_info import METRICS
from plimsoll.cli.printers import Columns, shown
from plimsoll.cli.terminal import inert
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.node.node_object import SIMULATED
from plimsoll.rules.quantity import QUANTITIES, ZERO, Quantity

SUM_LINE = "________"
MIB = 1 << 20
KINDS = {"pods": "pods", "pod": "pods", "po": "pods", "nodes": "nodes", "node": "nodes", "no": "nodes"}
NOT_OF = {
    "pods": ("show_capacity",),
    "nodes": ("all_namespaces", "containers", "field_selector", "with_sum"),
}


class Usage(msgspec.Struct, frozen=True):
    cpu: Quantity = ZERO
    memory: Quantity = ZERO

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.memory + other.memory)

    def cells(self) -> list[str]:
        return [f"{self.cpu.milli}m", f"{self.memory.value // MIB}Mi"]


def show_top(kind: str, name: str, options: dict[str, Any]) -> int:
    """`plimsoll top pods|nodes`, as `kubectl top` prints it."""
    show = KINDS[kind]
    for option in NOT_OF[show]:
        if options[option]:
            raise console.UsageError(
                f"--{option.removeprefix('with_').replace('_', '-')} is not an option of top {kind}"
            )
    work = _pods if show == "pods" else _nodes
    return answered(options, lambda cluster: work(cluster, name.rpartition("/")[2], options))


async def _pods(cluster: ClusterClient, name: str, options: dict[str, Any]) -> int:
    everywhere = options["all_namespaces"]
    if everywhere and name:
        raise console.UsageError("a named pod has one namespace: use -n, not -A")
    path = f"{METRICS}/pods" if everywhere else f"{METRICS}/namespaces/{quote(cluster.namespace, safe='')}/pods"
    found = await _metrics(cluster, path, name, options)
    if options["output"]:
        console.echo(shown(found, options["output"]))
        return 0
    pods = _items(found)
    if not pods:
        where = "" if everywhere else f" in {inert(cluster.namespace)} namespace."
        console.echo(f"No resources found{where}", err=True)
        return 0
    _print(_pod_lines(_sorted(pods, _pod_usage, options["sort_by"]), options))
    await _note_unenforced(cluster)
    return 0


def _pod_lines(pods: Sequence[JsonObject], options: dict[str, Any]) -> Iterator[list[str]]:
    everywhere, containers = options["all_namespaces"], options["containers"]
    names = ["NAMESPACE"] * everywhere + (["POD", "NAME"] if containers else ["NAME"])
    if not options["no_headers"]:
        yield [*names, "CPU(cores)", "MEMORY(bytes)"]
    for pod in pods:
        metadata = pod["metadata"]
        first = [inert(str(metadata.get("namespace")))] * everywhere + [inert(str(metadata["name"]))]
        if containers:
            for each in _sorted(pod.get("containers") or (), _usage, options["sort_by"]):
                yield [*first, inert(str(each.get("name"))), *_usage(each).cells()]
        else:
            yield [*first, *_pod_usage(pod).cells()]
    if options["with_sum"]:
        blank = [""] * len(names)
        yield [*blank, SUM_LINE, SUM_LINE]
        yield [*blank, *sum(map(_pod_usage, pods), Usage()).cells()]


async def _nodes(cluster: ClusterClient, name: str, options: dict[str, Any]) -> int:
    from plimsoll.kube.request import NODES, get, listing

    found = await _metrics(cluster, f"{METRICS}/nodes", name, options)
    if options["output"]:
        console.echo(shown(found, options["output"]))
        return 0
    known = await cluster.ask(get(NODES, name) if name else listing(NODES, labels=options["selector"]))
    usage = {str(each["metadata"]["name"]): each for each in _items(found)}
    nodes = {str(each["metadata"]["name"]): each for each in _items(known)}
    cells = [] if options["no_headers"] else [["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]]
    whole = "capacity" if options["show_capacity"] else "allocatable"
    for each in _sorted(list(usage.values()), _usage, options["sort_by"]):
        node = str(each["metadata"]["name"])
        used, of = _usage(each), (nodes.get(node) or {}).get("status", {}).get(whole) or {}
        cpu, memory = used.cells()
        shares = [_percent(used.cpu, of.get("cpu")), _percent(used.memory, of.get("memory"))]
        cells.append([inert(node), cpu, shares[0], memory, shares[1]])
    cells += [[inert(node), *["<unknown>"] * 4] for node in sorted(set(nodes) - set(usage))]
    _print(cells)
    _print_unenforced(nodes.values())
    return 0


async def _note_unenforced(cluster: ClusterClient) -> None:
    from plimsoll.kube.request import NODES, ApiError, listing

    try:
        _print_unenforced(_items(await cluster.ask(listing(NODES))))
    except ApiError as error:
        if error.code != 403:  # a user may be allowed to read pods only
            raise


def _print_unenforced(nodes: Iterable[JsonObject]) -> None:
    names = [
        inert(str(each["metadata"]["name"]))
        for each in nodes
        if (each["metadata"].get("annotations") or {}).get(SIMULATED)
    ]
    if names:
        console.echo(f"limits are not enforced on {', '.join(names)}: no cgroups can be written there", err=True)


async def _metrics(cluster: ClusterClient, path: str, name: str, options: dict[str, Any]) -> JsonObject:
    from plimsoll.kube.request import ApiError, Request, with_query

    selectors = [("labelSelector", options["selector"]), ("fieldSelector", options.get("field_selector", ""))]
    if name:
        path = f"{path}/{quote(name, safe='')}"
    try:
        return await cluster.ask(Request("GET", with_query(path, [pair for pair in selectors if pair[1]])))
    except ApiError as error:
        if error.code == 503 or (error.is_gone and not name):
            raise FailedError("error: Metrics API not available") from error
        raise


def _items(document: JsonObject) -> list[JsonObject]:
    items = document.get("items")
    return items if isinstance(items, list) else [document] if document.get("metadata", {}).get("name") else []


def _usage(document: JsonObject) -> Usage:
    used = document.get("usage") or {}
    return Usage(_amount(used.get("cpu")), _amount(used.get("memory")))


def _pod_usage(pod: JsonObject) -> Usage:
    return sum(map(_usage, pod.get("containers") or ()), Usage())


def _amount(text: object) -> Quantity:
    try:
        return QUANTITIES[str(text)]
    except InvalidQuantityError:
        return ZERO


def _percent(used: Quantity, whole: object) -> str:
    of = _amount(whole)
    return f"{int(used.nanos * 100 / of.nanos)}%" if of else "<unknown>"


def _sorted(documents: Sequence[JsonObject], usage: Any, sort_by: str | None) -> list[JsonObject]:
    """By name; or the largest first."""
    named = sorted(documents, key=_order)
    return named if sort_by is None else sorted(named, key=lambda each: -getattr(usage(each), sort_by).nanos)


def _order(document: JsonObject) -> tuple[str, str]:
    metadata = document.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or document.get("name") or "")


def _print(cells: Any) -> None:
    for line in Columns().lines(list(cells)):
        console.echo(line)
