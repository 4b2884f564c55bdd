"""Which strategy belongs to which resource."""

from __future__ import annotations

from functools import cache

from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.strategies.base import Strategy
from plimsoll.api.strategies.cluster import (
    ConfigMapStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
)
from plimsoll.api.strategies.jobs import CronJobStrategy, JobStrategy
from plimsoll.api.strategies.pods import PodStrategy
from plimsoll.api.strategies.policies import (
    DisruptionBudgetStrategy,
    LimitRangeStrategy,
    PriorityClassStrategy,
    QuotaStrategy,
    RuntimeClassStrategy,
    ServiceAccountStrategy,
)
from plimsoll.api.strategies.secrets import SecretStrategy
from plimsoll.api.strategies.workloads import (
    ControllerRevisionStrategy,
    DaemonSetStrategy,
    PodTemplateStrategy,
    ReplicationControllerStrategy,
    StatefulSetStrategy,
    WorkloadStrategy,
)

_STRATEGIES: dict[str, type[Strategy]] = {
    "configmaps": ConfigMapStrategy,
    "controllerrevisions": ControllerRevisionStrategy,
    "cronjobs": CronJobStrategy,
    "daemonsets": DaemonSetStrategy,
    "deployments": WorkloadStrategy,
    "events": EventStrategy,
    "jobs": JobStrategy,
    "leases": LeaseStrategy,
    "limitranges": LimitRangeStrategy,
    "namespaces": NamespaceStrategy,
    "nodes": NodeStrategy,
    "poddisruptionbudgets": DisruptionBudgetStrategy,
    "pods": PodStrategy,
    "podtemplates": PodTemplateStrategy,
    "priorityclasses": PriorityClassStrategy,
    "replicasets": WorkloadStrategy,
    "replicationcontrollers": ReplicationControllerStrategy,
    "resourcequotas": QuotaStrategy,
    "runtimeclasses": RuntimeClassStrategy,
    "secrets": SecretStrategy,
    "serviceaccounts": ServiceAccountStrategy,
    "statefulsets": StatefulSetStrategy,
}


@cache
def strategy(resource: ApiResource) -> Strategy:
    return _STRATEGIES[resource.storage](resource)
