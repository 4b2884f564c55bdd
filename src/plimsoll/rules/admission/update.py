"""Validation of a plain PATCH or PUT of a pod (03 §4.3, 01 §4.4): nearly every change is refused.

An update may change a few fields. The server validates those one by one, then sets their old values in the new version
and compares the rest: any difference is refused with one message that lists what may change. In profile `documents` cpu
and memory of regular containers may change (a resize needs no subresource), and the server records such a change in
`status.resize` if the pod is on a node.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import (
    CONTAINER_KINDS,
    PodVersion,
    container_lists,
    container_pairs,
    masked_container,
    same,
    spec_of,
    specs_differ,
)
from plimsoll.rules.admission.metadata import metadata_update_errors
from plimsoll.rules.admission.resize import class_errors
from plimsoll.rules.admission.validation import pod_errors, relaxation
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MIRROR_ANNOTATION, NO_RESOURCES, Pod, ResourceList, Resources
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile

MAX_INT32 = 2**31 - 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERM_LISTS = ("matchExpressions", "matchFields")

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE_RESOURCES = ",`spec.containers[*].resources` (for CPU/memory only)"


def plain_patch_errors(
    old: PodVersion,
    new: PodVersion,
    profile: Profile = DEFAULT_PROFILE,
    *,
    gate: bool = True,
    gates: Gates = DEFAULT_GATES,
) -> list[FieldError]:
    """Every reason to refuse an update of the pod itself; `gate` is InPlacePodVerticalScaling.

    Profile `documents` accepts changes of cpu and memory of regular containers, added and removed entries included:
    only the QoS class and ordinary validation restrict them. Kubernetes adds a diff to its last message; Plimsoll does
    not.
    """
    errors = metadata_update_errors(old.pod.metadata, new.pod.metadata)
    errors += pod_errors(new.pod, gates=gates, relaxed=relaxation(old.pod))
    errors += _mirror_errors(old.pod, new.pod)
    for kind, before, after in container_lists(old.pod, new.pod):
        if len(before) != len(after):
            return [*errors, _forbidden(f"spec.{kind}", "pod updates may not add or remove containers")]
    was, wanted = spec_of(old.document), spec_of(new.document)
    deadline = _deadline_errors(was.get("activeDeadlineSeconds"), wanted.get("activeDeadlineSeconds"))
    errors += deadline
    if deadline and wanted.get("activeDeadlineSeconds") is not None:
        return errors
    errors += _toleration_errors(_objects(was, "tolerations"), _objects(wanted, "tolerations"))
    errors += _gate_errors(_objects(was, "schedulingGates"), _objects(wanted, "schedulingGates"))
    errors += _placement_errors(was, wanted)
    if not specs_differ(was, wanted):
        return errors
    resizing = profile.resize_by_plain_patch and gate
    if resizing:
        errors += class_errors(old.pod, new.pod, gates, profile)
    if specs_differ(was, _with_old_changeables(old.document, new.document, resizing)):
        errors.append(_forbidden("spec", _CHANGEABLE + (_CHANGEABLE_RESOURCES if resizing else "")))
    return errors


def _mirror_errors(old: Pod, new: Pod) -> list[FieldError]:
    before = (old.metadata.annotations or {}).get(MIRROR_ANNOTATION)
    after = (new.metadata.annotations or {}).get(MIRROR_ANNOTATION)
    if before == after:
        return []
    verb = "add" if before is None else "remove or update"
    return [_forbidden(f"metadata.annotations[{MIRROR_ANNOTATION}]", f"may not {verb} mirror pod annotation")]


def _deadline_errors(before: Any, after: Any) -> list[FieldError]:
    """A deadline may be set, and then only be lowered."""
    path = "spec.activeDeadlineSeconds"
    if isinstance(after, int):
        if not 0 <= after <= MAX_INT32:
            reason = f"must be between 0 and {MAX_INT32}, inclusive"
            return [FieldError("FieldValueInvalid", path, reason, after)]
        if isinstance(before, int) and before < after:
            return [FieldError("FieldValueInvalid", path, "must be less than or equal to previous value", after)]
    elif before is not None and after is None:
        return [FieldError("FieldValueInvalid", path, "must not update from a positive integer to nil value", "null")]
    return []


def _objects(spec: JsonObject, field: str) -> list[JsonObject]:
    """The list's objects; lean pods do not have every list, so types are not validated yet."""
    items = spec.get(field)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _toleration_errors(before: list[JsonObject], after: list[JsonObject]) -> list[FieldError]:
    present = {_lasting(each) for each in after}
    if all(_lasting(each) in present for each in before):
        return []
    return [_forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _lasting(toleration: JsonObject) -> tuple[str, ...]:
    """What may not change of it: all but `tolerationSeconds`. A pod may have tens of thousands."""
    return tuple(str(toleration.get(field) or "") for field in ("key", "operator", "value", "effect"))


def _gate_errors(before: list[JsonObject], after: list[JsonObject]) -> list[FieldError]:
    known = {gate.get("name") for gate in before}
    return [
        _forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(after)
        if gate.get("name") not in known
    ]


def _placement_errors(was: JsonObject, wanted: JsonObject) -> list[FieldError]:
    """A gated pod may get more requirements of its node, and none less."""
    if not was.get("schedulingGates"):
        return []
    errors = []
    selector, before = wanted.get("nodeSelector") or {}, was.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        reason = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(_shown("spec.nodeSelector", selector, reason))
    old_terms, terms = _node_terms(was), _node_terms(wanted)
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(terms):
        reason = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*errors, _shown(path, [_go_term(each) for each in terms] or None, reason)]
    reason = "only additions are allowed (no mutations or deletions)"
    return errors + [
        _shown(f"{path}[{index}]", _go_term(now), reason)
        for index, (old, now) in enumerate(zip(old_terms, terms, strict=False))
        if not _only_adds(old, now)
    ]


