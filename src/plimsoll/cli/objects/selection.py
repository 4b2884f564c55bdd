"""Which objects the arguments of a verb refer to: `KIND NAME…`, `KIND/NAME…`, or a kind with selectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from plimsoll.cli.client import ClusterClient
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind

Command = TypeVar("Command", bound=Callable[..., Any])


class ObjectName(msgspec.Struct, frozen=True):
    kind: DiscoveredKind
    namespace: str  # empty for a kind without namespaces
    name: str

    def __str__(self) -> str:
        return f"{self.kind.title}/{self.name}"

    @property
    def plural(self) -> str:
        """`pods/web`, as some messages of kubectl have it."""
        return f"{self.kind.plural}{f'.{self.kind.group}' if self.kind.group else ''}/{self.name}"


def selector_options(*, every: bool = True) -> Callable[[Command], Command]:
    """-l, --field-selector, -A and --all."""

    def add(command: Command) -> Command:
        options = [
            click.option("-l", "--selector", default="", metavar="LABELS", help="app=web,tier!=cache"),
            click.option("--field-selector", default="", metavar="FIELDS", help="spec.nodeName=n1"),
            click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces."),
        ]
        if every:
            options.append(click.option("--all", "every", is_flag=True, help="All objects of the kind."))
        for option in reversed(options):
            command = option(command)
        return command

    return add


async def named(cluster: ClusterClient, words: Sequence[str]) -> list[tuple[DiscoveredKind, str]]:
    """The kinds, each with a name if one object is named."""
    from plimsoll.kube.discovery import kinds_meant

    if not words:
        raise click.UsageError("specify a kind: `pods`, `pod NAME` or `pod/NAME`")
    if any("/" in word for word in words):
        pairs = [word.partition("/") for word in words]
        if any(not kind or not name or "/" in name for kind, _, name in pairs):
            raise click.UsageError("use KIND/NAME for every object, or one KIND followed by names")
        return [(await cluster.kind(kind), name) for kind, _, name in pairs]
    meant = kinds_meant(await cluster.kinds(), words[0])
    if len(words) > 1 and len(meant) > 1:
        raise click.UsageError("names need exactly one kind: `pod web api`")
    return [(kind, name) for kind in meant for name in (words[1:] or ("",))]


async def selected(cluster: ClusterClient, words: Sequence[str], options: dict[str, Any]) -> list[ObjectName]:
    """The named objects, or those that the selectors of `selector_options` match; existing or not."""
    found: list[ObjectName] = []
    for kind, name in await named(cluster, words):
        if name:
            if options["all_namespaces"]:
                raise click.UsageError("a named object has one namespace: use -n, not -A")
            found.append(ObjectName(kind, cluster.namespace if kind.namespaced else "", name))
            continue
        if not (options["selector"] or options["field_selector"] or options.get("every")):
            raise click.UsageError(f"specify names of {kind.plural}, -l LABELS or --all")
        found += [name_of(kind, each) for each in await listed(cluster, kind, options)]
    return found


async def listed(cluster: ClusterClient, kind: DiscoveredKind, options: dict[str, Any]) -> list[JsonObject]:
    from plimsoll.kube.request import listing

    request = listing(
        kind.resource,
        namespace=cluster.namespace if kind.namespaced and not options["all_namespaces"] else "",
        fields=options["field_selector"],
        labels=options["selector"],
    )
    return [*((await cluster.ask(request)).get("items") or ())]


def name_of(kind: DiscoveredKind, document: JsonObject) -> ObjectName:
    metadata = document["metadata"]
    return ObjectName(kind, str(metadata.get("namespace") or ""), str(metadata["name"]))
