"""Events are stored as core/v1 and served in two versions: core/v1 and events.k8s.io/v1 (05 B8)."""

from __future__ import annotations

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


def as_new(event: JsonObject) -> JsonObject:
    """A stored event as events.k8s.io/v1, without kind and apiVersion.

    An unknown field with a name of the other group is left out, both ways: its value has not been validated.
    """
    return {_TO_NEW.get(key, key): value for key, value in event.items() if key not in _TO_CORE}


def as_core(event: JsonObject) -> JsonObject:
    """A body in events.k8s.io/v1 as it is stored."""
    return {_TO_CORE.get(key, key): value for key, value in event.items() if key not in _TO_NEW}


def completed(event: JsonObject) -> JsonObject:
    return {**event, **{key: event.get(key) or empty for key, empty in ALWAYS_PRINTED.items()}}