def _node_terms(spec: JsonObject) -> list[JsonObject]:
    required = (_node_affinity(spec) or {}).get(_REQUIRED) or {}
    return _objects(required, "nodeSelectorTerms")


def _node_affinity(spec: JsonObject) -> JsonObject | None:
    return (spec.get("affinity") or {}).get("nodeAffinity")


def _only_adds(old: JsonObject, now: JsonObject) -> bool:
    lists = [(old.get(name) or [], now.get(name) or []) for name in _TERM_LISTS]
    if not any(before for before, _ in lists) and any(after for _, after in lists):
        return False  # an empty term matches nothing
    return all(same(before, after[: len(before)]) for before, after in lists)


def _go_term(term: JsonObject) -> JsonObject:
    """In the names of Go's struct, as messages show it."""
    return {
        f"{name[0].upper()}{name[1:]}": [
            {"Key": each.get("key"), "Operator": each.get("operator"), "Values": each.get("values")}
            for each in term[name]
        ]
        if term.get(name)
        else None
        for name in _TERM_LISTS
    }


def _shown(path: str, value: Any, reason: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"{msgspec.json.encode(value, order='sorted').decode()}: {reason}")


def _with_old_placement(before: JsonObject, after: JsonObject) -> JsonObject:
    """Of a gated pod; `_placement_errors` has looked at what is replaced."""
    if not before.get("schedulingGates"):
        return after
    placed = {**after, "nodeSelector": before.get("nodeSelector")}
    old, affinity = before.get("affinity"), after.get("affinity")
    node = _node_affinity(before)
    if same(node, _node_affinity(after)):
        return placed
    if not affinity:
        placed["affinity"] = {"nodeAffinity": node} if node else affinity
    elif old is None and not affinity.get("podAffinity") and not affinity.get("podAntiAffinity"):
        placed["affinity"] = None
    else:
        others = {name: value for name, value in affinity.items() if name != "nodeAffinity"}
        placed["affinity"] = others if node is None else {**others, "nodeAffinity": node}
    return placed


def _with_old_changeables(old: JsonObject, new: JsonObject, resizing: bool) -> JsonObject:
    """The new spec with the old values of all fields that an update may change."""
    before, after = spec_of(old), dict(spec_of(new))
    for kind in CONTAINER_KINDS:
        if after.get(kind):
            pairs = [(was, {**now, "image": was.get("image")}) for was, now in container_pairs(old, new, kind)]
            resized = resizing and kind == "containers"
            after[kind] = [masked_container(was, now) if resized else now for was, now in pairs]
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        after[field] = before.get(field)
    grace = before.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0 and after.get("terminationGracePeriodSeconds") == 1:
        after["terminationGracePeriodSeconds"] = grace
    return _with_old_placement(before, after)


def proposed(old: Pod, new: Pod) -> bool:
    """Profile `documents`: whether `status.resize` becomes Proposed. Not for a container without a status, nor for a
    pod without a node.

    The documents mention regular containers; sidecars and the pod level follow the same rule.
    """
    if not new.spec.node_name:
        return False
    status = new.status
    for before, after, statuses in (
        (old.spec.containers, new.spec.containers, status.container_statuses),
        (old.spec.init_containers, new.spec.init_containers, status.init_container_statuses),
    ):
        allocated = {each.name: each.allocated_resources or {} for each in statuses}
        for was, now in zip(before, after, strict=False):
            if now.name in allocated and _is_resize(was.resources, now.resources, allocated[now.name]):
                return True
    block, total = new.spec.resources, status.allocated_resources
    if block is None or total is None:
        return False
    named = {name: total[name] for name in block.requests or () if name in total}
    return _is_resize(old.spec.resources or NO_RESOURCES, block, named)


def _is_resize(before: Resources, after: Resources, allocated: ResourceList) -> bool:
    """Changed, and different from what is allocated."""
    return after.requests is not None and _amounts(before) != _amounts(after) and after.requests != allocated


def _amounts(resources: Resources) -> tuple[ResourceList, ResourceList]:
    return resources.requests or {}, resources.limits or {}


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)
