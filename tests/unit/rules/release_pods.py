"""Nodes, pods and gates of a release, for tests that compare releases."""

from __future__ import annotations

from typing import Any

from plimsoll.rules.config.parse import default_config, reading
from plimsoll.rules.model.gates import Gates, resolved_gates
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES


def node(release: str, config: dict[str, Any] | None = None, **capacity: str) -> NodeConfig:
    amounts = {"cpu": "8", "memory": "8Gi"} | {name.replace("_", "-"): text for name, text in capacity.items()}
    machine = machine_from_capacity({name: QUANTITIES[text] for name, text in amounts.items()})
    profile = profile_named(release)
    return resolved(machine, reading(config, profile).config, profile)


def container(name: str = "c0", *, sidecar: bool = False, **lists: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": lists} | ({"restartPolicy": "Always"} if sidecar else {})


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [*containers], "initContainers": [*init], **spec},
    }


def gates_of(release: str) -> Gates:
    profile = profile_named(release)
    return resolved_gates(default_config(profile).feature_gates, profile)


def both(compute: Any) -> tuple[Any, Any]:
    return compute("1.36"), compute("1.37")
