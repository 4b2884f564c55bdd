"""Comparison of two versions of a pod, the stored and the new one: what changed apart from cpu and memory.

Lean pods lack most fields, so a version has both views: rules compute with the *pod*; whether any other field changed
is read from the *document*. The comparison is always the same: set the old cpu and memory in the new version (*mask*
it) and compare the whole with the old one.

`same` is Kubernetes' semantic equality (03 §4.1) for documents. Kubernetes compares decoded objects; documents are
compared here so that no field is lost. What decoding makes equal is no difference: null and absent, an absent and an
empty list or map, `false`, `0` and `""` where the field always has a value, `1000m` and `1`. What decoding
distinguishes is one: a block or scalar that is optional as a whole is absent or present, even if empty
(`spec.resources: {}` is not absent). The tables below list the fields of a PodSpec that do not follow the common rule;
by that rule an object is an optional block and a scalar always has a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU, MEMORY, Container, Pod
from plimsoll.rules.quantity import QUANTITIES

LISTS: tuple[Literal["requests", "limits"], ...] = ("requests", "limits")
CONTAINER_KINDS = ("containers", "initContainers")


class PodVersion(msgspec.Struct, frozen=True):
    """Both views of a version. The document is defaulted: its resource lists are those of the pod."""

    document: JsonObject
    pod: Pod


def spec_of(document: JsonObject) -> JsonObject:
    return document.get("spec") or {}


def containers_of(document: JsonObject, kind: str) -> list[JsonObject]:
    return [container or {} for container in spec_of(document).get(kind) or ()]


def container_pairs(old: JsonObject, new: JsonObject, kind: str) -> list[tuple[JsonObject, JsonObject]]:
    """Containers by index; both lists must have the same length."""
    return list(zip(containers_of(old, kind), containers_of(new, kind), strict=True))


def container_lists(old: Pod, new: Pod) -> Iterable[tuple[str, tuple[Container, ...], tuple[Container, ...]]]:
    """Each kind of container with both pods' lists."""
    yield "containers", old.spec.containers, new.spec.containers
    yield "initContainers", old.spec.init_containers, new.spec.init_containers


def masked_container(before: JsonObject, after: JsonObject, *, new_lists: bool = True) -> JsonObject:
    """Without `new_lists` (up to 1.34) a list that the old version lacks is never a change."""
    masked = masked_resources(before.get("resources"), after.get("resources"))
    if not new_lists:
        masked = {kind: amounts for kind, amounts in masked.items() if (before.get("resources") or {}).get(kind)}
    return {**after, "resources": masked}


def masked_resources(before: JsonObject | None, after: JsonObject | None) -> JsonObject:
    """Only requests and limits: claims are dropped, so old ones always count as a change and new ones never."""
    return {kind: _masked_list((before or {}).get(kind), (after or {}).get(kind)) for kind in LISTS}


def _masked_list(before: JsonObject | None, after: JsonObject | None) -> JsonObject:
    masked = {name: amount for name, amount in (after or {}).items() if name not in (CPU, MEMORY)}
    for name in (CPU, MEMORY):
        if before and name in before:
            masked[name] = before[name]
    return masked


_QUANTITY_MAPS = frozenset({"requests", "limits", "overhead"})
# Keys are data: their presence counts, whatever the value.
_MAPS = _QUANTITY_MAPS | {"nodeSelector", "labels", "annotations", "matchLabels", "volumeAttributes", "options"}
# Blocks that always exist, so that empty equals absent. The items of a list have no name of their own.
_BLOCKS = frozenset({"", "resources", "preference", "podAffinityTerm", "metadata", "spec"})
_QUANTITIES = frozenset({"sizeLimit", "divisor"})
_OPTIONAL_SCALARS = frozenset(
    {
        "activeDeadlineSeconds",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "defaultMode",
        "enableServiceLinks",
        "expirationSeconds",
        "fsGroup",
        "fsGroupChangePolicy",
        "hostUsers",
        "hostnameOverride",
        "localhostProfile",
        "minDomains",
        "mode",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "optional",
        "preemptionPolicy",
        "priority",
        "privileged",
        "procMount",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "runtimeClassName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "sizeLimit",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    }
)


def same(old: Any, new: Any, name: str = "") -> bool:
    """Whether Kubernetes considers both values equal. `name` is the field that contains them."""
    if old is new or old == new:  # most values are equal, and this comparison is fast
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        if name in _MAPS:
            return _same_map(old, new, quantities=name in _QUANTITY_MAPS)
        return all(same(old.get(key), new.get(key), key) for key in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    if _is_absent(old, name) or _is_absent(new, name):
        return _is_absent(old, name) and _is_absent(new, name)
    if name in _QUANTITIES:
        return _same_quantity(old, new)
    return bool(old == new)


def _same_map(old: dict[str, Any], new: dict[str, Any], *, quantities: bool) -> bool:
    if old.keys() != new.keys():
        return False
    compare = _same_quantity if quantities else same
    return all(compare(value, new[key]) for key, value in old.items())


def _same_quantity(old: Any, new: Any) -> bool:
    return bool(_amount(old) == _amount(new))


def _amount(value: Any) -> Any:
    try:
        return QUANTITIES[str(0 if value is None else value).strip()]
    except InvalidQuantityError:
        return value


def _is_absent(value: Any, name: str) -> bool:
    if value is None:
        return True
    if isinstance(value, list):
        return not value
    if isinstance(value, dict):
        if name in _MAPS:
            return not value
        return name in _BLOCKS and all(_is_absent(inner, key) for key, inner in value.items())
    return not value and name not in _OPTIONAL_SCALARS


def specs_differ(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """For two pod specs. Here `resources` is optional as a whole; in a container it is not."""
    return (old.get("resources") is None) != (new.get("resources") is None) or not same(old, new)
