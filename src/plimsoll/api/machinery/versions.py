"""Kinds that are served in two versions and stored in one: events as core/v1 (05 B8), autoscalers as autoscaling/v2."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.codec import autoscaler_versions
from plimsoll.rules.model.json_object import JsonObject

# core/v1 name, events.k8s.io/v1 name
_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_TO_NEW = dict(_RENAMED)
_TO_CORE = {new: core for core, new in _RENAMED}

# What core/v1 prints even if it is not set.
ALWAYS_PRINTED: JsonObject = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}


def _as_new(event: JsonObject) -> JsonObject:
    """A stored event as events.k8s.io/v1, without kind and apiVersion.

    An unknown field with a name of the other group is left out, both ways: its value has not been validated.
    """
    return {_TO_NEW.get(key, key): value for key, value in event.items() if key not in _TO_CORE}


def _as_core(event: JsonObject) -> JsonObject:
    """A body in events.k8s.io/v1 as it is stored."""
    return {_TO_CORE.get(key, key): value for key, value in event.items() if key not in _TO_NEW}


def completed(event: JsonObject) -> JsonObject:
    return {**event, **{key: event.get(key) or empty for key, empty in ALWAYS_PRINTED.items()}}


_Change = Callable[[JsonObject], JsonObject]
# (group, version) of the form that is not stored: into it, and back.
_FORMS: dict[tuple[str, str], tuple[_Change, _Change]] = {
    ("events.k8s.io", "v1"): (_as_new, _as_core),
    ("autoscaling", "v1"): (autoscaler_versions.as_v1, autoscaler_versions.as_stored),
}


def is_stored_form(resource: ApiResource) -> bool:
    return (resource.group, resource.version) not in _FORMS


def in_its_version(resource: ApiResource, stored: JsonObject) -> JsonObject:
    """A stored object, without kind and apiVersion, as this resource serves it."""
    return stored if is_stored_form(resource) else _FORMS[resource.group, resource.version][0](stored)


def to_store(resource: ApiResource, document: JsonObject) -> JsonObject:
    """An object of this resource as it is stored."""
    return document if is_stored_form(resource) else _FORMS[resource.group, resource.version][1](document)
