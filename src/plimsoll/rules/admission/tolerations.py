"""Tolerations: what the API server accepts, and how the ones of a RuntimeClass join those of a pod (05 B6).

Kubernetes: ValidateTolerations in pkg/apis/core/validation, pkg/util/tolerations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from plimsoll.errors import FieldError
from plimsoll.rules.model.names import label_value_problems, qualified_name_problems
from plimsoll.rules.model.objects import Toleration

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")


def toleration_errors(tolerations: Sequence[Toleration], path: str) -> list[FieldError]:
    errors = []
    for index, toleration in enumerate(tolerations):
        errors += _errors(toleration, f"{path}[{index}]")
    return errors


def _errors(toleration: Toleration, path: str) -> list[FieldError]:
    errors = []
    if toleration.key:
        errors += [_invalid(f"{path}.key", toleration.key, each) for each in qualified_name_problems(toleration.key)]
    elif toleration.operator != "Exists":
        reason = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(_invalid(f"{path}.operator", toleration.operator, reason))
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        reason = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(_invalid(f"{path}.effect", toleration.effect, reason))
    if toleration.operator in ("", "Equal"):
        if problems := label_value_problems(toleration.value):
            errors.append(_invalid(f"{path}.operator", toleration.value, ";".join(problems)))
    elif toleration.operator == "Exists":
        if toleration.value:
            reason = "value must be empty when `operator` is 'Exists'"
            errors.append(_invalid(f"{path}.operator", toleration.value, reason))
    else:
        errors.append(_unsupported(f"{path}.operator", toleration.operator, _OPERATORS))
    if toleration.effect and toleration.effect not in EFFECTS:
        errors.append(_unsupported(f"{path}.effect", toleration.effect, EFFECTS))
    return errors


def merged_tolerations(first: Sequence[Toleration], second: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Both, without those that another one covers; of two equal ones the first is kept."""
    every = (*first, *second)
    by_place: dict[_Place, list[tuple[int, Toleration]]] = {}
    for index, toleration in enumerate(every):
        by_place.setdefault(_place(toleration), []).append((index, toleration))
    kept: dict[_Place, list[Toleration]] = {}
    merged: list[Toleration] = []
    for index, toleration in enumerate(every):
        # Only these can cover it: a pod may have tens of thousands.
        places = dict.fromkeys((_place(toleration), (True, toleration.key, ""), (True, "", "")))
        if any(_covers(other, toleration) for place in places for other in kept.get(place, ())):
            continue
        later = (other for place in places for _, other in _after(by_place.get(place, []), index))
        if not any(_covers(other, toleration) and other != toleration for other in later):
            merged.append(toleration)
            kept.setdefault(_place(toleration), []).append(toleration)
    return tuple(merged)


_Place = tuple[bool, str, str]


def _place(toleration: Toleration) -> _Place:
    """Whether it tolerates every value of its key, the key, and else the value."""
    is_any = toleration.operator == "Exists"
    return is_any, toleration.key, "" if is_any else toleration.value


def _after(found: list[tuple[int, Toleration]], index: int) -> Iterator[tuple[int, Toleration]]:
    for at in range(bisect_right(found, index, key=lambda each: each[0]), len(found)):
        yield found[at]


def _covers(wide: Toleration, narrow: Toleration) -> bool:
    """Whether every taint that `narrow` tolerates is tolerated by `wide`, and for at least as long."""
    if wide == narrow:
        return True
    if narrow.key != wide.key and (wide.key or wide.operator != "Exists"):
        return False
    if narrow.effect != wide.effect and wide.effect:
        return False
    if wide.effect == "NoExecute" and wide.toleration_seconds is not None:
        stays_s = narrow.toleration_seconds
        if stays_s is None or stays_s > wide.toleration_seconds:
            return False
    if wide.operator in ("", "Equal"):
        return narrow.operator == "Equal" and narrow.value == wide.value
    return wide.operator == "Exists"


def _invalid(path: str, value: str, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def _unsupported(path: str, value: str, supported: Sequence[str]) -> FieldError:
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)
