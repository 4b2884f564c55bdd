"""Validation of pods on create and update (01 §4, 03 §3.1), with Kubernetes' messages.

Validation takes the defaulted pod and returns every error; an empty list means a valid pod. The errors are in
Kubernetes' order (metadata, containers, init containers, ephemeral containers, pod level, the rest of the spec), and
inside one resource list in the document's order, where Kubernetes has none.

An update is validated like a create, with two rules relaxed if the stored object violates them already (`relaxation`):
such an object cannot be repaired in one step.

Most pods are valid and come by the thousand, so a path is only built where there is an error. The resource rules are
complete; of the rest of a pod, the fields of lean objects are validated.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.metadata import label_errors, metadata_errors
from plimsoll.rules.admission.restart_rules import restart_errors
from plimsoll.rules.admission.tolerations import toleration_errors
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.names import (
    CONTAINER_STANDARD,
    container_resource_problems,
    dns_label_problems,
    dns_subdomain_problems,
    is_hugepages,
    is_integer_only,
    is_overcommittable,
    page_size,
    resource_name_problems,
)
from plimsoll.rules.model.objects import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    MIRROR_ANNOTATION,
    Container,
    Pod,
    PodSpec,
    ResourceList,
    Resources,
    is_pod_level_resource,
    is_sidecar,
)
from plimsoll.rules.profile import InitResizePolicy
from plimsoll.rules.quantity import ZERO, Quantity
from plimsoll.rules.resources.effective import container_limits, container_requests

_Errors = list[FieldError]

NOT_REQUIRED = "NotRequired"
RESTART_CONTAINER = "RestartContainer"
WINDOWS = "windows"

_NOTHING: ResourceList = {}
_COMPUTE = frozenset({CPU, MEMORY})
_POD_LEVEL_NAMES = (CPU, HUGEPAGES_PREFIX, MEMORY)
_POD_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")


class Relaxation(msgspec.Struct, frozen=True):
    """Rules that the stored object violates already, so that an update may violate them too (03 §4.2 step 1)."""

    any_hugepages: bool = False  # V-7
    init_restart: bool = False  # RestartContainer on init containers that are not sidecars
    sidecar_policy: bool = False  # resizePolicy of a sidecar


STRICT = Relaxation()


def relaxation(old: Pod) -> Relaxation:
    spec = old.spec
    lists: list[ResourceList | None] = [spec.overhead]
    for container in spec.containers + spec.init_containers:
        lists += (container.resources.limits, container.resources.requests)
    return Relaxation(
        any_hugepages=any(
            is_hugepages(name) and not _is_whole_pages(name, quantity)
            for resources in lists
            for name, quantity in (resources or _NOTHING).items()
        ),
        init_restart=any(
            policy.restart_policy == RESTART_CONTAINER
            for container in spec.init_containers
            if not is_sidecar(container)
            for policy in container.resize_policy
        ),
        sidecar_policy=any(is_sidecar(container) and container.resize_policy for container in spec.init_containers),
    )


def create_errors(pod: Pod, *, gates: Gates = DEFAULT_GATES) -> list[FieldError]:
    """Every reason to refuse the creation of this defaulted pod."""
    errors = pod_errors(pod, gates=gates)
    if pod.spec.ephemeral_containers:
        errors.append(_forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return errors


def pod_errors(pod: Pod, *, gates: Gates = DEFAULT_GATES, relaxed: Relaxation = STRICT) -> list[FieldError]:
    """Metadata and spec, for create and update."""
    metadata, spec = pod.metadata, pod.spec
    errors = metadata_errors(metadata)
    if metadata.annotations and MIRROR_ANNOTATION in metadata.annotations and not spec.node_name:
        reason = "must set spec.nodeName if mirror pod annotation is set"
        where = f"metadata.annotations[{MIRROR_ANNOTATION}]"
        errors.append(_invalid(where, metadata.annotations[MIRROR_ANNOTATION], reason))
    _check_containers(errors, spec, relaxed, gates)
    if spec.resources is not None and gates.pod_level:
        _check_pod_level(errors, pod, spec.resources, relaxed, gates)
    _check_rest(errors, spec, relaxed)
    for kind, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            image = container.image
            if image != image.strip():
                reason = "must not have leading or trailing whitespace"
                errors.append(_invalid(f"spec.{kind}[{index}].image", image, reason))
    return errors


# --- resources (§4.1) ---


def resource_errors(resources: Resources, path: str, *, relaxed: Relaxation = STRICT) -> list[FieldError]:
    """V-1 … V-11 for one container's resources at `path`."""
    errors: _Errors = []
    _check_resources(errors, resources, path, relaxed)
    return errors


