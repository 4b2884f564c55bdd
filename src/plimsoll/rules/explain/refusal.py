"""Why no value is computed for a pod: what cannot be read, and what an API server would refuse about the rest."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.errors import FieldError
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.model.cgroup_names import uid_errors
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.resources.bounds import oversized


def refusal_errors(desired: Pod, unreadable: Iterable[FieldError], gates: Gates) -> list[FieldError]:
    """`unreadable` first, then the findings about the defaulted pod.

    A finding that follows from something unreadable is left out: a container with an unreadable amount is not
    validated further. Several findings about one field are all listed, as an API server does (V-2 and V-3).
    """
    errors = list(unreadable)
    unread = {error.field for error in errors}
    broken = {_owner(error.field) for error in errors}
    for error in (*uid_errors(desired.metadata.uid), *create_errors(desired, gates=gates), *oversized(desired)):
        follows = error.field in unread or any(_is_below(error.field, other.field) for other in errors)
        if _owner(error.field) not in broken and not follows and error not in errors:
            errors.append(error)
    return errors


def _is_below(field: str, other: str) -> bool:
    return field.startswith((f"{other}.", f"{other}["))


def _owner(field: str) -> str:
    """The block that a field is validated with: the resources of its container or pod."""
    return field.partition(".resources")[0] if ".resources" in field else field
