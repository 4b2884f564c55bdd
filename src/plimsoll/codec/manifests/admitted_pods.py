"""Pods of manifests after admission: their RuntimeClass, if the input has it, and their built-in priority.

What cannot be read or would be refused is listed, so that every problem of an input is reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import read_as_far
from plimsoll.codec.manifests.manifests import FoundPod, Path
from plimsoll.codec.manifests.unknown_fields import UnknownField, unknown_fields
from plimsoll.errors import FieldError
from plimsoll.rules.admission.runtime_class import runtime_class_errors, runtime_class_refusal
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import RuntimeClass
from plimsoll.rules.resources.defaulting import admitted

RuntimeClasses = Mapping[str, RuntimeClass]


class FoundClass(msgspec.Struct, frozen=True):
    at: Path
    runtime_class: RuntimeClass
    errors: tuple[FieldError, ...]


class AdmittedPod(msgspec.Struct, frozen=True):
    found: FoundPod
    pod: Pod
    unreadable: tuple[FieldError, ...]
    ignored: tuple[UnknownField, ...]
    notes: tuple[str, ...] = ()


def found_classes(document: Any, at: Path = ()) -> Iterator[FoundClass]:
    """The RuntimeClasses in a document, which may be a List."""
    if not isinstance(document, dict):
        return
    if document.get("kind") == "RuntimeClass":
        runtime_class, errors = read_as_far(document, RuntimeClass)
        yield FoundClass(at, runtime_class, tuple(errors or runtime_class_errors(runtime_class)))
    elif isinstance(document.get("items"), list) and str(document.get("kind")).endswith("List"):
        for index, item in enumerate(document["items"]):
            yield from found_classes(item, (*at, "items", index))


def admitted_pod(found: FoundPod, classes: RuntimeClasses) -> AdmittedPod:
    pod, errors = read_as_far(found.document, Pod)
    name = pod.spec.runtime_class_name
    notes = []
    if name and not errors:
        if name in classes:
            found, pod, refusal = _of_class(found, pod, classes[name])
            if refusal:
                errors.append(FieldError("FieldValueForbidden", "spec.runtimeClassName", refusal))
            else:
                notes.append(_applied(classes[name], found))
        elif not pod.spec.overhead:
            notes.append(f"RuntimeClass {name} of {found.title} is not in the input: no overhead is assumed")
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


def _applied(runtime_class: RuntimeClass, found: FoundPod) -> str:
    fixed = (runtime_class.overhead.pod_fixed if runtime_class.overhead is not None else None) or {}
    listed = ", ".join(f"{name} {quantity}" for name, quantity in fixed.items()) or "none"
    return f"RuntimeClass {runtime_class.metadata.name} of {found.title}: overhead {listed}"
