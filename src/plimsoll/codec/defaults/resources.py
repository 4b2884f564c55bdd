"""A pod document as the server stores it: resource lists defaulted, rounded and in canonical text (01 §3).

The rules default lean pods; a document has all other fields too. `with_defaults` reads the lean pod from the document,
applies the rules, and writes only the resource lists (and resize policies) back into a copy. Parts that need no change
are shared with the argument, which is never changed.
"""

from __future__ import annotations

from plimsoll.codec.lean.lean import lean_pod
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Container, ContainerStatus, Pod, PodStatus, ResourceList, Resources
from plimsoll.rules.resources.defaulting import defaulted


def with_defaults(
    document: JsonObject, *, gates: Gates = DEFAULT_GATES, resize_policy: bool = False, stored: Pod | None = None
) -> PodVersion:
    """The version that the server would store; raises InvalidObjectError. The arguments are those of `defaulted`."""
    original = lean_pod(document)
    pod = defaulted(original, gates=gates, resize_policy=resize_policy, stored=stored)
    return PodVersion(written(document, pod, original), pod)


def written(document: JsonObject, pod: Pod, original: Pod) -> JsonObject:
    result = dict(document)
    spec = dict(document.get("spec") or {})
    for key, containers, before in (
        ("containers", pod.spec.containers, original.spec.containers),
        ("initContainers", pod.spec.init_containers, original.spec.init_containers),
    ):
        if containers:
            spec[key] = [
                _container(each or {}, after, was)
                for each, after, was in zip(spec[key], containers, before, strict=True)
            ]
    if pod.spec.resources is not None:
        spec["resources"] = _resources(spec["resources"], pod.spec.resources)
    _set_list(spec, "overhead", pod.spec.overhead)
    if spec:
        result["spec"] = spec
    status = document.get("status")
    if status:
        result["status"] = _status(status, pod)
    return result


def _container(document: JsonObject, container: Container, original: Container) -> JsonObject:
    result = dict(document)
    if result.get("resources") is not None:
        result["resources"] = _resources(result["resources"], container.resources)
    if container.resize_policy != original.resize_policy:
        result["resizePolicy"] = [
            {"resourceName": entry.resource_name, "restartPolicy": entry.restart_policy}
            for entry in container.resize_policy
        ]
    return result


def _status(document: JsonObject, pod: Pod) -> JsonObject:
    result = dict(document)
    for key, statuses in (
        ("containerStatuses", pod.status.container_statuses),
        ("initContainerStatuses", pod.status.init_container_statuses),
    ):
        if statuses:
            result[key] = [
                _with_status_resources(each or {}, status) for each, status in zip(result[key], statuses, strict=True)
            ]
    return _with_status_resources(result, pod.status)


def _with_status_resources(document: JsonObject, holder: PodStatus | ContainerStatus) -> JsonObject:
    """A status with `resources` and `allocatedResources`: the pod's or a container's."""
    result = dict(document)
    if holder.resources is not None:
        result["resources"] = _resources(result["resources"], holder.resources)
    _set_list(result, "allocatedResources", holder.allocated_resources)
    return result


def _resources(document: JsonObject, resources: Resources) -> JsonObject:
    result = dict(document)
    _set_list(result, "requests", resources.requests)
    _set_list(result, "limits", resources.limits)
    return result


def _set_list(target: JsonObject, key: str, resources: ResourceList | None) -> None:
    if resources is None:
        target.pop(key, None)
    else:
        target[key] = {name: str(quantity) for name, quantity in resources.items()}
