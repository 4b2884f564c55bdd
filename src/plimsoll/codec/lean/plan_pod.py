"""JSON lines → pods for `plan`: fields that no plan depends on are skipped, not built.

The structs stand in for those of `objects`. A skipped field is an attribute of the class, with the default that it has
there: msgspec then neither looks for it among the keys nor stores it in each pod.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, cast

import msgspec

from plimsoll.rules.model import objects


class _Container(objects.Lean, frozen=True, gc=False):
    name: str = ""
    resources: objects.Resources = objects.NO_RESOURCES
    restart_policy: str | None = None

    image: ClassVar[str] = ""
    restart_policy_rules: ClassVar[tuple[objects.RestartRule, ...]] = ()
    resize_policy: ClassVar[tuple[objects.ResizePolicy, ...]] = ()
    ports: ClassVar[tuple[objects.Port, ...]] = ()


class _PodSpec(objects.Lean, frozen=True, gc=False):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resources: objects.Resources | None = None
    overhead: objects.ResourceList | None = None
    priority: objects.Int32 | None = None
    priority_class_name: str = ""

    ephemeral_containers: ClassVar[tuple[objects.Container, ...]] = ()
    node_name: ClassVar[str] = ""
    preemption_policy: ClassVar[str | None] = None
    runtime_class_name: ClassVar[str | None] = None
    restart_policy: ClassVar[str | None] = None
    os: ClassVar[objects.PodOS | None] = None
    volumes: ClassVar[tuple[objects.Volume, ...]] = ()
    tolerations: ClassVar[tuple[objects.Toleration, ...]] = ()
    node_selector: ClassVar[dict[str, str] | None] = None
    affinity: ClassVar[objects.Affinity | None] = None
    topology_spread_constraints: ClassVar[tuple[objects.TopologySpreadConstraint, ...]] = ()
    host_network: ClassVar[bool] = False
    termination_grace_period_seconds: ClassVar[int | None] = None
    active_deadline_seconds: ClassVar[int | None] = None


class _Metadata(objects.Lean, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None

    labels: ClassVar[dict[str, str] | None] = None
    creation_timestamp: ClassVar[str | None] = None
    deletion_timestamp: ClassVar[str | None] = None
    deletion_grace_period_seconds: ClassVar[int | None] = None
    generation: ClassVar[int] = 0
    generate_name: ClassVar[str] = ""


class _Pod(objects.Lean, frozen=True, gc=False):
    kind: str = ""
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()
    status: objects.PodStatus = objects.NO_STATUS


@cache
def quick_decode() -> Callable[[bytes], objects.Pod]:
    """Created on first use. Refuses more than `lean.pod_from_json`, which then decides.

    Quantities are looked up in the memo without a Python function in between.
    """
    decode = msgspec.json.Decoder(_Pod, dec_hook=cast("Callable[[type, Any], Any]", operator.getitem)).decode
    return cast("Callable[[bytes], objects.Pod]", decode)
