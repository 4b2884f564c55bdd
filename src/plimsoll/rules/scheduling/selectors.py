"""Selectors: tolerations and taints, node affinity, label selectors (05 A2).

Kubernetes' selectors share one grammar, `key operator values`. A malformed selector matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from plimsoll.rules.model.objects import LabelSelector, Node, NodeSelectorTerm, Pod, SelectorTerm, Taint, Toleration
from plimsoll.rules.quantity import MAX_INT64

_GO_INTEGER = r"[+-]?[0-9]+"


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect or key of a toleration matches all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def matches_affinity(pod: Pod, node: Node) -> bool:
    """nodeSelector and the required node affinity; terms are alternatives, and an empty list of terms matches
    nothing."""
    labels = node.metadata.labels or {}
    for key, value in (pod.spec.node_selector or {}).items():
        if labels.get(key) != value:
            return False
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return True
    return any(matches_term(term, node) for term in affinity.node_affinity.required.node_selector_terms)


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """All expressions and fields; an empty or malformed term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels or {}
    fields = {"metadata.name": node.metadata.name}
    return all(matches_label(each, labels) for each in term.match_expressions) and all(
        len(each.values) == 1 and each.operator in ("In", "NotIn") and matches_label(each, fields)
        for each in term.match_fields
    )


def matches_label(term: SelectorTerm, labels: Mapping[str, str]) -> bool:
    """One requirement: for an absent label only NotIn and DoesNotExist match."""
    value = labels.get(term.key)
    match term.operator:
        case "In":
            return value is not None and value in term.values
        case "NotIn":
            return bool(term.values) and value not in term.values
        case "Exists":
            return value is not None and not term.values
        case "DoesNotExist":
            return value is None and not term.values
        case "Gt" | "Lt":
            bound = go_integer(term.values[0]) if len(term.values) == 1 else None
            number = None if value is None else go_integer(value)
            if bound is None or number is None:
                return False
            return number > bound if term.operator == "Gt" else number < bound
    return False


def go_integer(text: str) -> int | None:
    """A 64-bit integer as Go parses it, or None."""
    if re.fullmatch(_GO_INTEGER, text, re.ASCII) is None or len(text) > 40:
        return None
    number = int(text)
    return number if -MAX_INT64 - 1 <= number <= MAX_INT64 else None


def required_node_names(pod: Pod) -> frozenset[str] | None:
    """The only possible nodes if every term names nodes, as in a DaemonSet's pods; None: any node.

    The scheduler tries no other node then; an empty set means that the terms exclude one another.
    """
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    terms = affinity.node_affinity.required.node_selector_terms
    node_names: frozenset[str] = frozenset()
    for term in terms:
        names = [
            frozenset(each.values)
            for each in term.match_fields
            if each.key == "metadata.name" and each.operator == "In"
        ]
        if not names:
            return None
        node_names |= names[0].intersection(*names[1:])
    return node_names if terms else None


def matches_selector(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """As LabelSelectorAsSelector: an absent selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    have = labels or {}
    return all(have.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        term.operator not in ("Gt", "Lt") and matches_label(term, have) for term in selector.match_expressions
    )


def selects(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """A disruption budget's selector: an empty one selects nothing either, and none selects a pod without labels."""
    is_empty = selector is None or not (selector.match_labels or selector.match_expressions)
    return bool(labels) and not is_empty and matches_selector(selector, labels)


def selector_text(selector: LabelSelector) -> str:
    """As a query has it: `a=1,b in (2,3),!c`."""
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    words = {"In": "in", "NotIn": "notin"}
    for term in selector.match_expressions:
        if term.operator in words:
            parts.append(f"{term.key} {words[term.operator]} ({','.join(sorted(term.values))})")
        else:
            parts.append(f"!{term.key}" if term.operator == "DoesNotExist" else term.key)
    return ",".join(parts)
