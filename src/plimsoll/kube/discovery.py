"""The kinds that a server has, from its discovery documents, and which of them a name refers to.

The aggregated form (two documents) is requested first. A server that knows only the older form answers with that, and
`further` then lists one request for each group version. Nothing here sends requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.kube.request import Request, ResourcePath
from plimsoll.rules.model.json_object import JsonObject

AGGREGATED = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList,application/json"
ROOTS = (Request("GET", "/api", accept=AGGREGATED), Request("GET", "/apis", accept=AGGREGATED))


class UnknownKindError(PlimsollError):
    """The server has no kind of this name; the message names similar ones, or all it has."""


class DiscoveredKind(msgspec.Struct, frozen=True):
    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def resource(self) -> ResourcePath:
        return ResourcePath(f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}", self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def title(self) -> str:
        """`pod`, `deployment.apps`: what comes before the slash in `pod/web`."""
        name = self.singular or self.kind.lower()
        return f"{name}.{self.group}" if self.group else name


def kinds_in(document: JsonObject) -> list[DiscoveredKind]:
    """From one response, aggregated or an APIResourceList; empty where it only lists groups (see `further`)."""
    if document.get("kind") == "APIGroupDiscoveryList":
        return [
            kind
            for group in _items(document, "items")
            for version in _items(group, "versions")[:1]  # the server's preferred one comes first
            for kind in _aggregated(str((group.get("metadata") or {}).get("name") or ""), version)
        ]
    if document.get("kind") == "APIResourceList":
        return _listed(document)
    return []


def further(document: JsonObject) -> list[Request]:
    """The requests that complete the discovery of an older server."""
    if document.get("kind") == "APIVersions":
        return [Request("GET", f"/api/{version}") for version in list(document.get("versions") or ())[:1]]
    if document.get("kind") == "APIGroupList":
        preferred = [group.get("preferredVersion") or {} for group in _items(document, "groups")]
        return [
            Request("GET", f"/apis/{version['groupVersion']}") for version in preferred if version.get("groupVersion")
        ]
    return []


def kind_named(kinds: Sequence[DiscoveredKind], word: str) -> DiscoveredKind:
    """By plural, singular, kind or short name, in any case, with or without `.group`; the core group first."""
    name, _, group = word.lower().partition(".")
    group = group.partition("/")[0]
    for kind in sorted(kinds, key=lambda kind: bool(kind.group)):
        names = (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)
        if name in names and (not group or group in (kind.group, f"{kind.version}.{kind.group}")):
            return kind
    raise UnknownKindError(f'the server doesn\'t have a resource type "{word}"; {_near(kinds, name)}')


def _near(kinds: Sequence[DiscoveredKind], word: str) -> str:
    from difflib import get_close_matches

    plurals = {name: kind.plural for kind in kinds for name in (kind.plural, kind.singular, kind.kind.lower())}
    near = list(dict.fromkeys(plurals[name] for name in get_close_matches(word, plurals)))
    return f"did you mean {' or '.join(near)}?" if near else f"it has: {', '.join(sorted(set(plurals.values())))}"


def kind_of_object(kinds: Iterable[DiscoveredKind], api_version: str, name: str) -> DiscoveredKind:
    """For a manifest: apiVersion and kind as they are written."""
    group, _, version = api_version.rpartition("/")
    for kind in kinds:
        if (kind.group, kind.kind) == (group, name):
            return msgspec.structs.replace(kind, version=version)
    raise UnknownKindError(f"the server doesn't have a kind {name!r} in {api_version!r}")


def kinds_meant(kinds: Sequence[DiscoveredKind], words: str) -> list[DiscoveredKind]:
    """`pods,nodes`, or a category such as `all`."""
    meant: list[DiscoveredKind] = []
    for word in filter(None, words.split(",")):
        category = [kind for kind in kinds if word.lower() in kind.categories]
        meant += category or [kind_named(kinds, word)]
    return list(dict.fromkeys(meant))


def _aggregated(group: str, version: JsonObject) -> list[DiscoveredKind]:
    return [
        DiscoveredKind(
            group,
            str(version.get("version")),
            str(resource.get("resource")),
            str(resource.get("singularResource") or ""),
            str((resource.get("responseKind") or {}).get("kind") or ""),
            resource.get("scope") == "Namespaced",
            tuple(resource.get("verbs") or ()),
            tuple(resource.get("shortNames") or ()),
            tuple(resource.get("categories") or ()),
            tuple(str(sub.get("subresource")) for sub in _items(resource, "subresources")),
        )
        for resource in _items(version, "resources")
    ]


def _listed(document: JsonObject) -> list[DiscoveredKind]:
    group, _, version = str(document.get("groupVersion") or "").rpartition("/")
    entries = _items(document, "resources")
    return [
        DiscoveredKind(
            group,
            version,
            str(entry.get("name")),
            str(entry.get("singularName") or ""),
            str(entry.get("kind")),
            bool(entry.get("namespaced")),
            tuple(entry.get("verbs") or ()),
            tuple(entry.get("shortNames") or ()),
            tuple(entry.get("categories") or ()),
            tuple(
                str(sub["name"]).partition("/")[2]
                for sub in entries
                if str(sub["name"]).startswith(f"{entry['name']}/")
            ),
        )
        for entry in entries
        if "/" not in str(entry.get("name"))
    ]


def _items(document: JsonObject, name: str) -> list[JsonObject]:
    listed = document.get(name)
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
