"""The API server's answer to a resize (03 §4.1, §4.2): which parts of a request count, and what is refused.

    sent document ──defaulting──▶ kept_for_resize ──▶ resize_errors (422) ──▶ capacity_verdict (403) ──▶ stored

A resize may change only cpu and memory. So the server first restores all fields except resources and resize policies,
then validates the result like any pod, then validates the change from the old version, and last checks whether the node
is large enough. Two messages differ in profile `documents` (`profile`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import (
    CONTAINER_KINDS,
    LISTS,
    PodVersion,
    container_lists,
    container_pairs,
    containers_of,
    masked_container,
    masked_resources,
    same,
    spec_of,
    specs_differ,
)
from plimsoll.rules.admission.metadata import metadata_update_errors
from plimsoll.rules.admission.validation import RESTART_CONTAINER, WINDOWS, pod_errors, relaxation
from plimsoll.rules.admission.volume_resize import volume_errors
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Node, Pod, Resources, is_mirror, is_sidecar, listed
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile, ResizeChecks
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.effective import pod_requests
from plimsoll.rules.resources.qos import computed_qos_class, qos_class

_OS_LABEL = "kubernetes.io/os"
_WHOLE_POD = "[]"  # how Kubernetes prints a path with one empty element
_ONLY_CPU_AND_MEMORY = "only cpu and memory resources are mutable"


class ResizeRefusal(msgspec.Struct, frozen=True):
    """A 403 from admission: the type of its cause (none for a missing node) and the message."""

    reason: Literal["", "NodeCapacity", "UnsupportedPlatform"]
    message: str


def spec_changed(old: JsonObject, new: JsonObject) -> bool:
    """Whether the generation increases."""
    return specs_differ(spec_of(old), spec_of(new))


# --- which parts of a request count (§4.1) ---


def kept_for_resize(
    old: JsonObject, new: JsonObject, gates: Gates = DEFAULT_GATES, profile: Profile = DEFAULT_PROFILE
) -> JsonObject:
    """The new version with all fields restored except resources and resize policies.

    Validation must see structural changes: if containers were added or removed nothing is restored, and a list in which
    a name moved stays as sent. (1.32 takes the regular containers by name and ignores other changes.)
    """
    if profile.resize_checks == "together":
        return _without_disabled(old, _kept_by_name(old, new), gates)
    if any(len(containers_of(old, kind)) != len(containers_of(new, kind)) for kind in CONTAINER_KINDS):
        return _with_pod_level(new, old) if gates.fixed_defaulting else new
    spec = dict(spec_of(old))
    for kind in CONTAINER_KINDS:
        if kind in spec:
            pairs = container_pairs(old, new, kind)
            aligned = all(before.get("name") == after.get("name") for before, after in pairs)
            spec[kind] = [_resized(*pair) for pair in pairs] if aligned else spec_of(new)[kind]
    if gates.pod_level and gates.pod_level_resize:
        _take(spec, spec_of(_with_pod_level(new, old) if gates.fixed_defaulting else new), "resources")
    if gates.memory_volumes:
        _take(spec, spec_of(new), "volumes")
    metadata = dict(old.get("metadata") or {})
    for field in ("resourceVersion", "managedFields"):
        _take(metadata, new.get("metadata") or {}, field)
    return _without_disabled(old, {**old, "metadata": metadata, "spec": spec}, gates)


def _with_pod_level(new: JsonObject, old: JsonObject) -> JsonObject:
    """A client that does not know pod-level resources drops them; they are kept."""
    if spec_of(new).get("resources") is not None or spec_of(old).get("resources") is None:
        return new
    return {**new, "spec": {**spec_of(new), "resources": spec_of(old)["resources"]}}


def _without_disabled(old: JsonObject, new: JsonObject, gates: Gates) -> JsonObject:
    """Fields of features that are off are dropped, unless the stored pod uses them."""
    spec = dict(spec_of(new))
    if not gates.pod_level and not any((spec_of(old).get("resources") or {}).values()):
        spec.pop("resources", None)
    if not gates.in_place and not any(each.get("resizePolicy") for each in containers_of(old, "containers")):
        for kind in CONTAINER_KINDS:
            if kind in spec:
                spec[kind] = [
                    {field: value for field, value in each.items() if field != "resizePolicy"}
                    for each in containers_of(new, kind)
                ]
    return {**new, "spec": spec}


def _kept_by_name(old: JsonObject, new: JsonObject) -> JsonObject:
    sent = {container.get("name"): container for container in containers_of(new, "containers")}
    spec = dict(spec_of(old))
    if "containers" in spec:
        spec["containers"] = [
            _resized(each, sent[each.get("name")]) if each.get("name") in sent else each
            for each in containers_of(old, "containers")
        ]
    metadata = dict(old.get("metadata") or {})
    for field in ("name", "namespace", "resourceVersion", "uid"):
        _take(metadata, new.get("metadata") or {}, field)
    return {**old, "metadata": metadata, "spec": spec}


def _resized(before: JsonObject, after: JsonObject) -> JsonObject:
    result = dict(before)
    for field in ("resources", "resizePolicy"):
        _take(result, after, field)
    return result


def _take(target: JsonObject, source: JsonObject, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


# --- what is refused (§4.2) ---


def resize_errors(
    old: PodVersion, new: PodVersion, gates: Gates = DEFAULT_GATES, profile: Profile = DEFAULT_PROFILE
) -> list[FieldError]:
    """Every reason to refuse the change from the stored version to the result of §4.1."""
    checks = profile.resize_checks
    pod_level = _has_entries(old.pod.spec.resources) or _has_entries(new.pod.spec.resources)
    if pod_level and checks in ("together", "in parts"):
        return [_forbidden(_WHOLE_POD, "pods with pod-level resources cannot be resized")]
    if is_mirror(old.pod):
        return [_forbidden(_WHOLE_POD, "static pods cannot be resized")]
    if old.pod.spec.os is not None and old.pod.spec.os.name == WINDOWS:
        return [_forbidden(_WHOLE_POD, "windows pods cannot be resized")]
    errors = _metadata_errors(old, new, checks)
    errors += pod_errors(new.pod, gates=gates, relaxed=relaxation(old.pod))
    errors += class_errors(old.pod, new.pod, gates, profile)
    if not _node_can_resize(old.pod):
        errors.append(_forbidden("spec", "Pod running on node without support for resize"))
    if pod_level:
        if not gates.pod_level_resize:
            reason = (
                "resize of pods with pod-level resources is forbidden when "
                "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
            )
            return [*errors, _forbidden(_WHOLE_POD, reason)]
        errors += _pod_level_errors(old, new)
    if profile.claims_prevent_resize and old.pod.status.node_allocatable_resource_claim_statuses:
        errors.append(_forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    if checks == "together":
        return errors + _errors_together(old, new)
    if structure := _structure_errors(old.pod, new.pod):
        return errors + structure
    if not profile.resize_may_remove:
        errors += _removal_errors(old.pod, new.pod, gates)
    if not profile.memory_limit_may_shrink:
        errors += _memory_limit_errors(old.pod, new.pod)
    new_lists = checks not in ("together", "in parts")
    errors += _container_errors(old, new, new_lists)
    named = checks in ("with init containers", "with volumes")
    errors += _init_container_errors(old, new, gates, new_lists, named=named)
    if checks == "with volumes":
        errors += volume_errors(old.document, new.document, gates)
        if gates.memory_volumes:
            new = PodVersion(_with_volumes(new.document, old.document), new.pod)
    if not errors and specs_differ(spec_of(old.document), _masked_spec(old.document, new.document, new_lists)):
        errors.append(_forbidden("spec", _ONLY_CPU_AND_MEMORY))
    return errors


def _with_volumes(document: JsonObject, source: JsonObject) -> JsonObject:
    spec = dict(spec_of(document))
    _take(spec, spec_of(source), "volumes")
    return {**document, "spec": spec}


def _metadata_errors(old: PodVersion, new: PodVersion, checks: ResizeChecks) -> list[FieldError]:
    if checks != "together":
        return metadata_update_errors(old.pod.metadata, new.pod.metadata)
    before, after = ({**(each.document.get("metadata") or {}), "managedFields": None} for each in (old, new))
    if same(before, after, "metadata"):
        return []
    return [FieldError("FieldValueInvalid", "metadata", "field is immutable")]


def _errors_together(old: PodVersion, new: PodVersion) -> list[FieldError]:
    """1.32: containers by index, ordinary init containers like sidecars, and one check of the whole spec."""
    errors = [
        _forbidden(f"spec.{kind}[{index}].resources.{emptied}", f"resource {emptied} cannot be removed")
        for kind, before, after in reversed(list(container_lists(old.pod, new.pod)))
        for index, (was, is_now) in enumerate(zip(before, after, strict=False))
        for emptied in _removed(was.resources, is_now.resources)
    ]
    masked = dict(spec_of(new.document))
    before, after = containers_of(old.document, "containers"), containers_of(new.document, "containers")
    masked["containers"] = [
        {**masked_container(was, is_now, new_lists=False), "resizePolicy": was.get("resizePolicy")}
        for was, is_now in zip(before, after, strict=False)
    ] + after[len(before) :]
    if specs_differ(spec_of(old.document), masked):
        errors.append(_forbidden("spec", _ONLY_CPU_AND_MEMORY))
    return errors


def _memory_limit_errors(old: Pod, new: Pod) -> list[FieldError]:
    """1.33: a lower or a new memory limit needs RestartContainer."""
    errors = []
    for kind, before, after in container_lists(old, new):
        for index, (was, is_now) in enumerate(zip(before, after, strict=True)):
            policy = next((each for each in is_now.resize_policy if each.resource_name == MEMORY), None)
            restarts = policy is not None and policy.restart_policy not in ("NotRequired", "")
            limit, stored = (listed(each.resources, "limits").get(MEMORY) for each in (is_now, was))
            if limit is None or restarts or (kind == "initContainers" and not is_sidecar(was)):
                continue
            if stored is None or limit < stored:
                change = "added" if stored is None else "decreased"
                reason = f"memory limits cannot be {change} unless resizePolicy is {RESTART_CONTAINER}"
                errors.append(_forbidden(f"spec.{kind}[{index}].resources.limits[{MEMORY}]", reason))
    return errors


def class_errors(old: Pod, new: Pod, gates: Gates, profile: Profile) -> list[FieldError]:
    """The QoS class is immutable. The message shows the stored class; in profile `documents`, the new one."""
    wanted = computed_qos_class(new, gates=gates)
    if wanted == qos_class(old, gates=gates):
        return []
    if profile.qos_change_at_metadata:
        return [FieldError("FieldValueInvalid", "metadata", "Pod QoS is immutable", wanted)]
    reason = "Pod QOS Class may not change as a result of resizing"
    return [FieldError("FieldValueInvalid", "spec", reason, old.status.qos_class or "")]


def _node_can_resize(old: Pod) -> bool:
    """A node that can resize reports `resources` of the first running container. If no container runs, assume that it
    can."""
    for status in old.status.container_statuses:
        if status.state is not None and status.state.running is not None:
            return status.resources is not None
    return True


def _has_entries(resources: Resources | None) -> bool:
    return resources is not None and bool(resources.requests or resources.limits)


def _pod_level_errors(old: PodVersion, new: PodVersion) -> list[FieldError]:
    before, after = old.pod.spec.resources, new.pod.spec.resources
    if before is not None and after is None:
        return [_forbidden("spec.resources", "pod-level resources cannot be removed")]
    errors = [
        _forbidden(f"spec.resources.{kind}", f"pod-level resource {kind} cannot be removed")
        for kind in _removed(before or NO_RESOURCES, after or NO_RESOURCES)
    ]
    block = spec_of(old.document).get("resources")
    # With this name an absent block equals one without entries, so cpu and memory may be added.
    if not same(block, masked_resources(block, spec_of(new.document).get("resources")), "resources"):
        errors.append(_forbidden("spec", f"{_ONLY_CPU_AND_MEMORY} at pod-level"))
    return errors


def _structure_errors(old: Pod, new: Pod) -> list[FieldError]:
    errors = []
    for kind, before, after in container_lists(old, new):
        if len(before) != len(after):
            errors.append(_forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize"))
            continue
        for index, (was, is_now) in enumerate(zip(before, after, strict=True)):
            if was.name != is_now.name:
                reason = f"{kind} may not be renamed or reordered on resize"
                errors.append(_forbidden(f"spec.{kind}[{index}].name", reason))
    return errors


def _removal_errors(old: Pod, new: Pod, gates: Gates) -> list[FieldError]:
    return [
        _forbidden(f"spec.{kind}[{index}].resources.{emptied}", f"resource {emptied} cannot be removed")
        for kind, before, after in container_lists(old, new)
        for index, (was, is_now) in enumerate(zip(before, after, strict=True))
        if kind == "containers" or gates.init_containers or is_sidecar(was)
        for emptied in _removed(was.resources, is_now.resources)
    ]


def _removed(old: Resources, new: Resources) -> Iterable[str]:
    """The lists that lost a key; its value does not matter."""
    for kind in LISTS:
        if listed(old, kind).keys() - listed(new, kind).keys():
            yield kind


def _container_errors(old: PodVersion, new: PodVersion, new_lists: bool) -> list[FieldError]:
    return [
        _forbidden("spec", _ONLY_CPU_AND_MEMORY)
        for before, after in container_pairs(old.document, new.document, "containers")
        if not same(before, masked_container(before, after, new_lists=new_lists))
    ]


def _init_container_errors(
    old: PodVersion, new: PodVersion, gates: Gates, new_lists: bool, *, named: bool
) -> list[FieldError]:
    """`named`: the error names the container (since 1.36)."""
    errors = []
    documents = container_pairs(old.document, new.document, "initContainers")
    for index, (container, (before, after)) in enumerate(zip(new.pod.spec.init_containers, documents, strict=True)):
        path = f"spec.initContainers[{index}]"
        if not is_sidecar(container) and not gates.init_containers:
            if not same(before, after):
                errors.append(_forbidden("spec", "resources for non-sidecar init containers are immutable"))
            continue
        if not same(before, masked_container(before, after, new_lists=new_lists)):
            kinds = "init or sidecar" if named else "sidecar"
            reason = f"only cpu and memory resources for {kinds} containers are mutable"
            errors.append(_forbidden(path if named else "spec", reason))
        if not is_sidecar(container) and not same(before, after):
            reason = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
            restarting = [entry for entry in container.resize_policy if entry.restart_policy == RESTART_CONTAINER]
            errors += [_forbidden(path, reason)] * len(restarting)
    return errors


def _masked_spec(old: JsonObject, new: JsonObject, new_lists: bool) -> JsonObject:
    before, masked = spec_of(old), dict(spec_of(new))
    for kind in CONTAINER_KINDS:
        if kind in masked:
            masked[kind] = [masked_container(*pair, new_lists=new_lists) for pair in container_pairs(old, new, kind)]
    if masked.get("resources") is not None:
        masked["resources"] = masked_resources(before.get("resources"), masked["resources"])
        # A block with only cpu and memory may be added: without them it is empty, as before.
        if before.get("resources") is None and same(None, masked["resources"], "resources"):
            del masked["resources"]
    return masked


# --- is the node large enough? (§4.2, PodResizeValidator) ---


def capacity_verdict(old: PodVersion, new: PodVersion, node: Node | None) -> ResizeRefusal | None:
    """Admission of a resize that validation accepted; None allows it. The status of pods is not used."""
    name = new.pod.spec.node_name
    if not name or not spec_changed(old.document, new.document):
        return None
    if node is None:
        return ResizeRefusal("", f'node "{name}" not found')
    system = (node.metadata.labels or {}).get(_OS_LABEL, "linux")
    if system != "linux":
        message = f'pod resize is only supported on linux nodes, node "{node.metadata.name}" is "{system}"'
        return ResizeRefusal("UnsupportedPlatform", message)
    requests, allocatable = pod_requests(new.pod), node.status.allocatable or {}
    short = []
    for resource, unit in ((CPU, "milli"), (MEMORY, "value")):
        wanted, there = requests.get(resource, ZERO), allocatable.get(resource, ZERO)
        if wanted > there:
            short.append(f"{resource}, requested: {getattr(wanted, unit)}, allocatable: {getattr(there, unit)}")
    if not short:
        return None
    return ResizeRefusal("NodeCapacity", f"node didn't have enough allocatable resources: {'; '.join(short)}")


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)
