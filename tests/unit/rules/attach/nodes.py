"""A node and pods for the rules of attach."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.rules.attach.values import AttachedPod
from plimsoll.rules.config.parse import reading
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_of

MIB, GIB = 1 << 20, 1 << 30


def node(version: int = 2, *, driver: str = "cgroupfs", memory: int = 8 * GIB, **config: Any) -> NodeConfig:
    profile = profile_of("v1.36.0", "").profile
    return resolved(
        Machine(4, memory, {}, 0, name="n"),
        reading({"failCgroupV1": False, **config}, profile).config,
        profile,
        cgroup_version=version,  # type: ignore[arg-type]
        driver=driver,  # type: ignore[arg-type]
    )


def resources(memory: str | tuple[str, str] = "", cpu: str | tuple[str, str] = "") -> dict[str, Any]:
    """A text is both request and limit; of a pair the second is the limit, empty for none."""
    found: dict[str, Any] = {"requests": {}, "limits": {}}
    for name, given in (("memory", memory), ("cpu", cpu)):
        request, limit = (given, given) if isinstance(given, str) else given
        if request:
            found["requests"][name] = request
        if limit:
            found["limits"][name] = limit
    return found


def attached(
    name: str,
    *containers: dict[str, Any],
    namespace: str = "default",
    annotations: dict[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
) -> AttachedPod:
    document = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": annotations,
            "creationTimestamp": created,
        },
        "spec": {
            "containers": [
                {"name": f"c{index}", "image": "i", "resources": each} for index, each in enumerate(containers)
            ]
        },
    }
    pod = pod_from_json(msgspec.json.encode(document))
    return AttachedPod(pod, {f"c{index}": f"{name}{index}" for index in range(len(containers))})
