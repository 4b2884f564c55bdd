"""Semantic equality of documents: are two versions of a pod's spec the same to Kubernetes (03 §4.1)?

Kubernetes compares decoded objects, we compare documents, so that no field is lost. What decoding would level out must
not count as a difference: null and absent, an absent and an empty list or map, `false`, `0` and `""` where the field
always has a value, `1000m` and `1`. What it keeps apart must: a block or scalar that is optional as a whole is absent
or present, even if empty (`spec.resources: {}` is not nothing). The tables below name the fields of a PodSpec that do
not follow the common rule; by it an object is an optional block and a scalar always has a value.
"""

from __future__ import annotations

from typing import Any

from plimsoll.errors import InvalidQuantity
from plimsoll.rules.quantity import QUANTITIES

_QUANTITY_MAPS = frozenset({"requests", "limits", "overhead"})
# Keys are data: whether one is there counts, whatever its value.
_MAPS = _QUANTITY_MAPS | {"nodeSelector", "labels", "annotations", "matchLabels", "volumeAttributes", "options"}
# Blocks that are always there, so that an empty one is an absent one. A list's items have no name of their own.
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
    """Equal to Kubernetes? `name` is the field that both values stand in."""
    if old is new or old == new:  # most of two versions is, and C compares fast
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
    except InvalidQuantity:
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
    """Two pod specs. Here `resources` is optional as a whole, in a container it is not."""
    return (old.get("resources") is None) != (new.get("resources") is None) or not same(old, new)
