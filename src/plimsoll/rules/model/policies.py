"""Policies as lean objects: LimitRange, ResourceQuota and PodDisruptionBudget of a namespace, RuntimeClass.

As in `objects`: only the fields that matter to a rule, frozen, `None` for absent.
"""

from __future__ import annotations

from plimsoll.rules.model.objects import LabelSelector, Lean, Metadata, ResourceList, Toleration


class LimitRangeItem(Lean, frozen=True, gc=False):
    type: str = ""
    max: ResourceList | None = None
    min: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(Lean, frozen=True, gc=False):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: LimitRangeSpec = LimitRangeSpec()


class ScopeRequirement(Lean, frozen=True, gc=False):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Lean, frozen=True, gc=False):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Lean, frozen=True, gc=False):
    hard: ResourceList | None = None
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Lean, frozen=True, gc=False):
    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class DisruptionBudgetSpec(Lean, frozen=True, gc=False):
    selector: LabelSelector | None = None


class DisruptionBudgetStatus(Lean, frozen=True, gc=False):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class Overhead(Lean, frozen=True, gc=False):
    pod_fixed: ResourceList | None = None


class Scheduling(Lean, frozen=True, gc=False):
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class PriorityClass(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    value: int = 0
    global_default: bool = False