def _check_resources(
    errors: _Errors, resources: Resources, path: str, relaxed: Relaxation, *, pod_level: Gates | None = None
) -> None:
    plain = CONTAINER_STANDARD if pod_level is None else _COMPUTE
    limits = resources.limits or _NOTHING
    requests = resources.requests or _NOTHING
    special = False
    for name, quantity in limits.items():
        if name not in plain or quantity.nanos < 0:
            special = True
            _check_entry(errors, name, quantity, f"{path}.limits[{name}]", relaxed, pod_level)
    for name, quantity in requests.items():
        if name not in plain or quantity.nanos < 0:
            special = True
            _check_entry(errors, name, quantity, f"{path}.requests[{name}]", relaxed, pod_level)
        limit = limits.get(name)
        if limit is None:
            if name not in plain and not is_overcommittable(name):
                reason = "Limit must be set for non overcommitable resources"  # V-10, Kubernetes' spelling
                errors.append(_required(f"{path}.limits", reason))
        elif quantity.nanos != limit.nanos:
            if not is_overcommittable(name):
                errors.append(_invalid(f"{path}.requests", quantity, f"must be equal to {name} limit of {limit}"))
            elif quantity.nanos > limit.nanos:
                reason = f"must be less than or equal to {name} limit of {limit}"
                errors.append(_invalid(f"{path}.requests", quantity, reason))
    if special and _COMPUTE.isdisjoint((*limits, *requests)) and any(map(is_hugepages, (*limits, *requests))):
        errors.append(_forbidden(path, "HugePages require cpu or memory"))


def _check_entry(
    errors: _Errors, name: str, quantity: Quantity, path: str, relaxed: Relaxation, pod_level: Gates | None
) -> None:
    if pod_level is not None:
        problems = resource_name_problems(name)
        hugepages = pod_level.pod_level_hugepages
        if not problems and not is_pod_level_resource(name, hugepages):
            errors.append(_unsupported(path, name, _POD_LEVEL_NAMES if hugepages else (CPU, MEMORY)))
    else:
        problems = container_resource_problems(name)
    if problems:
        errors += _misnamed(path, name, problems)
    if quantity.nanos < 0:
        errors.append(_invalid(path, quantity, "must be greater than or equal to 0"))
    if is_integer_only(name) and quantity.milli % 1000:
        errors.append(_invalid(path, quantity, "must be an integer"))
    if is_hugepages(name) and not relaxed.any_hugepages and not _is_whole_pages(name, quantity):
        errors.append(_invalid(path, quantity, f"{quantity} is not positive integer multiple of {name}"))


def _is_whole_pages(name: str, quantity: Quantity) -> bool:
    size = page_size(name)
    return size is not None and quantity.value % size.value == 0


# --- pod level (§4.2) ---


