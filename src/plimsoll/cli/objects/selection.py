"""Which objects the arguments of a verb refer to: `KIND NAME…`, `KIND/NAME…`, or a kind with selectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.cli.manifests import Manifest
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
            console.option("-l", "--selector", default="", metavar="LABELS", help="app=web,tier!=cache"),
            console.option("--field-selector", default="", metavar="FIELDS", help="spec.nodeName=n1"),
            console.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces."),
        ]
        if every:
            options.append(console.option("--all", "every", is_flag=True, help="All objects of the kind."))
        for option in reversed(options):
            command = option(command)
        return command

    return add


async def named(cluster: ClusterClient, words: Sequence[str], options: dict[str, Any]) -> list[ObjectName]:
    """The objects; without a name, the kinds. Each has the namespace to search, empty for all."""
    from plimsoll.kube.discovery import kinds_meant

    if options.get("files"):
        return await _in_files(cluster, words, options)
    if not words:
        raise console.UsageError("specify a kind: `pods`, `pod NAME` or `pod/NAME`")
    if any("/" in word for word in words):
        pairs = [word.partition("/") for word in words]
        if any(not kind or not name or "/" in name for kind, _, name in pairs):
            raise console.UsageError("use KIND/NAME for every object, or one KIND followed by names")
        meant = [(await cluster.kind(kind), name) for kind, _, name in pairs]
    else:
        kinds = kinds_meant(await cluster.kinds(), words[0])
        if len(words) > 1 and len(kinds) > 1:
            raise console.UsageError("names need exactly one kind: `pod web api`")
        meant = [(kind, name) for kind in kinds for name in (words[1:] or ("",))]
    everywhere = options["all_namespaces"]
    if everywhere and any(name for _, name in meant):
        raise console.UsageError("a named object has one namespace: use -n, not -A")
    return [
        ObjectName(kind, cluster.namespace if kind.namespaced and not everywhere else "", name) for kind, name in meant
    ]


async def _in_files(cluster: ClusterClient, words: Sequence[str], options: dict[str, Any]) -> list[ObjectName]:
    from plimsoll.cli.objects.files import read_files

    if words:
        raise console.UsageError("specify objects or -f FILE, not both")
    return await in_manifests(cluster, read_files(options["files"], options["recursive"]))


async def in_manifests(cluster: ClusterClient, manifests: Sequence[Manifest]) -> list[ObjectName]:
    from plimsoll.kube.discovery import kind_of_object

    kinds = await cluster.kinds()
    found = [(kind_of_object(kinds, each.api_version, each.kind), each) for each in manifests]
    return [
        ObjectName(kind, (each.namespace or cluster.namespace) if kind.namespaced else "", each.name)
        for kind, each in found
    ]


async def selected(cluster: ClusterClient, words: Sequence[str], options: dict[str, Any]) -> list[ObjectName]:
    """The named objects, or those that the selectors of `selector_options` match; existing or not."""
    found: list[ObjectName] = []
    for each in await named(cluster, words, options):
        if each.name:
            found.append(each)
            continue
        if not (options["selector"] or options["field_selector"] or options.get("every")):
            raise console.UsageError(f"specify names of {each.kind.plural}, -l LABELS or --all")
        found += [name_of(each.kind, document) for document in await listed(cluster, each, options)]
    return found


async def listed(cluster: ClusterClient, what: ObjectName, options: dict[str, Any]) -> list[JsonObject]:
    """All objects of the kind, in one namespace or all."""
    from plimsoll.kube.request import listing

    fields, labels = options["field_selector"], options["selector"]
    request = listing(what.kind.resource, namespace=what.namespace, fields=fields, labels=labels)
    return [*((await cluster.ask(request)).get("items") or ())]


def name_of(kind: DiscoveredKind, document: JsonObject) -> ObjectName:
    metadata = document["metadata"]
    return ObjectName(kind, str(metadata.get("namespace") or ""), str(metadata["name"]))
