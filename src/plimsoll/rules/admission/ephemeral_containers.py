"""Validation of pods/ephemeralcontainers: containers for debugging may be added to a pod, never changed or removed.

Kubernetes: ValidatePodEphemeralContainersUpdate in pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import PodVersion, containers_of, same
from plimsoll.rules.admission.pod_spec.spec import spec_errors
from plimsoll.rules.admission.validation import pod_errors, relaxation
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MIRROR_ANNOTATION

EPHEMERAL, PATH = "ephemeralContainers", "spec.ephemeralContainers"
_NOT_ALLOWED = "cannot be set for an Ephemeral Container"
# Beyond those that `validation` knows (V-13). An ephemeral container serves no one and is not waited for.
_FORBIDDEN_FIELDS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def ephemeral_container_errors(old: PodVersion, new: PodVersion, gates: Gates = DEFAULT_GATES) -> list[FieldError]:
    """Every reason to refuse this update. Kubernetes adds a diff to the message about a change; Plimsoll does not."""
    if MIRROR_ANNOTATION in (old.pod.metadata.annotations or {}):
        return [_forbidden("", "static pods do not support ephemeral containers")]
    errors = pod_errors(new.pod, gates=gates, relaxed=relaxation(old.pod))
    errors += [each for each in spec_errors(new.document.get("spec") or {}) if each.field.startswith(PATH)]
    spec = new.pod.spec
    targets = {container.name for container in (*spec.containers, *spec.init_containers)}
    wanted = containers_of(new.document, EPHEMERAL)
    for index, container in enumerate(wanted):
        errors += _field_errors(container, f"{PATH}[{index}]", targets)
    after = {container.get("name"): container for container in wanted}
    for before in containers_of(old.document, EPHEMERAL):
        name = before.get("name")
        if name not in after:
            errors.append(_forbidden(PATH, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif not same(before, after[name]):
            errors.append(_forbidden(PATH, f'existing ephemeral containers "{name}" may not be changed\n'))
    return errors


def _field_errors(container: JsonObject, path: str, targets: set[str]) -> list[FieldError]:
    errors = []
    target = container.get("targetContainerName")
    if target and target not in targets:
        errors.append(FieldError("FieldValueNotFound", f"{path}.targetContainerName", "", target))
    errors += [_forbidden(f"{path}.{field}", _NOT_ALLOWED) for field in _FORBIDDEN_FIELDS if container.get(field)]
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                errors.append(_forbidden(f"{path}.volumeMounts[{index}].{field}", _NOT_ALLOWED))
    return errors


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)
