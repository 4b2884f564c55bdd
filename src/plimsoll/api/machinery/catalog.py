"""Every resource that one server serves: those of the table, and those of its CustomResourceDefinitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from plimsoll.api.machinery.kinds import (
    ALL_VERBS,
    GROUPS,
    RESOURCES,
    ApiResource,
    CustomResource,
    ScalePaths,
    Subresource,
)
from plimsoll.codec.schema.custom import CustomKind
from plimsoll.codec.schema.releases import kind_since
from plimsoll.rules.admission.custom_resources.definitions import is_served, schema_of
from plimsoll.rules.admission.custom_resources.extensions import PRESERVE
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import LAST_MINOR

_EDIT = ("get", "patch", "update")
_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")


_HOST_NETWORK, _HOST_NETWORK_SINCE = "spec.hostNetwork", 28


@cache
def _in_release(release: int) -> tuple[ApiResource, ...]:
    """The kinds of 1.N, with the field selectors that it has."""
    served = (each for each in RESOURCES if kind_since(each.group, each.version, each.plural) <= release)
    return tuple(map(_without_host_network, served)) if release < _HOST_NETWORK_SINCE else tuple(served)


def _without_host_network(resource: ApiResource) -> ApiResource:
    if _HOST_NETWORK not in resource.fields:
        return resource
    fields = tuple(field for field in resource.fields if field != _HOST_NETWORK)
    return msgspec.structs.replace(resource, fields=fields)


class Catalog:
    """`custom` is replaced as a whole when a definition changes. `release`: the N of 1.N, whose kinds are served."""

    def __init__(self, release: int = LAST_MINOR) -> None:
        self.custom: tuple[ApiResource, ...] = ()
        self._built_in = _in_release(release)
        self._own = {(each.group, each.version, each.plural): each for each in self._built_in}
        self._groups = GROUPS
        self._by_path: dict[tuple[str, str, str], ApiResource] = {}

    def set_custom(self, resources: Iterable[ApiResource]) -> None:
        self.custom = tuple(resources)
        self._by_path = {(each.group, each.version, each.plural): each for each in self.custom}
        self._groups = GROUPS | {(each.group, each.version) for each in self.custom}

    def has_group(self, group: str, version: str) -> bool:
        return (group, version) in self._groups

    def at(self, group: str, version: str, plural: str) -> ApiResource | None:
        place = (group, version, plural)
        return self._own.get(place) or self._by_path.get(place)

    def resources(self) -> tuple[ApiResource, ...]:
        return (*self._built_in, *self.custom) if self.custom else self._built_in

    def stored(self) -> Iterator[ApiResource]:
        """One resource for each kind of stored objects."""
        seen = set()
        for resource in self.resources():
            if resource.storage and resource.storage not in seen:
                seen.add(resource.storage)
                yield resource

    def group_versions(self) -> list[tuple[str, str, tuple[ApiResource, ...]]]:
        """(group, version, resources), core first, then by group name; the preferred version of a group first."""
        every = self.resources()
        return [
            (group, version, tuple(row for row in every if (row.group, row.version) == (group, version)))
            for group, version in sorted(self._groups, key=lambda each: (each[0], version_rank(each[1])))
        ]


BUILT_IN = Catalog()


def version_rank(version: str) -> tuple[int, int, int, str]:
    """v10 before v2 before v1 before v2beta1 before v1alpha1, then anything else by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), version)


def custom_resources(definition: JsonObject) -> list[ApiResource]:
    """The served versions of an established definition."""
    if not is_served(definition):
        return []
    spec, names = definition["spec"], (definition.get("status") or {}).get("acceptedNames") or {}
    is_deleted = bool(definition["metadata"].get("deletionTimestamp"))
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        schema = schema_of(version) or {"type": "object", PRESERVE: True}
        subresources = version.get("subresources") or {}
        kind = CustomKind(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec["scope"] == "Namespaced",
            "",
            schema=schema,
            has_status=subresources.get("status") is not None,
        )
        scale = subresources.get("scale")
        custom = CustomResource(
            kind,
            names.get("singular") or names["kind"].lower(),
            names.get("listKind") or f"{names['kind']}List",
            tuple(version.get("additionalPrinterColumns") or ()),
            None if scale is None else _scale_paths(scale),
            _deprecation(spec["group"], version, names["kind"]),
            definition["metadata"]["uid"],
        )
        served = []
        if scale is not None:
            served.append(Subresource("scale", "Scale", _EDIT, "autoscaling", "v1"))
        if kind.has_status:
            served.append(Subresource("status", names["kind"], _EDIT))
        verbs = tuple(verb for verb in ALL_VERBS if verb != "create") if is_deleted else ALL_VERBS
        found.append(
            ApiResource(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                tuple(names.get("shortNames") or ()),
                tuple(names.get("categories") or ()),
                namespaced=kind.namespaced,
                verbs=verbs,
                subresources=tuple(served),
                has_generation=True,
                fields=tuple(each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()),
                custom=custom,
            )
        )
    return found


def _scale_paths(scale: JsonObject) -> ScalePaths:
    paths = (scale.get(name) or "" for name in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath"))
    return ScalePaths(*(path.removeprefix(".") for path in paths))


def _deprecation(group: str, version: JsonObject, kind: str) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"
