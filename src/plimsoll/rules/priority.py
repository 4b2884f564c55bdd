"""Priorities that need no cluster to be known: the two built-in classes (spec 05 A5)."""

from __future__ import annotations

import msgspec

from plimsoll.rules.objects import SYSTEM_CRITICAL_PRIORITY, Pod

BUILT_IN = {
    "system-cluster-critical": SYSTEM_CRITICAL_PRIORITY,
    "system-node-critical": SYSTEM_CRITICAL_PRIORITY + 1000,
}


def admitted(pod: Pod) -> Pod:
    """The pod with the number that admission puts beside a built-in class; the same object where none is missing."""
    spec = pod.spec
    if spec.priority is not None or spec.priority_class_name not in BUILT_IN:
        return pod
    number = BUILT_IN[spec.priority_class_name]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, priority=number))
