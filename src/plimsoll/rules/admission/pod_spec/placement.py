"""Validation of where a pod may run: affinity, spread over topologies, scheduling gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll.errors import FieldError
from plimsoll.rules.admission.metadata import label_errors
from plimsoll.rules.admission.pod_spec.field_errors import (
    duplicate,
    forbidden,
    invalid,
    misnamed,
    one_of,
    positive,
    required,
)
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WHEN = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_OPERATOR = "not a valid selector operator"


def affinity_errors(affinity: JsonObject, at: str) -> Iterator[FieldError]:
    if (of_nodes := affinity.get("nodeAffinity")) is not None:
        yield from _node_affinity(of_nodes, f"{at}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        of_pods = affinity.get(kind) or {}
        for index, term in enumerate(of_pods.get(REQUIRED) or ()):
            yield from _pod_term(term, f"{at}.{kind}.{REQUIRED}[{index}]")
        for index, weighted in enumerate(of_pods.get(PREFERRED) or ()):
            path = f"{at}.{kind}.{PREFERRED}[{index}]"
            yield from _weight(weighted, path)
            yield from _pod_term(weighted.get("podAffinityTerm") or {}, f"{path}.podAffinityTerm")


def _weight(weighted: JsonObject, at: str) -> Iterator[FieldError]:
    if not 1 <= (weight := weighted.get("weight") or 0) <= 100:
        yield invalid(f"{at}.weight", weight, "must be in the range 1-100")


def _node_affinity(affinity: JsonObject, at: str) -> Iterator[FieldError]:
    if (selector := affinity.get(REQUIRED)) is not None:
        path = f"{at}.{REQUIRED}.nodeSelectorTerms"
        if not (terms := selector.get("nodeSelectorTerms")):
            yield required(path, "must have at least one node selector term")
        for index, term in enumerate(terms or ()):
            yield from _node_term(term, f"{path}[{index}]", check_values=True)
    for index, weighted in enumerate(affinity.get(PREFERRED) or ()):
        path = f"{at}.{PREFERRED}[{index}]"
        yield from _weight(weighted, path)
        yield from _node_term(weighted.get("preference") or {}, f"{path}.preference", check_values=False)


def _node_term(term: JsonObject, at: str, *, check_values: bool) -> Iterator[FieldError]:
    for index, each in enumerate(term.get("matchExpressions") or ()):
        path, operator, values = f"{at}.matchExpressions[{index}]", each.get("operator"), each.get("values") or ()
        if operator in ("Gt", "Lt"):
            if len(values) != 1:
                words = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required(f"{path}.values", words)
        else:
            yield from _operator_errors(operator, values, path)
        yield from misnamed(f"{path}.key", key := each.get("key") or "", qualified_name_problems(key))
        if check_values:
            yield from _value_errors(values, path)
    for index, each in enumerate(term.get("matchFields") or ()):
        path, values = f"{at}.matchFields[{index}]", each.get("values") or ()
        if each.get("operator") not in ("In", "NotIn"):
            yield invalid(f"{path}.operator", each.get("operator") or "", _OPERATOR)
        elif len(values) != 1:
            words = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield required(f"{path}.values", words)
        if (key := each.get("key") or "") != "metadata.name":
            yield invalid(f"{path}.key", key, "not a valid field selector key")
            continue
        for number, value in enumerate(values):
            yield from misnamed(f"{path}.values[{number}]", value, dns_subdomain_problems(value))


def _operator_errors(operator: Any, values: Sequence[str], at: str) -> Iterator[FieldError]:
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    else:
        yield invalid(f"{at}.operator", operator or "", _OPERATOR)


def _value_errors(values: Sequence[str], at: str) -> Iterator[FieldError]:
    for index, value in enumerate(values):
        yield from misnamed(f"{at}.values[{index}]", value, label_value_problems(value))


def label_selector_errors(selector: JsonObject | None, at: str) -> Iterator[FieldError]:
    if selector is None:
        return
    yield from label_errors(f"{at}.matchLabels", selector.get("matchLabels") or {})
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        path, values = f"{at}.matchExpressions[{index}]", each.get("values") or ()
        yield from _operator_errors(each.get("operator"), values, path)
        yield from misnamed(f"{path}.key", key := each.get("key") or "", qualified_name_problems(key))
        yield from _value_errors(values, path)


def _pod_term(term: JsonObject, at: str) -> Iterator[FieldError]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from label_selector_errors(term.get(field), f"{at}.{field}")
    for name in term.get("namespaces") or ():
        yield from misnamed(f"{at}.namespace", name, dns_label_problems(name))
    yield from _label_key_errors(term, at)
    key = term.get("topologyKey") or ""
    if not key:
        yield required(f"{at}.topologyKey", "can not be empty")
    yield from misnamed(f"{at}.topologyKey", key, qualified_name_problems(key))


def _label_key_errors(term: JsonObject, at: str) -> Iterator[FieldError]:
    """matchLabelKeys and mismatchLabelKeys."""
    selector = term.get("labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field) or ()
        if keys and selector is None:
            yield forbidden(f"{at}.{field}", "must not be specified when labelSelector is not set")
        for index, key in enumerate(keys):
            yield from misnamed(f"{at}.{field}[{index}]", key, qualified_name_problems(key))
    mismatched = set(term.get("mismatchLabelKeys") or ())
    for index, key in enumerate(term.get("matchLabelKeys") or ()):
        if key in mismatched:
            words = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{at}.matchLabelKeys[{index}]", key, words)


def spread_errors(constraints: Sequence[JsonObject], at: str) -> Iterator[FieldError]:
    pairs = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    later = Counter(pairs)
    for index, (constraint, (key, when)) in enumerate(zip(constraints, pairs, strict=True)):
        path = f"{at}[{index}]"
        yield from positive(f"{path}.maxSkew", constraint.get("maxSkew") or 0)
        if not key:
            yield required(f"{path}.topologyKey", "can not be empty")
        yield from one_of(f"{path}.whenUnsatisfiable", when, _WHEN)
        later[key, when] -= 1
        if later[key, when]:
            yield duplicate(f"{path}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}")
        if (domains := constraint.get("minDomains")) is not None:
            yield from positive(f"{path}.minDomains", domains)
            if when != _WHEN[0]:
                words = f"can only use minDomains if whenUnsatisfiable={_WHEN[0]}, not {when}"
                yield invalid(f"{path}.minDomains", domains, words)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(f"{path}.{field}", constraint.get(field), _POLICIES)
        yield from _label_key_errors(constraint, path)
        yield from label_selector_errors(constraint.get("labelSelector"), f"{path}.labelSelector")


def gate_errors(spec: JsonObject, at: str) -> Iterator[FieldError]:
    """Scheduling gates, and conditions that readiness waits for."""
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        name = gate.get("conditionType") or ""
        yield from misnamed(f"{at}.readinessGates[{index}].conditionType", name, qualified_name_problems(name))
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        path, name = f"{at}.schedulingGates[{index}]", gate.get("name") or ""
        yield from misnamed(path, name, qualified_name_problems(name))
        if name in seen:
            yield duplicate(path, name)
        seen.add(name)
