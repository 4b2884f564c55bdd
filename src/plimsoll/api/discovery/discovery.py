"""The discovery documents, in two forms (05 B3, 06 E1): aggregated (two documents) and legacy.

Both are encoded once at startup, and again when the custom kinds change.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence

import msgspec

from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.kinds import ApiResource, Subresource
from plimsoll.rules.model.json_object import JsonObject


class DiscoveryPage(msgspec.Struct, frozen=True):
    body: bytes
    etag: str


class Discovery(msgspec.Struct, frozen=True):
    """path → page. Legacy pages are complete; `aggregated` has only `/api` and `/apis`, by version."""

    legacy: dict[str, DiscoveryPage]
    aggregated: dict[str, dict[str, DiscoveryPage]]


def discovery(
    server_address: str, absent: Collection[str] = (), catalog: Catalog = BUILT_IN, offered: Sequence[str] = ("v2",)
) -> Discovery:
    """`absent`: subresources that this server does not serve, as `pods/resize`; `offered`: versions of the aggregated
    form."""
    versions = [
        (group, version, tuple(_served(resource, absent) for resource in resources))
        for group, version, resources in catalog.group_versions()
    ]
    by_group: dict[str, list[tuple[str, tuple[ApiResource, ...]]]] = {}
    for group, version, resources in versions:
        if group:
            by_group.setdefault(group, []).append((version, resources))
    core = [_version(version, resources) for group, version, resources in versions if not group]
    items: dict[str, list[JsonObject]] = {
        "/api": [{"metadata": {}, "versions": core}],
        "/apis": [
            {"metadata": {"name": name}, "versions": [_version(version, resources) for version, resources in own]}
            for name, own in by_group.items()
        ],
    }
    aggregated = {
        version: {path: _page(_group_list(each, version)) for path, each in items.items()} for version in offered
    }
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    groups = {name: _group(name, [version for version, _ in own]) for name, own in by_group.items()}
    legacy = {
        "/api": _page({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}),
        "/apis": _page({"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}),
    }
    for group, version, resources in versions:
        listed: JsonObject = {"kind": "APIResourceList"}
        if group:
            listed["apiVersion"] = "v1"
        listed["groupVersion"] = f"{group}/{version}" if group else version
        listed["resources"] = [entry for resource in resources for entry in _legacy_entries(resource)]
        legacy[f"/apis/{group}/{version}" if group else f"/api/{version}"] = _page(listed)
        if group:
            legacy[f"/apis/{group}"] = _page({"kind": "APIGroup", "apiVersion": "v1", **groups[group]})
    return Discovery(legacy, aggregated)


def _served(resource: ApiResource, absent: Collection[str]) -> ApiResource:
    subresources = tuple(
        subresource for subresource in resource.subresources if f"{resource.plural}/{subresource.name}" not in absent
    )
    return msgspec.structs.replace(resource, subresources=subresources)


def _page(document: JsonObject) -> DiscoveryPage:
    body = line(document)
    return DiscoveryPage(body, hashlib.sha256(body).hexdigest().upper())


# --- aggregated ---


def _group_list(items: list[JsonObject], version: str) -> JsonObject:
    about = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}"}
    return {**about, "metadata": {}, "items": items}


def _version(version: str, resources: tuple[ApiResource, ...]) -> JsonObject:
    return {"version": version, "resources": list(map(_entry, resources)), "freshness": "Current"}


def _entry(resource: ApiResource) -> JsonObject:
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        **_verbs_and_names(resource),
    }
    if resource.subresources:
        entry["subresources"] = [_subentry(subresource) for subresource in resource.subresources]
    return entry


def _verbs_and_names(resource: ApiResource) -> JsonObject:
    found = {"verbs": resource.verbs, "shortNames": resource.short_names, "categories": resource.categories}
    return {name: list(values) for name, values in found.items() if values or name == "verbs"}


def _subentry(subresource: Subresource) -> JsonObject:
    kind = {"group": subresource.group, "version": subresource.version, "kind": subresource.kind}
    return {"subresource": subresource.name, "responseKind": kind, "verbs": list(subresource.verbs)}


# --- legacy ---


def _group(group: str, versions: list[str]) -> JsonObject:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _legacy_entries(resource: ApiResource) -> list[JsonObject]:
    main: JsonObject = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        **_verbs_and_names(resource),
    }
    if resource.storage:
        main["storageVersionHash"] = _storage_hash(resource)
    return [main, *(_legacy_subentry(resource, subresource) for subresource in resource.subresources)]


def _legacy_subentry(resource: ApiResource, subresource: Subresource) -> JsonObject:
    entry: JsonObject = {
        "name": f"{resource.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
    }
    if subresource.group:
        entry |= {"group": subresource.group, "version": subresource.version}
    return entry | {"kind": subresource.kind, "verbs": list(subresource.verbs)}


def _storage_hash(resource: ApiResource) -> str:
    digest = hashlib.sha256(f"{resource.group}/{resource.version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()
