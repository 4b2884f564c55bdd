"""RuntimeClass: its validation, and what a new pod of the class gets (05 B6).

The overhead of a class is what a sandbox of its runtime needs. It becomes `spec.overhead` of the pod; scheduling, the
pod's cgroup and its eviction count it (01 E-1). A class kata with 120Mi: a pod that requests 64Mi counts with 184Mi.

Kubernetes: plugin/pkg/admission/runtimeclass, pkg/apis/node/validation; KEP-585, KEP-688.
"""

from __future__ import annotations

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.metadata import label_errors
from plimsoll.rules.admission.tolerations import merged_tolerations, toleration_errors
from plimsoll.rules.admission.validation import resource_errors
from plimsoll.rules.model.names import dns_label_problems
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.model.policies import RuntimeClass

_DIFFERS = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_WITHOUT_CLASS = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def runtime_class_errors(runtime_class: RuntimeClass) -> list[FieldError]:
    handler, scheduling = runtime_class.handler, runtime_class.scheduling
    errors = [FieldError("FieldValueInvalid", "handler", each, handler) for each in dns_label_problems(handler)]
    if runtime_class.overhead is not None:
        errors += resource_errors(Resources(limits=runtime_class.overhead.pod_fixed), "overhead")
    if scheduling is not None:
        errors += label_errors("scheduling.nodeSelector", scheduling.node_selector or {})
        errors += toleration_errors(scheduling.tolerations, "scheduling.tolerations")
    return errors


def not_found(name: str) -> str:
    return f'pod rejected: RuntimeClass "{name}" not found'


def runtime_class_refusal(pod: Pod, runtime_class: RuntimeClass | None) -> str | None:
    """Why the pod cannot have this class; None: it can. Without a class, a pod may set no overhead."""
    own = pod.spec.overhead
    fixed = None if runtime_class is None or runtime_class.overhead is None else runtime_class.overhead.pod_fixed or {}
    if own and fixed is None:
        return _WITHOUT_CLASS
    if own and own != fixed:
        return _DIFFERS
    scheduling = None if runtime_class is None else runtime_class.scheduling
    selector = pod.spec.node_selector or {}
    for key, value in ((scheduling.node_selector or {}) if scheduling is not None else {}).items():
        if selector.get(key, value) != value:
            return (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    return None


def with_runtime_class(pod: Pod, runtime_class: RuntimeClass) -> Pod:
    """The pod with the overhead, the node selector and the tolerations of its class; only if nothing is refused."""
    spec = pod.spec
    if runtime_class.overhead is not None:
        spec = msgspec.structs.replace(spec, overhead=runtime_class.overhead.pod_fixed)
    if runtime_class.scheduling is not None:
        chosen = runtime_class.scheduling
        selector = {**(spec.node_selector or {}), **(chosen.node_selector or {})}
        merged = merged_tolerations(spec.tolerations, chosen.tolerations)
        spec = msgspec.structs.replace(spec, node_selector=selector or None, tolerations=merged)
    return msgspec.structs.replace(pod, spec=spec)
