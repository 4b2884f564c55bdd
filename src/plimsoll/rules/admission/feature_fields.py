"""The fields that a feature gate brings, by kind: what `disabled_fields` drops while the gate is off (05 B6).

Kubernetes: dropDisabledFields in pkg/api/pod/util.go, and PrepareForCreate and PrepareForUpdate below pkg/registry.
"""

from __future__ import annotations

import msgspec

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_AFFINITIES = tuple(
    f"spec.affinity.{kind}.{term}"
    for kind in ("podAffinity", "podAntiAffinity")
    for term in (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution.podAffinityTerm",
    )
)


class Feature(msgspec.Struct, frozen=True):
    """Paths of fields from the root of the object; a list on the way stands for each of its elements."""

    gate: str
    paths: tuple[str, ...]
    used: tuple[str, ...] = ()  # a stored object that has one of these keeps the fields; empty: the paths themselves

    def keeping(self) -> tuple[str, ...]:
        return self.used or self.paths


def of_containers(*fields: str) -> tuple[str, ...]:
    return tuple(f"spec.{each}.{field}" for field in fields for each in _CONTAINERS)


def _of_statuses(*fields: str) -> tuple[str, ...]:
    return tuple(f"status.{each}.{field}" for field in fields for each in _STATUSES)


def _spec(gate: str, *fields: str) -> Feature:
    return Feature(gate, tuple(f"spec.{field}" for field in fields))


_RESIZE_POLICIES = of_containers("resizePolicy")
_READ_ONLY = of_containers("volumeMounts.recursiveReadOnly")
_GROUPS = "spec.securityContext.supplementalGroupsPolicy"
_CLAIMS = "spec.resourceClaims"
_PROFILE = "securityContext.appArmorProfile"

# Of a pod, and of the template of a workload.
POD_FEATURES = (
    Feature("AppArmorFields", (f"spec.{_PROFILE}", *of_containers(_PROFILE))),
    Feature("ClusterTrustBundleProjection", ("spec.volumes.projected.sources.clusterTrustBundle",)),
    Feature("DynamicResourceAllocation", (_CLAIMS, *of_containers("resources.claims")), (_CLAIMS,)),
    Feature("DynamicResourceAllocation", ("status.resourceClaimStatuses",), (_CLAIMS,)),
    Feature("DRAExtendedResource", ("status.extendedResourceClaimStatus",)),
    Feature("EnvFiles", of_containers("env.valueFrom.fileKeyRef")),
    _spec("GenericWorkload", "schedulingGroup"),
    _spec("HostnameOverride", "hostnameOverride"),
    Feature("InPlacePodLevelResourcesVerticalScaling", ("status.resources", "status.allocatedResources")),
    Feature("InPlacePodVerticalScaling", _RESIZE_POLICIES),
    Feature(
        "InPlacePodVerticalScaling",
        (*_of_statuses("allocatedResources", "resources"), "status.resize"),
        _RESIZE_POLICIES,
    ),
    Feature("MatchLabelKeysInPodAffinity", tuple(
        f"{each}.{field}" for each in _AFFINITIES for field in ("matchLabelKeys", "mismatchLabelKeys")
    )),
    Feature("PodCertificateRequest", ("spec.volumes.projected.sources.podCertificate",)),
    Feature("PodHostIPs", ("status.hostIPs",)),
    Feature("PodLevelResources", ("spec.resources",), ("spec.resources.requests", "spec.resources.limits")),
    Feature("PodLifecycleSleepAction", of_containers("lifecycle.preStop.sleep", "lifecycle.postStart.sleep")),
    Feature("PodObservedGenerationTracking", ("status.observedGeneration", "status.conditions.observedGeneration")),
    Feature("RecursiveReadOnlyMounts", _READ_ONLY),
    Feature("RecursiveReadOnlyMounts", _of_statuses("volumeMounts"), _READ_ONLY),
    Feature("ResourceHealthStatus", _of_statuses("allocatedResourcesStatus")),
    _spec("SELinuxChangePolicy", "securityContext.seLinuxChangePolicy"),
    Feature("SidecarContainers", ("spec.initContainers.restartPolicy",)),
    Feature("SupplementalGroupsPolicy", (_GROUPS,)),
    Feature("SupplementalGroupsPolicy", _of_statuses("user"), (_GROUPS,)),
    _spec("UserNamespacesSupport", "hostUsers"),
)  # fmt: skip

# Where the pod, or the template of one, is in an object.
POD_PLACES: dict[str, tuple[str, ...]] = {
    "pods": (),
    "podtemplates": ("template",),
    **dict.fromkeys(
        ("daemonsets", "deployments", "jobs", "replicasets", "replicationcontrollers", "statefulsets"),
        ("spec", "template"),
    ),
    "cronjobs": ("spec", "jobTemplate", "spec", "template"),
}

_ATTRIBUTES = "volumeAttributesClassName"
KIND_FEATURES: dict[str, tuple[Feature, ...]] = {
    "customresourcedefinitions": (_spec("CustomResourceFieldSelectors", "versions.selectableFields"),),
    "deployments": (Feature("DeploymentReplicaSetTerminatingReplicas", ("status.terminatingReplicas",)),),
    "replicasets": (Feature("DeploymentReplicaSetTerminatingReplicas", ("status.terminatingReplicas",)),),
    "endpointslices": (Feature("PreferSameTrafficDistribution", ("endpoints.hints.forNodes",)),),
    "horizontalpodautoscalers": (
        _spec("HPAConfigurableTolerance", "behavior.scaleDown.tolerance", "behavior.scaleUp.tolerance"),
    ),
    "jobs": (
        _spec("JobBackoffLimitPerIndex", "backoffLimitPerIndex"),
        _spec("JobBackoffLimitPerIndex", "maxFailedIndexes"),
        _spec("JobManagedBy", "managedBy"),
        _spec("JobPodReplacementPolicy", "podReplacementPolicy"),
        _spec("JobSuccessPolicy", "successPolicy"),
    ),
    "leases": (
        _spec("CoordinatedLeaderElection", "strategy"),
        _spec("CoordinatedLeaderElection", "preferredHolder"),
    ),
    "nodes": (
        _spec("InPlacePodVerticalScalingSchedulerPreemption", "podPreemptionPolicy"),
        Feature("KubeletInUserNamespace", ("status.nodeInfo.runningInUserNamespace",)),
        Feature("NodeDeclaredFeatures", ("status.declaredFeatures",)),
        Feature("SupplementalGroupsPolicy", ("status.features",)),
    ),
    "persistentvolumeclaims": (
        _spec("VolumeAttributesClass", _ATTRIBUTES),
        Feature("VolumeAttributesClass", ("status.currentVolumeAttributesClassName",)),
        Feature("RecoverVolumeExpansionFailure", ("status.allocatedResources",)),
        Feature("RecoverVolumeExpansionFailure", ("status.allocatedResourceStatuses",)),
    ),
    "persistentvolumes": (
        _spec("VolumeAttributesClass", _ATTRIBUTES),
        Feature("PersistentVolumeLastPhaseTransitionTime", ("status.lastPhaseTransitionTime",)),
    ),
    "services": (
        _spec("ServiceTrafficDistribution", "trafficDistribution"),
        Feature("LoadBalancerIPMode", ("status.loadBalancer.ingress.ipMode",)),
    ),
    "statefulsets": (_spec("MaxUnavailableStatefulSet", "updateStrategy.rollingUpdate.maxUnavailable"),),
    **dict.fromkeys(
        ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
        (Feature("AdmissionWebhookMatchConditions", ("webhooks.matchConditions",)),),
    ),
}  # fmt: skip
