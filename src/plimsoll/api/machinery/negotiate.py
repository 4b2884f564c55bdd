"""Content negotiation (05 B2): which form of a response a client accepts, and which form its body has.

Responses are JSON, or YAML on request; Tables and PartialObjectMetadata are conversions (`as=`) of JSON. Protobuf is
accepted in bodies but never sent, so such a clause of an Accept header is skipped and the next one applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from plimsoll.api.machinery.status import StatusError, not_acceptable

View = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"

_VIEWS: tuple[View, ...] = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_AGGREGATED = ("APIGroupDiscoveryList", "apidiscovery.k8s.io")
_OFFERED = f"{JSON}, {YAML}, {PROTOBUF}"
_NONE_OFFERED = f"406: Not Acceptable\n\nAvailable representations: {_OFFERED}"
_ONLY_OFFERED = f"only the following media types are accepted: {_OFFERED}"
_CLAUSES = 64  # more than any client sends


class MediaType(msgspec.Struct, frozen=True):
    """The form of a response: `view` and its API version, and JSON or YAML."""

    view: View = ""
    view_version: str = "v1"
    is_yaml: bool = False

    @property
    def media_type(self) -> str:
        return YAML if self.is_yaml else JSON


PLAIN = MediaType()


class _Clause(msgspec.Struct, frozen=True):
    type: str
    parameters: dict[str, str]
    quality: float


@lru_cache(256)
def _clauses(accept: str) -> tuple[_Clause, ...]:
    clauses = []
    for text in accept.split(",")[:_CLAUSES]:
        type_, *rest = (part.strip() for part in text.split(";"))
        if not type_:
            continue
        parameters = {}
        for parameter in rest:
            key, _, value = parameter.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        clauses.append(_Clause(type_.lower(), parameters, quality))
    return tuple(sorted(clauses, key=lambda clause: -clause.quality))


@lru_cache(256)
def accepted_form(accept: str, *, is_list: bool = False, has_views: bool = True) -> MediaType:
    """The first clause that the server supports; else raises 406. `is_list`: for lists and watches. Reviews and other
    requests that are answered and not stored have no views."""
    clauses = _clauses(accept)
    if not clauses:
        return PLAIN
    unknown_view = False
    for clause in clauses:
        is_yaml = clause.type == YAML
        if not is_yaml and clause.type not in (JSON, "*/*", "application/*"):
            continue
        view_name = clause.parameters.get("as", "")
        if not view_name:
            return MediaType(is_yaml=is_yaml)
        version = clause.parameters.get("v", "")
        known = view_name in _VIEWS and clause.parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1")
        fits = view_name == "Table" or (view_name == "PartialObjectMetadataList") == is_list
        if known and fits and has_views:
            view: View = next(known for known in _VIEWS if known == view_name)
            return MediaType(view, version, is_yaml)
        unknown_view = True
    raise _refusal(clauses, unknown_view)


def wants_discovery(accept: str, offered: Sequence[str] = ("v2",)) -> str:
    """The version of aggregated discovery, empty for the legacy documents; raises 406 where neither is accepted."""
    clauses = _clauses(accept)
    if not clauses:
        return ""
    for clause in clauses:
        if clause.type not in (JSON, "*/*", "application/*"):
            continue
        view_name = clause.parameters.get("as", "")
        if not view_name:
            return ""
        version = clause.parameters.get("v", "")
        if (view_name, clause.parameters.get("g")) == _AGGREGATED and version in offered:
            return version
    raise _refusal(clauses, unknown_view=False)


def _refusal(clauses: tuple[_Clause, ...], unknown_view: bool) -> StatusError:
    if all(clause.type == PROTOBUF for clause in clauses):
        return not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}")
    return not_acceptable(_ONLY_OFFERED if unknown_view else _NONE_OFFERED)


@lru_cache(256)
def media_type(content_type: str) -> str:
    """A Content-Type without its parameters."""
    return content_type.partition(";")[0].strip().lower()
