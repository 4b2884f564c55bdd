"""Owner references: what is garbage when an owner is deleted (background, foreground, orphan deletion)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
Propagation = Literal["Background", "Foreground", "Orphan"]


def controller_of(document: Mapping[str, Any]) -> str:
    """The uid of the controlling owner, or empty."""
    for each in document.get("metadata", {}).get("ownerReferences") or ():
        if each.get("controller"):
            return str(each.get("uid", ""))
    return ""


def owner_uids(document: Mapping[str, Any]) -> list[str]:
    return [str(each.get("uid", "")) for each in document.get("metadata", {}).get("ownerReferences") or ()]


def is_left_over(document: Mapping[str, Any], living: Set[str]) -> bool:
    """It had owners, and none of them exists any more."""
    owners = owner_uids(document)
    return bool(owners) and not any(uid in living for uid in owners)


def blocks(document: Mapping[str, Any], owner: str) -> bool:
    """Whether it must be removed before an owner that is deleted in the foreground."""
    references: Iterable[Mapping[str, Any]] = document.get("metadata", {}).get("ownerReferences") or ()
    return any(each.get("uid") == owner and each.get("blockOwnerDeletion") for each in references)


def unblocked(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its owner references, none of which keeps an owner waiting."""
    references: Iterable[Mapping[str, Any]] = document["metadata"].get("ownerReferences") or ()
    free = {"blockOwnerDeletion": False}
    return [{**each, **(free if each.get("blockOwnerDeletion") else {})} for each in references]


def reference(owner: Mapping[str, Any], kind: str, api_version: str) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def propagation(document: Mapping[str, Any]) -> Propagation:
    """With which policy the garbage collector deletes an object: that of its finalizer, if it has one."""
    finalizers = document["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def waits_for_dependents(document: Mapping[str, Any]) -> bool:
    """It is deleted in the foreground: its dependents are deleted before it."""
    metadata = document["metadata"]
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND in (metadata.get("finalizers") or ())
