"""matchLabelKeys and mismatchLabelKeys of a new pod become requirements of the selectors beside them (05 B6).

Kubernetes: mutatePodAffinity and mutateTopologySpreadConstraints in pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

from typing import Any

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def with_label_keys_merged(pod: JsonObject, gates: Gates) -> JsonObject:
    spec, labels = pod.get("spec") or {}, (pod.get("metadata") or {}).get("labels") or {}
    changed: JsonObject = {}
    if spec.get("affinity") and "MatchLabelKeysInPodAffinity" not in gates.off:
        changed["affinity"] = _affinity(spec["affinity"], labels)
    if spec.get("topologySpreadConstraints") and "MatchLabelKeysInPodTopologySpreadSelectorMerge" not in gates.off:
        changed["topologySpreadConstraints"] = [_merged(each, labels) for each in spec["topologySpreadConstraints"]]
    return {**pod, "spec": {**spec, **changed}} if changed else pod


def _affinity(affinity: JsonObject, labels: dict[str, str]) -> JsonObject:
    changed = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind)
        if not terms:
            continue
        found = dict(terms)
        if terms.get(_REQUIRED):
            found[_REQUIRED] = [_merged(each, labels) for each in terms[_REQUIRED]]
        if terms.get(_PREFERRED):
            found[_PREFERRED] = [
                {**each, "podAffinityTerm": _merged(each.get("podAffinityTerm") or {}, labels)}
                for each in terms[_PREFERRED]
            ]
        changed[kind] = found
    return {**affinity, **changed}


def _merged(term: JsonObject, labels: dict[str, str]) -> JsonObject:
    """A term without a selector selects nothing, and a key that the pod has no label of says nothing."""
    selector = term.get("labelSelector")
    if selector is None:
        return term
    added: list[dict[str, Any]] = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if not added:
        return term
    requirements = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": requirements}}
