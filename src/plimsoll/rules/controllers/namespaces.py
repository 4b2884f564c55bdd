"""What a namespace that is being deleted reports about what is left in it, with Kubernetes' words."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.rules.model.json_object import JsonObject

# Type → reason and message where nothing is wrong.
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


def deletion_conditions(
    before: list[JsonObject], remaining: Mapping[str, int], finalizers: Mapping[str, int], now: str
) -> list[JsonObject]:
    """`remaining`: how many objects, by `PLURAL.GROUP`; `finalizers`: on how many of them each is; `before` is kept
    where nothing changes."""
    reported = {type_: ("False", *fine) for type_, fine in _FINE.items()}
    if remaining:
        counts = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in remaining.items()))
        text = f"Some resources are remaining: {counts}"
        reported["NamespaceContentRemaining"] = ("True", "SomeResourcesRemain", text)
    if finalizers:
        counts = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in finalizers.items()))
        text = f"Some content in the namespace has finalizers remaining: {counts}"
        reported["NamespaceFinalizersRemaining"] = ("True", "SomeFinalizersRemain", text)
    old = {condition.get("type"): condition for condition in before}
    made = [condition for condition in before if condition.get("type") not in reported]
    for type_, (status, reason, message) in reported.items():
        known = old.get(type_) or {}
        since = known.get("lastTransitionTime") if known.get("status") == status else now
        condition = {"type": type_, "status": status, "lastTransitionTime": since}
        made.append({**condition, "reason": reason, "message": message})
    return made
