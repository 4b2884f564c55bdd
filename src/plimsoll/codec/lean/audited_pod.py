"""JSON → the pod that an audit needs: the lean pod, and ids, states and times from its status.

`redacted` is what a dump may contain: no environment, no arguments, no annotations but the few that rules read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import pod_from_json, quantity_hook
from plimsoll.errors import FieldError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.audit.evidence import AuditedPod, ConditionFacts, ContainerFacts
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MIRROR_ANNOTATION, SOURCE_ANNOTATION, ResourceList, Resources, is_mirror
from plimsoll.rules.resources.node_policy import MEMORY_QOS, OOM_GROUP
from plimsoll.rules.timestamps import epoch_seconds

CONFIG_HASH = "kubernetes.io/config.hash"  # of a mirror pod: the uid of the static pod, which names its cgroup
_KEPT_ANNOTATIONS = frozenset({CONFIG_HASH, MIRROR_ANNOTATION, SOURCE_ANNOTATION, MEMORY_QOS, OOM_GROUP})
RESIZE = "resize"  # the subresource
_SECRET = ("env", "envFrom", "command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _SecurityContext(msgspec.Struct, frozen=True):
    privileged: bool | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    volume_mounts: tuple[_Named, ...] | None = None
    security_context: _SecurityContext | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None


class _Ended(msgspec.Struct, frozen=True):
    reason: str = ""


class _State(msgspec.Struct, frozen=True):
    running: dict[str, Any] | None = None
    waiting: dict[str, Any] | None = None
    terminated: _Ended | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    state: _State | None = None
    last_state: _State | None = None
    restart_count: int = 0
    allocated_resources: ResourceList | None = None
    resources: Resources | None = None


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[_Condition, ...] | None = None
    container_statuses: tuple[_Status, ...] | None = None
    init_container_statuses: tuple[_Status, ...] | None = None
    ephemeral_container_statuses: tuple[_Status, ...] | None = None
    observed_generation: int | None = None


class _Written(msgspec.Struct, frozen=True):
    subresource: str = ""
    time: str | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_Written, ...] | None = None


class _Extras(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _PodStatus = _PodStatus()


@cache
def _decoder() -> msgspec.json.Decoder[_Extras]:
    return msgspec.json.Decoder(_Extras, dec_hook=quantity_hook)


def audited_pod(data: bytes) -> AuditedPod:
    """Raises InvalidObjectError."""
    pod = pod_from_json(data)
    try:
        extras = _decoder().decode(data)
    except (msgspec.ValidationError, InvalidQuantityError) as error:
        raise InvalidObjectError([FieldError("FieldValueInvalid", "status", str(error))]) from None
    annotations = pod.metadata.annotations or {}
    if is_mirror(pod) and annotations.get(CONFIG_HASH):
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=annotations[CONFIG_HASH]))
    status = extras.status
    statuses = (status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses)
    containers = [*(extras.spec.init_containers or ()), *(extras.spec.containers or ())]
    return AuditedPod(
        pod,
        {each.name: _facts(each) for group in statuses for each in group or ()},
        tuple(_condition(each) for each in status.conditions or ()),
        {each.name: tuple(mount.name for mount in each.volume_mounts or ()) for each in containers},
        frozenset(each.name for each in containers if each.security_context and each.security_context.privileged),
        status.observed_generation,
        _last_resize(extras.metadata),
    )


def _last_resize(metadata: _Metadata) -> float | None:
    """From the managed fields: the API server notes who wrote to the subresource, and when."""
    written = (epoch_seconds(each.time) for each in metadata.managed_fields or () if each.subresource == RESIZE)
    return max((each for each in written if each is not None), default=None)


def _facts(status: _Status) -> ContainerFacts:
    state = status.state or _State()
    last = status.last_state.terminated if status.last_state is not None else None
    ended = state.terminated or last
    return ContainerFacts(
        status.name,
        status.container_id.rpartition("//")[2],
        "running"
        if state.running is not None
        else "terminated"
        if state.terminated is not None
        else "waiting"
        if state.waiting is not None
        else "",
        status.restart_count,
        ended.reason if ended is not None else "",
        status.allocated_resources,
        status.resources,
    )


def _condition(each: _Condition) -> ConditionFacts:
    return ConditionFacts(
        each.type, each.status, each.reason or "", each.message or "", epoch_seconds(each.last_transition_time)
    )


# --- dumps ---


def redacted(pod: JsonObject) -> JsonObject:
    """The pod without what may be secret, and without what no rule reads."""
    metadata: JsonObject = dict(pod.get("metadata") or {})
    written = metadata.pop("managedFields", None)
    resizes = [each for each in written or () if isinstance(each, dict) and each.get("subresource") == RESIZE]
    if resizes:
        metadata["managedFields"] = [{"subresource": RESIZE, "time": each.get("time")} for each in resizes]
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key in _KEPT_ANNOTATIONS}
    spec: JsonObject = dict(pod.get("spec") or {})
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        if isinstance(spec.get(kind), list):
            spec[kind] = [_without(each, _SECRET) for each in spec[kind]]
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [_volume(each) for each in spec["volumes"]]
    spec.pop("imagePullSecrets", None)
    return {**pod, "metadata": metadata, "spec": spec}


def _without(value: Any, names: Iterable[str]) -> Any:
    if not isinstance(value, dict):
        return value
    dropped = frozenset(names)
    return {key: inner for key, inner in value.items() if key not in dropped}


def _volume(volume: Any) -> Any:
    """Only the kind of a volume, and the settings of an emptyDir."""
    if not isinstance(volume, dict):
        return volume
    return {key: value if key in ("name", "emptyDir") else {} for key, value in volume.items()}
