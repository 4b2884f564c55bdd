"""Which strategy belongs to which resource."""

from __future__ import annotations

from functools import lru_cache

from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.strategies.admission import (
    MutatingPolicyStrategy,
    PolicyBindingStrategy,
    PolicyStrategy,
    WebhookStrategy,
)
from plimsoll.api.strategies.base import Strategy
from plimsoll.api.strategies.certificates import CertificateRequestStrategy, TrustBundleStrategy
from plimsoll.api.strategies.cluster import (
    ConfigMapStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
)
from plimsoll.api.strategies.custom import CustomResourceDefinitionStrategy, CustomStrategy
from plimsoll.api.strategies.jobs import CronJobStrategy, JobStrategy
from plimsoll.api.strategies.networking import IngressClassStrategy, IngressStrategy, NetworkPolicyStrategy
from plimsoll.api.strategies.pods import PodStrategy
from plimsoll.api.strategies.policies import (
    DisruptionBudgetStrategy,
    LimitRangeStrategy,
    PriorityClassStrategy,
    QuotaStrategy,
    RuntimeClassStrategy,
    ServiceAccountStrategy,
)
from plimsoll.api.strategies.registration import ApiServiceStrategy
from plimsoll.api.strategies.roles import BindingStrategy, RoleStrategy
from plimsoll.api.strategies.secrets import SecretStrategy
from plimsoll.api.strategies.services import EndpointSliceStrategy, EndpointsStrategy, ServiceStrategy
from plimsoll.api.strategies.storage import (
    ClaimStrategy,
    CsiNodeStrategy,
    StorageClassStrategy,
    VolumeAttributesClassStrategy,
    VolumeStrategy,
)
from plimsoll.api.strategies.workloads import (
    AutoscalerStrategy,
    ControllerRevisionStrategy,
    DaemonSetStrategy,
    PodTemplateStrategy,
    ReplicationControllerStrategy,
    StatefulSetStrategy,
    WorkloadStrategy,
)

_STRATEGIES: dict[str, type[Strategy]] = {
    "apiservices": ApiServiceStrategy,
    "certificatesigningrequests": CertificateRequestStrategy,
    "clustertrustbundles": TrustBundleStrategy,
    "clusterrolebindings": BindingStrategy,
    "clusterroles": RoleStrategy,
    "configmaps": ConfigMapStrategy,
    "controllerrevisions": ControllerRevisionStrategy,
    "cronjobs": CronJobStrategy,
    "csinodes": CsiNodeStrategy,
    "customresourcedefinitions": CustomResourceDefinitionStrategy,
    "daemonsets": DaemonSetStrategy,
    "deployments": WorkloadStrategy,
    "endpoints": EndpointsStrategy,
    "endpointslices": EndpointSliceStrategy,
    "events": EventStrategy,
    "horizontalpodautoscalers": AutoscalerStrategy,
    "ingressclasses": IngressClassStrategy,
    "ingresses": IngressStrategy,
    "jobs": JobStrategy,
    "leases": LeaseStrategy,
    "limitranges": LimitRangeStrategy,
    "mutatingadmissionpolicies": MutatingPolicyStrategy,
    "mutatingadmissionpolicybindings": PolicyBindingStrategy,
    "mutatingwebhookconfigurations": WebhookStrategy,
    "namespaces": NamespaceStrategy,
    "networkpolicies": NetworkPolicyStrategy,
    "nodes": NodeStrategy,
    "persistentvolumeclaims": ClaimStrategy,
    "persistentvolumes": VolumeStrategy,
    "poddisruptionbudgets": DisruptionBudgetStrategy,
    "pods": PodStrategy,
    "podtemplates": PodTemplateStrategy,
    "priorityclasses": PriorityClassStrategy,
    "replicasets": WorkloadStrategy,
    "replicationcontrollers": ReplicationControllerStrategy,
    "resourcequotas": QuotaStrategy,
    "rolebindings": BindingStrategy,
    "roles": RoleStrategy,
    "runtimeclasses": RuntimeClassStrategy,
    "secrets": SecretStrategy,
    "serviceaccounts": ServiceAccountStrategy,
    "services": ServiceStrategy,
    "statefulsets": StatefulSetStrategy,
    "storageclasses": StorageClassStrategy,
    "validatingadmissionpolicies": PolicyStrategy,
    "validatingadmissionpolicybindings": PolicyBindingStrategy,
    "validatingwebhookconfigurations": WebhookStrategy,
    "volumeattributesclasses": VolumeAttributesClassStrategy,
}


@lru_cache(512)  # custom resources come and go
def strategy(resource: ApiResource) -> Strategy:
    if resource.custom is not None:
        return CustomStrategy(resource)
    return _STRATEGIES[resource.storage](resource)
