"""JSON lines → pods for `plan`: fields that no plan depends on are skipped, not built.

The structs are those of `objects` with some fields renamed to names that no manifest has, so that they keep their
defaults.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import msgspec

from plimsoll.rules.model import objects


def _stepped_over(name: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=f"({name})")


class _Container(objects.Container, frozen=True, gc=False):
    image: str = _stepped_over("image", "")
    resize_policy: tuple[objects.ResizePolicy, ...] = _stepped_over("resizePolicy", ())
    ports: tuple[objects.Port, ...] = _stepped_over("ports", ())


class _PodSpec(objects.PodSpec, frozen=True, gc=False):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    ephemeral_containers: tuple[objects.Container, ...] = _stepped_over("ephemeralContainers", ())
    node_name: str = _stepped_over("nodeName", "")
    runtime_class_name: str | None = _stepped_over("runtimeClassName")
    volumes: tuple[objects.Volume, ...] = _stepped_over("volumes", ())
    tolerations: tuple[objects.Toleration, ...] = _stepped_over("tolerations", ())
    node_selector: dict[str, str] | None = _stepped_over("nodeSelector")
    affinity: objects.Affinity | None = _stepped_over("affinity")
    topology_spread_constraints: tuple[objects.TopologySpreadConstraint, ...] = _stepped_over("topologySpread", ())


class _Metadata(objects.Metadata, frozen=True, gc=False):
    labels: dict[str, str] | None = _stepped_over("labels")
    creation_timestamp: str | None = _stepped_over("creationTimestamp")


class _Pod(objects.Pod, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


@cache
def quick_decode() -> Callable[[bytes], objects.Pod]:
    """Created on first use. Refuses more than `lean.pod_from_json`, which then decides.

    Quantities are looked up in the memo without a Python function in between.
    """
    return msgspec.json.Decoder(_Pod, dec_hook=cast("Callable[[type, Any], Any]", operator.getitem)).decode
