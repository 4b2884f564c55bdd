"""Limits of local storage that the node enforces by eviction (04 §7)."""

from __future__ import annotations

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, Pod, ResourceList, is_sidecar


def storage_limits(pod: Pod, gates: Gates) -> ResourceList:
    """Container → the ephemeral-storage limit that the node evicts for."""
    sidecars = filter(is_sidecar, pod.spec.init_containers) if gates.sidecar_storage_limits else ()
    return {
        container.name: limit
        for container in (*sidecars, *pod.spec.containers)
        if (limit := (container.resources.limits or {}).get(EPHEMERAL_STORAGE))
    }