def _check_pod_level(errors: _Errors, pod: Pod, resources: Resources, relaxed: Relaxation, gates: Gates) -> None:
    path = "spec.resources"
    if pod.spec.os is not None and pod.spec.os.name == WINDOWS:
        errors.append(_forbidden(path, "may not be set for a windows pod"))
        return
    if resources.claims is not None:
        errors.append(_forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    _check_resources(errors, resources, path, relaxed, pod_level=gates)
    requests, limits = resources.requests or _NOTHING, resources.limits or _NOTHING
    complete = gates.pod_level_requests_complete
    if requests or complete:
        for name, total in container_requests(pod).items():
            own = requests.get(name, ZERO if complete else None)
            if own is not None and total.nanos > own.nanos:
                reason = f"must be greater than or equal to aggregate container requests of {total}"
                errors.append(_invalid(f"{path}.requests[{name}]", own, reason))
    if not limits:
        return
    for name, total in container_limits(pod).items():
        own = None if complete else limits.get(name)
        if own is not None and is_hugepages(name) and total.nanos > own.nanos:
            reason = f"must be greater than or equal to aggregate container limits of {total}"
            errors.append(_invalid(f"{path}.limits[{name}]", own, reason))
    for index, container in enumerate(pod.spec.containers):
        for name, limit in (container.resources.limits or _NOTHING).items():
            own = limits.get(name)
            if own is not None and limit.nanos > own.nanos:
                # V-26: Kubernetes uses this path although no such field exists.
                where = f"{path}.containers[{index}][{name}].limits"
                errors.append(_invalid(where, limit, f"must be less than or equal to pod limits of {own}"))


# --- containers ---


def _check_containers(errors: _Errors, spec: PodSpec, relaxed: Relaxation, gates: Gates) -> None:
    never = spec.restart_policy == "Never"
    names: set[str] = set()
    if not spec.containers:
        errors.append(_required("spec.containers"))
    for index, container in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        _check_container(errors, container, path, never, relaxed)
        _check_unique(errors, names, container, path)
        errors += restart_errors(container, path, gates, is_init=False)
    _check_host_ports(errors, spec.containers)
    for index, container in enumerate(spec.init_containers):
        path = f"spec.initContainers[{index}]"
        _check_container(errors, container, path, never, relaxed)
        errors += restart_errors(container, path, gates, is_init=True)
        _check_unique(errors, names, container, path)
        # One init container runs at a time: only its own ports can collide, and Kubernetes reports them at index 0.
        _check_host_ports(errors, (container,), "spec.initContainers")
        if container.resize_policy:
            _check_init_policy(errors, container, path, relaxed, gates.init_resize_policy)
    for index, container in enumerate(spec.ephemeral_containers):
        path = f"spec.ephemeralContainers[{index}]"
        _check_container(errors, container, path, never, relaxed)
        _check_unique(errors, names, container, path)
        for field, value in (
            ("ports", bool(container.ports)),
            ("resources", container.resources != Resources()),
            ("resizePolicy", bool(container.resize_policy)),
            ("restartPolicy", container.restart_policy is not None),
        ):
            if value:
                errors.append(_forbidden(f"{path}.{field}", "cannot be set for an Ephemeral Container"))  # V-13


def _check_init_policy(
    errors: _Errors, container: Container, path: str, relaxed: Relaxation, allowed: InitResizePolicy
) -> None:
    """03 §3.1."""
    if allowed == "refused" or (allowed == "stored" and not relaxed.sidecar_policy):
        errors.append(_invalid(f"{path}.resizePolicy", container.name, "must not be set for init containers"))
    if allowed != "not restart" or relaxed.init_restart or is_sidecar(container):
        return
    for place, entry in enumerate(container.resize_policy):
        if entry.restart_policy == RESTART_CONTAINER:
            reason = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            errors.append(_invalid(f"{path}.resizePolicy[{place}].restartPolicy", entry.restart_policy, reason))


def _check_container(errors: _Errors, container: Container, path: str, never: bool, relaxed: Relaxation) -> None:
    name = container.name
    if not name:
        errors.append(_required(f"{path}.name"))
    elif problems := dns_label_problems(name):
        errors += _misnamed(f"{path}.name", name, problems)
    if not container.image:
        errors.append(_required(f"{path}.image"))
    for place, port in enumerate(container.ports):
        where = f"{path}.ports[{place}]"
        if port.container_port == 0:
            errors.append(_required(f"{where}.containerPort"))
        else:
            _check_port(errors, f"{where}.containerPort", port.container_port)
        if port.host_port != 0:
            _check_port(errors, f"{where}.hostPort", port.host_port)
        # The server defaults an empty protocol to TCP.
        if port.protocol and port.protocol not in _PROTOCOLS:
            errors.append(_unsupported(f"{where}.protocol", port.protocol, _PROTOCOLS))
    resources = container.resources
    if resources.requests or resources.limits:
        _check_resources(errors, resources, f"{path}.resources", relaxed)
    if container.resize_policy:
        _check_resize_policy(errors, container, f"{path}.resizePolicy", never)


def _check_resize_policy(errors: _Errors, container: Container, path: str, never: bool) -> None:
    """03 §3.1. Most errors have the path of the list, not of the entry."""
    seen: set[str] = set()
    for place, entry in enumerate(container.resize_policy):
        name, policy = entry.resource_name, entry.restart_policy
        if name in seen:
            errors.append(_duplicate(f"{path}[{place}]", name))
        seen.add(name)
        for value, supported in ((name, (CPU, MEMORY)), (policy, (NOT_REQUIRED, RESTART_CONTAINER))):
            if not value:
                errors.append(_required(path))
            elif value not in supported:
                errors.append(_unsupported(path, value, supported))
        if never and policy != NOT_REQUIRED:
            reason = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(_invalid(path, policy, reason))


def _check_unique(errors: _Errors, names: set[str], container: Container, path: str) -> None:
    if container.name in names:
        errors.append(_duplicate(f"{path}.name", container.name))
    names.add(container.name)


def _check_port(errors: _Errors, path: str, port: int) -> None:
    if not 1 <= port <= 65535:
        errors.append(_invalid(path, port, "must be between 1 and 65535, inclusive"))


def _check_host_ports(errors: _Errors, containers: tuple[Container, ...], path: str = "spec.containers") -> None:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.ports):
            if port.host_port:
                taken = f"{port.protocol or 'TCP'}/{port.host_ip}/{port.host_port}"
                if taken in seen:
                    errors.append(_duplicate(f"{path}[{index}].ports[{place}].hostPort", taken))
                seen.add(taken)


