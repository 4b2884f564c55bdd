"""Shared by the tests of resize validation: pods before and after."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import (
    kept_for_resize,
    resize_errors,
)
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named

BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}


GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


NO_PLR = Gates(pod_level_resize=False)


NEW = profile_named("1.36")


ALL = Gates()


def container(name: str = "c", resources: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "nginx", "resources": BURSTABLE if resources is None else resources, **fields}


def document(
    *containers: dict[str, Any],
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "demo", "namespace": "default", "uid": "u", "generation": 3, **(metadata or {})},
        "spec": {"nodeName": "n", "containers": list(containers or (container(),)), **spec},
        "status": status or {},
    }


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "requests": {**BURSTABLE["requests"], **(requests or {})},
        "limits": {**BURSTABLE["limits"], **(limits or {})},
    }


def direct(old: dict[str, Any], new: dict[str, Any], gates: Gates = ALL, profile: Any = NEW) -> list[FieldError]:
    return resize_errors(with_defaults(old), with_defaults(new), gates, profile)


def server(old: dict[str, Any], new: dict[str, Any], gates: Gates = ALL, profile: Any = NEW) -> list[FieldError]:
    stored, sent = with_defaults(old), with_defaults(new)
    kept = kept_for_resize(stored.document, sent.document, gates)
    return resize_errors(stored, PodVersion(kept, from_document(kept, Pod)), gates, profile)


def shown(errors: list[FieldError]) -> list[str]:
    return sorted(map(str, errors))


ONLY = "spec: Forbidden: only cpu and memory resources are mutable"


# What is refused, step by step. Rows: old, new, gates, expected.

INIT = container("i", {"requests": {"cpu": "1"}})


RESTARTING = [
    {"resourceName": "cpu", "restartPolicy": "RestartContainer"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]
