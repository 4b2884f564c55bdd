"""Shared by the tests of pod validation."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.resources.defaulting import defaulted

C0 = "spec.containers[0]"


I0 = "spec.initContainers[0]"


def container(name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "nginx", **fields}


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    document = {
        "metadata": {"name": "p", "namespace": "default", **(metadata or {})},
        "spec": {"containers": list(containers or (container(),)), **spec},
    }
    return defaulted(from_document(document, Pod))


def pod_level(resources: dict[str, Any], *containers: dict[str, Any], **spec: Any) -> Pod:
    return pod(*containers, resources=resources, **spec)


def shown(errors: list[FieldError]) -> list[str]:
    return sorted(map(str, errors))
