"""Pods of manifests after admission: with the RuntimeClass and PriorityClass of the input, or a built-in priority.

What cannot be read or would be refused is listed, so that every problem of an input is reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import read_as_far
from plimsoll.codec.manifests.manifests import FoundPod, Path
from plimsoll.codec.manifests.unknown_fields import UnknownField, unknown_fields
from plimsoll.errors import FieldError
from plimsoll.rules.admission.runtime_class import runtime_class_errors, runtime_class_refusal
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import PriorityClass, RuntimeClass
from plimsoll.rules.resources.defaulting import admitted


class FoundClass(msgspec.Struct, frozen=True):
    at: Path
    found: RuntimeClass | PriorityClass
    errors: tuple[FieldError, ...]


class Classes(msgspec.Struct, frozen=True):
    """What an input has, by name."""

    runtime: dict[str, RuntimeClass] = {}
    priority: dict[str, PriorityClass] = {}

    def __len__(self) -> int:
        return len(self.runtime) + len(self.priority)

    def add(self, found: RuntimeClass | PriorityClass) -> None:
        if isinstance(found, RuntimeClass):
            self.runtime[found.metadata.name] = found
        else:
            self.priority[found.metadata.name] = found

    def priority_of(self, pod: Pod) -> PriorityClass | None:
        """The class that gives the pod its priority; None if it has one, or a class that is not in the input."""
        if pod.spec.priority is not None:
            return None
        if pod.spec.priority_class_name:
            return self.priority.get(pod.spec.priority_class_name)
        defaults = [each for each in self.priority.values() if each.global_default]
        return min(defaults, key=lambda each: each.value, default=None)  # as Kubernetes chooses among several


class AdmittedPod(msgspec.Struct, frozen=True):
    found: FoundPod
    pod: Pod
    unreadable: tuple[FieldError, ...]
    ignored: tuple[UnknownField, ...]
    notes: tuple[str, ...] = ()


def found_classes(document: Any, at: Path = ()) -> Iterator[FoundClass]:
    """The RuntimeClasses and PriorityClasses in a document, which may be a List."""
    if not isinstance(document, dict):
        return
    if document.get("kind") == "RuntimeClass":
        runtime_class, errors = read_as_far(document, RuntimeClass)
        yield FoundClass(at, runtime_class, tuple(errors or runtime_class_errors(runtime_class)))
    elif document.get("kind") == "PriorityClass":
        priority_class, errors = read_as_far(document, PriorityClass)
        yield FoundClass(at, priority_class, tuple(errors))
    elif isinstance(document.get("items"), list) and str(document.get("kind")).endswith("List"):
        for index, item in enumerate(document["items"]):
            yield from found_classes(item, (*at, "items", index))


def admitted_pod(found: FoundPod, classes: Classes) -> AdmittedPod:
    pod, errors = read_as_far(found.document, Pod)
    name = pod.spec.runtime_class_name
    notes = []
    if name and not errors:
        if name in classes.runtime:
            found, pod, refusal = _of_class(found, pod, classes.runtime[name])
            if refusal:
                errors.append(FieldError("FieldValueForbidden", "spec.runtimeClassName", refusal))
            else:
                notes.append(_applied(classes.runtime[name], found))
        elif not pod.spec.overhead:
            notes.append(f"RuntimeClass {name} of {found.title} is not in the input: no overhead is assumed")
    priority = classes.priority_of(pod)
    if priority is not None and not errors:
        notes.append(f"PriorityClass {priority.metadata.name} of {found.title}: priority {priority.value}")
        pod = _prioritized(pod, priority)
    unknown = list(unknown_fields(found.document))
    errors += [FieldError("FieldValueForbidden", each.field, each.message()) for each in unknown if each.is_error]
    ignored = tuple(each for each in unknown if not each.is_error)
    return AdmittedPod(found, admitted(pod), tuple(errors), ignored, tuple(notes))


def _of_class(found: FoundPod, pod: Pod, runtime_class: RuntimeClass) -> tuple[FoundPod, Pod, str]:
    from plimsoll.codec.defaults.runtime_class import with_class  # few manifests need it, and all wait for it

    # A pod read back from a cluster has the overhead already.
    refusal = runtime_class_refusal(pod, runtime_class)
    if refusal:
        return found, pod, refusal
    document = with_class(found.document, pod, runtime_class)
    return msgspec.structs.replace(found, document=document), read_as_far(document, Pod)[0], ""


def _prioritized(pod: Pod, priority: PriorityClass) -> Pod:
    replace = msgspec.structs.replace
    spec = replace(pod.spec, priority=priority.value, priority_class_name=priority.metadata.name)
    return replace(pod, spec=spec)


def _applied(runtime_class: RuntimeClass, found: FoundPod) -> str:
    fixed = (runtime_class.overhead.pod_fixed if runtime_class.overhead is not None else None) or {}
    listed = ", ".join(f"{name} {quantity}" for name, quantity in fixed.items()) or "none"
    return f"RuntimeClass {runtime_class.metadata.name} of {found.title}: overhead {listed}"
