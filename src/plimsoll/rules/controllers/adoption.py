"""Adoption and release: an owner takes matching objects that have no controller, and gives up those that do not match.

Only an owner that is not being deleted adopts, and only objects that are not being deleted. An owner that is being
deleted still releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import LabelSelector, SelectorTerm
from plimsoll.rules.scheduling.selectors import matches_selector


class Claims(msgspec.Struct, frozen=True):
    """Of the objects that an owner might have: those it keeps, and what changes."""

    owned: tuple[JsonObject, ...] = ()
    adopt: tuple[JsonObject, ...] = ()
    release: tuple[JsonObject, ...] = ()


def selector_of(owner: Mapping[str, Any]) -> LabelSelector:
    """A ReplicationController's selector is a plain map of labels."""
    return selector_in((owner.get("spec") or {}).get("selector") or {})


def selector_in(selector: JsonObject) -> LabelSelector:
    if all(isinstance(value, str) for value in selector.values()):
        return LabelSelector(selector)
    terms = tuple(msgspec.convert(term, SelectorTerm) for term in selector.get("matchExpressions") or ())
    return LabelSelector(selector.get("matchLabels"), terms)


def claims(owner: Mapping[str, Any], candidates: Iterable[JsonObject]) -> Claims:
    """`candidates`: what the owner controls, and what has no controller."""
    uid, selector = owner["metadata"]["uid"], selector_of(owner)
    is_leaving = bool(owner["metadata"].get("deletionTimestamp"))
    owned: list[JsonObject] = []
    adopt: list[JsonObject] = []
    release: list[JsonObject] = []
    for each in candidates:
        metadata, controller = each["metadata"], controller_of(each)
        fits = matches_selector(selector, metadata.get("labels"))
        if controller == uid:
            (owned if fits else release).append(each)
        elif not controller and fits and not is_leaving and not metadata.get("deletionTimestamp"):
            adopt.append(each)
    return Claims(tuple(owned), tuple(adopt), tuple(release))


def adopted_references(document: Mapping[str, Any], reference: JsonObject) -> list[JsonObject]:
    others = document["metadata"].get("ownerReferences") or []
    return [*(each for each in others if each.get("uid") != reference["uid"]), reference]


def released_references(document: Mapping[str, Any], uid: str) -> list[JsonObject]:
    return [each for each in document["metadata"].get("ownerReferences") or [] if each.get("uid") != uid]
