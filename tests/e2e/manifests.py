"""Manifests for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any


def pod(name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> str:
    """A pod; without containers one that is Burstable. As JSON, which is also YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **({"labels": labels} if labels else {})},
            "spec": {"containers": list(containers) or [container(name)], "terminationGracePeriodSeconds": 2, **spec},
        }
    )


def container(
    name: str, cpu: str = "100m", memory: str = "32Mi", *, limits: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": cpu, "memory": memory}}
    if limits:
        resources["limits"] = limits
    return {"name": name, "image": "nginx:1.25", "resources": resources, **fields}


def shell(name: str, script: str, **fields: Any) -> dict[str, Any]:
    """A container that runs a script."""
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], **fields}


def limits(memory: str, cpu: str = "100m") -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory, "cpu": cpu}}}


def guaranteed(name: str, cpu: str, memory: str, **fields: Any) -> dict[str, Any]:
    return container(name, cpu, memory, limits={"cpu": cpu, "memory": memory}, **fields)


def resized(name: str, requests: dict[str, str | None], limits: dict[str, str | None] | None = None) -> str:
    """A strategic patch of one container's resources."""
    resources = {"requests": requests, **({"limits": limits} if limits is not None else {})}
    return json.dumps({"spec": {"containers": [{"name": name, "resources": resources}]}})


def together(*manifests: str) -> str:
    """One document for several: a stream of JSON may not be cut by `---` (06 Y4)."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [json.loads(each) for each in manifests]})