# --- the rest of the spec ---


def _check_rest(errors: _Errors, spec: PodSpec, relaxed: Relaxation) -> None:
    if spec.host_network:
        for index, container in enumerate(spec.containers):
            for place, port in enumerate(container.ports):
                # In the host's network the server defaults hostPort to containerPort.
                if port.host_port not in (0, port.container_port):
                    where = f"spec.containers[{index}].ports[{place}].hostPort"
                    reason = "must match `containerPort` when `hostNetwork` is true"
                    errors.append(_invalid(where, port.host_port, reason))
    if spec.restart_policy and spec.restart_policy not in _POD_RESTART_POLICIES:
        errors.append(_unsupported("spec.restartPolicy", spec.restart_policy, _POD_RESTART_POLICIES))
    if spec.node_selector:
        errors += label_errors("spec.nodeSelector", spec.node_selector)
    if spec.node_name and (problems := dns_subdomain_problems(spec.node_name)):
        errors += _misnamed("spec.nodeName", spec.node_name, problems)
    if spec.tolerations:
        errors += toleration_errors(spec.tolerations, "spec.tolerations")
    if spec.priority_class_name and (problems := dns_subdomain_problems(spec.priority_class_name)):
        errors += _misnamed("spec.priorityClassName", spec.priority_class_name, problems)
    if spec.runtime_class_name is not None and (problems := dns_subdomain_problems(spec.runtime_class_name)):
        errors += _misnamed("spec.runtimeClassName", spec.runtime_class_name, problems)
    if spec.preemption_policy and spec.preemption_policy not in _PREEMPTION_POLICIES:
        errors.append(_unsupported("spec.preemptionPolicy", spec.preemption_policy, _PREEMPTION_POLICIES))
    if spec.overhead:
        _check_resources(errors, Resources(limits=spec.overhead), "spec.overhead", relaxed)  # V-12
    if spec.os is not None:
        if not spec.os.name:
            errors.append(_required("spec.os.name", "cannot be empty"))
        elif spec.os.name not in ("linux", WINDOWS):
            errors.append(_unsupported("spec.os", spec.os.name, ("linux", WINDOWS)))


# --- errors ---


def _required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, detail)


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)


def _duplicate(path: str, value: str) -> FieldError:
    return FieldError("FieldValueDuplicate", path, "", value)


def _invalid(path: str, value: str | int | Quantity, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, str(value) if isinstance(value, Quantity) else value)


def _misnamed(path: str, name: str, problems: Iterable[str]) -> list[FieldError]:
    return [_invalid(path, name, problem) for problem in problems]


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)
