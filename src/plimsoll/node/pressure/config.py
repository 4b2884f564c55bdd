"""What eviction is configured with, and where it reports."""

from __future__ import annotations

from typing import Protocol

import msgspec

from plimsoll.rules.config.extras import NodeExtras
from plimsoll.rules.config.thresholds import DEFAULT_TRANSITION_PERIOD_S, FsLayout, Threshold, with_containerfs
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.node.node_config import NodeConfig


class EvictionConfig(msgspec.Struct, frozen=True):
    thresholds: tuple[Threshold, ...]
    layout: FsLayout = "single"
    max_pod_grace_s: int = 0
    hard_grace_s: int | None = None
    transition_period_s: float = DEFAULT_TRANSITION_PERIOD_S
    storage_limits: bool = True  # localStorageCapacityIsolation
    gates: Gates = DEFAULT_GATES


def eviction_config(setting: NodeConfig, extras: NodeExtras, layout: FsLayout) -> EvictionConfig:
    config = setting.config
    return EvictionConfig(
        with_containerfs(setting.thresholds, layout),
        layout,
        max_pod_grace_s=config.eviction_max_pod_grace_period_s,
        hard_grace_s=extras.eviction_hard_grace_s,
        transition_period_s=config.eviction_pressure_transition_period_s,
        storage_limits=config.local_storage_capacity_isolation,
        gates=setting.policy.gates,
    )


class EvictionSink(Protocol):
    """Where the eviction manager reports."""

    def event(self, kind: str, reason: str, message: str, /) -> None:
        """An event about the node."""

    def condition_changed(self) -> None:
        """The pressure conditions of the node are not what they were."""

    def evicted(self, signal: str, age_s: float, /) -> None:
        """A pod is evicted for this signal, `age_s` seconds after the signal was read."""
