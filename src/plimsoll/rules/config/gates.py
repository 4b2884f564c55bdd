"""Feature gates: those that a rule uses, and what each release says about any gate.

In a release's profile a gate has the release's default, and a gate that the release does not know, or has locked, is
refused with its words. In profile `documents` features that only add something are on, although 1.27 had them off or
not at all, and other gates are reported as without effect.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from plimsoll.rules.config.gate_history import HISTORY
from plimsoll.rules.profile import DOCUMENTS, Profile, minor

Stage = Literal["alpha", "beta", "GA", "deprecated"]
_STAGES: dict[str, Stage] = {"a": "alpha", "b": "beta", "g": "GA", "d": "deprecated"}


class Gate(msgspec.Struct, frozen=True):
    """A feature gate that a rule uses, with its default in profile `documents`."""

    name: str
    documents: bool
    description: str
    removed_as: bool = False  # its effect in releases that no longer have the gate
    lacks: str = ""  # what of it Plimsoll does not do

    def default(self, profile: Profile) -> bool:
        if profile.name == DOCUMENTS:
            return self.documents
        stage = gate_in(self.name, profile.release)
        if stage is not None:
            return stage.default
        return self.removed_as and minor(profile.release) >= _first_minor(self.name)


GATES = (
    Gate("AdmissionWebhookMatchConditions", True, "`matchConditions` of webhooks is stored.", True),
    Gate("AppArmorFields", True, "`appArmorProfile` of pods and containers is stored.", True),
    Gate("ClusterTrustBundleProjection", True, "A projected volume may have a `clusterTrustBundle`."),
    Gate("ContainerRestartRules", True, "Containers may have a restart policy and restart rules of their own."),
    Gate("ContainerStopSignals", True, "`lifecycle.stopSignal` of a container counts, and statuses show it."),
    Gate("CoordinatedLeaderElection", True, "`strategy` and `preferredHolder` of a Lease are stored."),
    Gate("CPUManagerPolicyAlphaOptions", True, "Options of the CPU manager of alpha quality may be set."),
    Gate("CPUManagerPolicyBetaOptions", True, "Options of the CPU manager of beta quality may be set."),
    Gate("CPUManagerPolicyOptions", True, "cpuManagerPolicyOptions may be set."),
    Gate("CustomCPUCFSQuotaPeriod", False, "cpuCFSQuotaPeriod may differ from 100ms."),
    Gate("CustomResourceFieldSelectors", True, "`selectableFields` of a CustomResourceDefinition is stored.", True),
    Gate("DefaultPodSysctls", False, "defaultPodSysctls may be set."),
    Gate("DisableCPUQuotaWithExclusiveCPUs", False, "Exclusive CPUs: the container and its pod have no CPU quota."),
    Gate(
        "DeploymentReplicaSetTerminatingReplicas",
        True,
        "`terminatingReplicas` in the status of Deployments and ReplicaSets is stored.",
    ),
    Gate("DRAExtendedResource", True, "`extendedResourceClaimStatus` in the status of a pod is stored."),
    Gate("DRANodeAllocatableResources", False, "Devices may replace cpu and memory in a pod's requests."),
    Gate("DynamicResourceAllocation", True, "`resourceClaims` of a pod is stored."),
    Gate("EnvFiles", True, "Variables may come from a file of a volume (`fileKeyRef`)."),
    Gate("GenericWorkload", True, "`schedulingGroup` of a pod is stored."),
    Gate("GracefulNodeShutdown", True, "A shutdown of the machine waits for the pods, by shutdownGracePeriod."),
    Gate("GracefulNodeShutdownBasedOnPodPriority", True, "shutdownGracePeriodByPodPriority may be set."),
    Gate("HostnameOverride", True, "`hostnameOverride` of a pod is stored."),
    Gate("HPAConfigurableTolerance", True, "`tolerance` of a HorizontalPodAutoscaler is stored."),
    Gate("HPAScaleToZero", False, "`minReplicas` of a HorizontalPodAutoscaler may be 0."),
    Gate("HugepageAwareEviction", False, "memory.available is reduced by the node's huge pages."),
    Gate("ImageVolume", True, "A volume may be an image."),
    Gate("InPlacePodLevelResourcesVerticalScaling", True, "Pod-level resources may be resized."),
    Gate("InPlacePodVerticalScaling", True, "Resources of a running pod may change."),
    Gate("InPlacePodVerticalScalingAllocatedStatus", False, "1.32: statuses show allocatedResources."),
    Gate("InPlacePodVerticalScalingExclusiveCPUs", False, "Containers with exclusive CPUs may be resized."),
    Gate("InPlacePodVerticalScalingExclusiveMemory", False, "Containers with NUMA-bound memory may be resized."),
    Gate("InPlacePodVerticalScalingInitContainers", True, "Ordinary init containers may be resized too."),
    Gate(
        "InPlacePodVerticalScalingMemoryBackedVolumes",
        False,
        "A memory-backed emptyDir may be resized.",
        lacks="the API server and the node decide by it, but the agent does not change the size of the volume",
    ),
    Gate(
        "InPlacePodVerticalScalingSchedulerPreemption",
        False,
        "The scheduler preempts for deferred resizes; critical pods no longer do on the node.",
    ),
    Gate("JobBackoffLimitPerIndex", True, "`backoffLimitPerIndex` and `maxFailedIndexes` of a Job are stored.", True),
    Gate("JobManagedBy", True, "`managedBy` of a Job is stored."),
    Gate("JobPodReplacementPolicy", True, "`podReplacementPolicy` of a Job is stored.", True),
    Gate("JobSuccessPolicy", True, "`successPolicy` of a Job is stored.", True),
    Gate("KubeletAllocatedPodsEndpoint", False, "The node serves its pods with what is allocated at /allocatedPods."),
    Gate("KubeletCrashLoopBackOffMax", True, "crashLoopBackOff.maxContainerRestartPeriod counts."),
    Gate("KubeletFineGrainedAuthz", True, "`nodes/pods`, `nodes/healthz` and `nodes/configz` allow their pages alone."),
    Gate("KubeletInUserNamespace", False, "The Node says whether its agent runs in a user namespace (since 1.37)."),
    Gate("LoadBalancerIPMode", True, "`ipMode` in the status of a Service is stored.", True),
    Gate("MatchLabelKeysInPodAffinity", True, "`matchLabelKeys` and `mismatchLabelKeys` of pod affinity are stored."),
    Gate(
        "MatchLabelKeysInPodTopologySpreadSelectorMerge",
        False,
        "`matchLabelKeys` of a spread constraint is merged into its stored selector.",
    ),
    Gate("MaxUnavailableStatefulSet", True, "`maxUnavailable` of a StatefulSet is stored."),
    Gate("MemoryManager", True, "memoryManagerPolicy counts.", True),
    Gate("MemoryQoS", False, "memory.high, and memory.min or memory.low, are written on cgroup v2."),
    Gate("MutablePodResourcesForSuspendedJobs", True, "A suspended Job may get other resources."),
    Gate("MutableSchedulingDirectivesForSuspendedJobs", True, "A suspended Job that has run may get other nodes."),
    Gate("NodeDeclaredFeatures", True, "`declaredFeatures` in the status of a Node is stored."),
    Gate("NodeSwap", True, "Containers may use swap, by memorySwap.swapBehavior."),
    Gate(
        "PersistentVolumeLastPhaseTransitionTime",
        True,
        "`lastPhaseTransitionTime` of a PersistentVolume is stored.",
        True,
    ),
    Gate("PodCertificateRequest", True, "A projected volume may have a `podCertificate`."),
    Gate("PodHostIPs", True, "`hostIPs` in the status of a pod is stored.", True),
    Gate(
        "PodLevelResourceManagers",
        False,
        "Exclusive CPUs also for pods with pod-level resources.",
        lacks="pods with pod-level resources get no exclusive CPUs",
    ),
    Gate("PodLevelResources", True, "`spec.resources` of a pod counts."),
    Gate("PodLevelResourcesFixDefaulting", False, "Pod-level limits are defaulted too, and requests in more cases."),
    Gate("PodLevelResourcesFixKubeletQOSClass", False, "An empty `spec.resources` does not decide the QoS class."),
    Gate("PodLifecycleSleepAction", True, "A lifecycle hook may sleep.", True),
    Gate("PodObservedGenerationTracking", True, "`observedGeneration` in the status of a pod is stored."),
    Gate("PodsAPI", False, "The node serves its pods by gRPC on a socket below its state directory."),
    Gate("PreferSameTrafficDistribution", True, "`forNodes` in the hints of an EndpointSlice is stored."),
    Gate("ProcMountType", True, "`procMount` of a container may be Unmasked."),
    Gate("QOSReserved", False, "qosReserved limits the lower QoS classes."),
    Gate(
        "RecoverVolumeExpansionFailure",
        True,
        "`allocatedResources` in the status of a PersistentVolumeClaim is stored.",
    ),
    Gate("RecursiveReadOnlyMounts", True, "`recursiveReadOnly` of a volume mount is stored."),
    Gate("ReduceDefaultCrashLoopBackOffDecay", False, "Crash back-off begins with 1 s and ends at 1 minute."),
    Gate("ResourceHealthStatus", True, "`allocatedResourcesStatus` of containers is stored."),
    Gate("RestartAllContainersOnContainerExits", True, "A restart rule may restart all containers of a pod."),
    Gate("SELinuxChangePolicy", True, "`seLinuxChangePolicy` of a pod is stored."),
    Gate("ServiceTrafficDistribution", True, "`trafficDistribution` of a Service is stored.", True),
    Gate("SidecarContainers", True, "Init containers with restartPolicy Always run beside the others.", True),
    Gate("SupplementalGroupsPolicy", True, "`supplementalGroupsPolicy` of a pod is stored."),
    Gate("TopologyManagerPolicyAlphaOptions", True, "Options of the topology manager of alpha quality may be set."),
    Gate("TopologyManagerPolicyBetaOptions", True, "Options of the topology manager of beta quality may be set."),
    Gate("TopologyManagerPolicyOptions", True, "topologyManagerPolicyOptions may be set."),
    Gate("UserNamespacesSupport", True, "`hostUsers` of a pod is stored."),
    Gate("VolumeAttributesClass", True, "`volumeAttributesClassName` is stored."),
)
KNOWN_GATES = {gate.name: gate for gate in GATES}


class GateStage(msgspec.Struct, frozen=True):
    """A gate in one release."""

    stage: Stage
    default: bool
    locked: bool

    def __str__(self) -> str:
        return f"{'on' if self.default else 'off'} {self.stage}{', locked' if self.locked else ''}"


@cache
def gate_in(name: str, release: str) -> GateStage | None:
    """None if the release does not have the gate."""
    return _stage(_histories().get(name, ""), minor(release))


def gates_in(release: str) -> dict[str, GateStage]:
    """Every gate of the release."""
    stages = ((name, gate_in(name, release)) for name in _histories())
    return {name: stage for name, stage in stages if stage is not None}


def refusal(name: str, on: bool, release: str) -> str:
    """Why a kubelet or API server of that release does not start with this gate, in its words; "" if it does."""
    stage = gate_in(name, release)
    if stage is None:
        return f"unrecognized feature gate: {name}"
    if stage.locked and on != stage.default:
        return f"cannot set feature gate {name} to {_go(on)}, feature is locked to {_go(stage.default)}"
    return ""


def _go(truth: bool) -> str:
    return "true" if truth else "false"


@cache
def _histories() -> dict[str, str]:
    return dict(line.split(" ", 1) for line in HISTORY.splitlines())


def _first_minor(name: str) -> int:
    return int(_histories()[name][:2])


def _stage(history: str, release: int) -> GateStage | None:
    current = "."
    for change in history.split():
        if int(change[:2]) > release:
            break
        current = change[2:]
    return None if current == "." else GateStage(_STAGES[current[0]], current[1] == "+", current.endswith("!"))
