"""Every event that Plimsoll records: its reason, what it is about, what it tells; docs/reference/events.md shows it.

A test compares this table with the reasons in the code. The texts of the events are where they are recorded.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Type = Literal["Normal", "Warning", "both"]


class EventReason(msgspec.Struct, frozen=True):
    """`own`: only Plimsoll has it; Kubernetes has the others, with the same texts."""

    reason: str
    type: Type
    meaning: str
    own: bool = False


def _own(reason: str, type_: Type, meaning: str) -> EventReason:
    return EventReason(reason, type_, meaning, own=True)


_POD_LIFE = (
    EventReason("Pulling", "Normal", "The node begins to pull an image."),
    EventReason("Pulled", "Normal", "The image is there; the text says whether it was pulled, and how long that took."),
    _own("ImageIgnored", "Normal", "The embedded runtime runs a program of the machine in place of the image."),
    EventReason("Created", "Normal", "A container was created."),
    EventReason("Started", "Normal", "A container was started."),
    EventReason("Killing", "Normal", "A container is being stopped; the text gives the reason."),
    EventReason("BackOff", "both", "A failed container, or a failed pull (Normal), is tried again after a pause."),
    EventReason("Failed", "Warning", "An image could not be pulled, or a container not be created or started."),
    EventReason("ErrImageNeverPull", "Warning", "The image is missing, and its pull policy is Never."),
    EventReason("FailedCreatePodSandBox", "Warning", "The sandbox of the pod could not be created."),
    EventReason("SandboxChanged", "Normal", "The sandbox of the pod is gone and is created again."),
    EventReason("FailedMount", "Warning", "A volume could not be prepared, for example because a Secret is missing."),
    EventReason("FailedSync", "Warning", "An attempt to bring the pod to its desired state failed; it is repeated."),
    EventReason("DeadlineExceeded", "Normal", "The pod was active for longer than activeDeadlineSeconds."),
    EventReason("Unhealthy", "Warning", "A probe failed."),
    EventReason("ProbeWarning", "Warning", "A probe succeeded with a redirect to another host."),
    EventReason("FailedPostStartHook", "Warning", "The postStart hook failed, and the container is stopped."),
    EventReason("FailedPreStopHook", "Warning", "The preStop hook failed; the container is stopped nevertheless."),
    EventReason("LifecycleHTTPFallback", "Warning", "A hook with HTTPS was answered with HTTP and repeated that way."),
    EventReason("InvalidEnvironmentVariableNames", "Warning", "Keys of envFrom that are no valid names were left out."),
)
_ADMISSION = (
    EventReason("OutOfcpu", "Warning", "The node lacks a resource that the pod requests: `OutOf` and its name."),
    EventReason("UnexpectedAdmissionError", "Warning", "A resource manager or a device plugin refused the pod."),
    EventReason("NodeAffinity", "Warning", "The labels of the node do not match the pod."),
    EventReason("NodeName", "Warning", "The pod names another node."),
    EventReason("NodePorts", "Warning", "A host port of the pod is in use."),
    EventReason("TaintToleration", "Warning", "The pod does not tolerate a taint of the node."),
    EventReason("PodOSNotSupported", "Warning", "The pod is for another operating system."),
    EventReason("PodOSSelectorNodeLabelDoesNotMatch", "Warning", "The pod selects another operating system."),
    EventReason("SysctlForbidden", "Warning", "A sysctl of the pod is not allowed on this node."),
    EventReason("AppArmor", "Warning", "The pod needs AppArmor, which the kernel does not have enabled."),
    EventReason("SupplementalGroupsPolicyNotSupported", "Warning", "The runtime lacks a policy for groups."),
    EventReason("Preempting", "Warning", "The pod is terminated because a critical pod needs its resources."),
    _own("CPUAssignedTwice", "Warning", "The release of the profile assigns a CPU that has another owner as well."),
)
_RESIZE = (
    EventReason("ResizeStarted", "Normal", "The node has accepted a resize and carries it out."),
    EventReason("ResizeCompleted", "Normal", "All containers have their new resources."),
    EventReason("ResizeDeferred", "Warning", "The node does not have enough free resources now; the resize waits."),
    EventReason("ResizeInfeasible", "Warning", "The resize can never be carried out on this node."),
    EventReason("ResizeError", "Warning", "An accepted resize failed and is tried again."),
)
_PRESSURE = (
    EventReason("Evicted", "Warning", "The pod was evicted; the text names the resource, the threshold and its usage."),
    EventReason("ExceededGracePeriod", "Warning", "An evicted pod did not end in time."),
    _own("EvictionDecision", "Normal", "Why this pod was evicted and not another: the deciding key."),
    _own("OOMKilling", "Warning", "The kernel killed processes of a container; the text says whose limit was reached."),
    _own("MemoryThrottled", "Warning", "A container is stalled above memory.high; the text says what was done."),
    _own("NoEffect", "Warning", "A setting of the pod has no effect on this node."),
    _own("OOMScoreNotSet", "Warning", "The kernel refused the oom_score_adj of a container."),
    _own("InvalidIOAnnotation", "Warning", "An annotation about block I/O is not valid, or above the node's ceiling."),
    _own("CgroupRepaired", "Warning", "A cgroup file had been changed from outside and was written again."),
    _own("FailedCgroupRepair", "Warning", "A cgroup file differs from what it should be and cannot be written."),
)
_NODE = (
    EventReason("Starting", "Normal", "The node agent has started."),
    EventReason("CgroupV1", "Warning", "The node has cgroup v1, which newer releases of Kubernetes do not support."),
    EventReason("NodeReady", "Normal", "The node has become ready."),
    EventReason("NodeNotReady", "Normal", "The node has ceased to be ready."),
    EventReason("NodeHasSufficientMemory", "Normal", "There is no shortage of memory (any more)."),
    EventReason("NodeHasInsufficientMemory", "Normal", "An eviction threshold for memory is met."),
    EventReason("NodeHasNoDiskPressure", "Normal", "There is no shortage of disk space (any more)."),
    EventReason("NodeHasDiskPressure", "Normal", "An eviction threshold for disk space or inodes is met."),
    EventReason("NodeHasSufficientPID", "Normal", "There is no shortage of process ids (any more)."),
    EventReason("NodeHasInsufficientPID", "Normal", "An eviction threshold for process ids is met."),
    EventReason("NodeAllocatableEnforced", "Normal", "The limits of all pods together are written."),
    EventReason("EvictionThresholdMet", "Warning", "The node tries to reclaim a resource before it evicts pods."),
    EventReason("SystemOOM", "Warning", "The machine as a whole was out of memory, and the kernel killed a process."),
    EventReason("FreeDiskSpaceFailed", "Warning", "Removing unused images did not free enough disk space."),
    EventReason("NodeShutdown", "Normal", "The machine is shutting down, and pods are ended in order."),
    _own("ShutdownDelayTooShort", "Warning", "The machine grants less time for a shutdown than is configured."),
    _own("DeclaredCapacity", "Normal", "The node offers a declared capacity instead of that of the machine."),
    _own("LimitsNotEnforced", "Warning", "Cgroups cannot be written: limits are simulated."),
    _own("IOWeightsNotEnforced", "Warning", "The scheduler of a block device has no weights."),
    _own("ContainersNotIsolated", "Warning", "The embedded runtime cannot isolate containers on this machine."),
    _own("CgroupDriverMismatch", "Warning", "The runtime uses another cgroup driver than the node."),
    _own("MemoryQoSUnsupported", "Warning", "The runtime does not carry out Memory QoS."),
    _own("InvalidStaticPod", "Warning", "A manifest in the directory of static pods is not valid."),
    _own("DevicePlugin", "Warning", "A device plugin does not keep to the protocol, or its checkpoint is damaged."),
)
_SCHEDULER = (
    EventReason("Scheduled", "Normal", "The pod was assigned to a node."),
    EventReason("FailedScheduling", "Warning", "No node fits; the text counts the nodes by reason."),
    EventReason("Preempted", "Normal", "The pod is deleted because a pod of higher priority needs its place."),
)
_CONTROLLERS = (
    EventReason("SuccessfulCreate", "Normal", "A workload has created a pod or a job."),
    EventReason("SuccessfulDelete", "Normal", "A workload has deleted a pod or a job."),
    EventReason("FailedCreate", "Warning", "A workload could not create a pod or a job."),
    EventReason("ScalingReplicaSet", "Normal", "A deployment has scaled a replica set."),
    EventReason("FailedDaemonPod", "Warning", "A failed pod of a daemon set was deleted."),
    EventReason("SucceededDaemonPod", "Normal", "A finished pod of a daemon set was deleted."),
    EventReason("Completed", "Normal", "A job has completed."),
    EventReason("BackoffLimitExceeded", "Warning", "A job has failed: too many of its pods did."),
    EventReason("Suspended", "Normal", "A job was suspended."),
    EventReason("Resumed", "Normal", "A job was resumed."),
    EventReason("SawCompletedJob", "Normal", "A job of a cron job has ended."),
    EventReason("MissingJob", "Normal", "A job of a cron job was deleted by someone else."),
    EventReason("JobAlreadyActive", "Normal", "A cron job does not start another job: one is running."),
    EventReason("MissSchedule", "Warning", "A cron job could not start its job before startingDeadlineSeconds."),
    EventReason("TooManyMissedTimes", "Warning", "A cron job has missed more than 100 start times."),
    EventReason("UnparseableSchedule", "Warning", "The schedule of a cron job cannot be read."),
    EventReason("UnknownTimeZone", "Warning", "The time zone of a cron job does not exist."),
    EventReason("ReplicaSetCreateError", "Warning", "A deployment could not create a replica set."),
    EventReason("WaitForFirstConsumer", "Normal", "A claim is bound when a pod that uses it is scheduled."),
    EventReason("FailedBinding", "Normal", "No volume matches a claim, and no storage class provisions one."),
    EventReason("ProvisioningFailed", "Warning", "The storage class of a claim does not exist."),
    EventReason("ExternalProvisioning", "Normal", "A claim waits for a provisioner outside of Plimsoll."),
    EventReason("ClaimLost", "Warning", "The volume of a claim is gone."),
    EventReason("ClaimMisbound", "Warning", "A claim and its volume name each other differently."),
    EventReason("VolumeFailedDelete", "Warning", "A released volume could not be deleted."),
    EventReason("VolumeFailedRecycle", "Warning", "A released volume could not be recycled."),
)

# What the events are about, and who records them.
EVENTS: dict[str, tuple[EventReason, ...]] = {
    "The life of a pod, by the node agent": _POD_LIFE,
    "Pods that the node refuses": _ADMISSION,
    "Resizes, by the node agent": _RESIZE,
    "Pressure, limits and OOM kills of a pod, by the node agent": _PRESSURE,
    "The node": _NODE,
    "Pods, by the scheduler": _SCHEDULER,
    "Workloads and volumes, by the controllers": _CONTROLLERS,
}
