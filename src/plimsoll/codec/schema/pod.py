"""core/v1: the pod, its spec and its status."""

# ruff: noqa: E501 (one line per field)

TABLE = """
core.Pod v1.Pod | Containers that run together on one node.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.PodSpec! | How the pod is wanted.
  status 3 core.PodStatus! | How the pod is, as last reported; written by the node.
core.PodTemplateSpec v1.PodTemplateSpec | The pods that a workload makes.
  metadata 1 meta.ObjectMeta! | Labels and annotations of the pods.
  spec 2 core.PodSpec! | Spec of the pods.
core.PodSpec v1.PodSpec | How a pod is wanted.
  volumes 1 []core.Volume merge=name,retainKeys map=name | Volumes that containers may mount.
  initContainers 20 []core.Container merge=name map=name | Containers that run first, one by one; restartPolicy Always makes sidecars.
  containers 2 []core.Container! merge=name map=name required | The containers; at least one.
  ephemeralContainers 34 []core.EphemeralContainer merge=name map=name | Containers added to a running pod for debugging.
  restartPolicy 3 string/v1.RestartPolicy | Always, OnFailure or Never. Default Always.
  terminationGracePeriodSeconds 4 int64* | Seconds between the request to end and the kill. Default 30.
  activeDeadlineSeconds 5 int64* | Seconds after its start when the pod is ended as failed.
  dnsPolicy 6 string/v1.DNSPolicy | ClusterFirst, ClusterFirstWithHostNet, Default or None.
  nodeSelector 7 {string} atomic | Labels a node must have for this pod.
  serviceAccountName 8 string | The service account the pod runs as.
  serviceAccount 9 string | Old name of serviceAccountName.
  automountServiceAccountToken 21 bool* | Whether the account's token is mounted.
  nodeName 10 string | The node that runs the pod; set by the scheduler.
  hostNetwork 11 bool | Use the node's network.
  hostPID 12 bool | Use the node's process namespace.
  hostIPC 13 bool | Use the node's IPC namespace.
  shareProcessNamespace 27 bool* | One process namespace for all containers.
  securityContext 14 core.PodSecurityContext | Security settings for the pod and as defaults for its containers.
  imagePullSecrets 15 []core.LocalObjectReference merge=name map=name | Secrets to pull images with.
  hostname 16 string | Host name inside the pod.
  subdomain 17 string | Subdomain of the pod's full host name.
  affinity 18 core.Affinity | Which nodes and neighbours are wanted.
  schedulerName 19 string | The scheduler that is to place the pod.
  tolerations 22 []core.Toleration | Taints the pod accepts.
  hostAliases 23 []core.HostAlias merge=ip map=ip | Lines for the pod's hosts file.
  priorityClassName 24 string | Name of the priority class; system-node-critical is the highest.
  priority 25 int32* | Priority as a number; filled in from the class.
  dnsConfig 26 core.PodDNSConfig | DNS settings on top of dnsPolicy.
  readinessGates 28 []core.PodReadinessGate | Conditions that must be True, too, for the pod to be ready.
  runtimeClassName 29 string* | RuntimeClass that selects the container runtime's handler.
  enableServiceLinks 30 bool* | Whether services appear as environment variables. Default true.
  preemptionPolicy 31 string/v1.PreemptionPolicy* | PreemptLowerPriority or Never.
  overhead 32 {Quantity}/v1.ResourceList | What the sandbox itself needs, on top of the containers.
  topologySpreadConstraints 33 []core.TopologySpreadConstraint merge=topologyKey map=topologyKey,whenUnsatisfiable | How pods are to be spread.
  setHostnameAsFQDN 35 bool* | Use the full name as the kernel's host name.
  os 36 core.PodOS | Operating system of the containers.
  hostUsers 37 bool* | Whether the pod shares the node's user namespace. Default true.
  schedulingGates 38 []core.PodSchedulingGate merge=name map=name | The pod waits until each is removed.
  resourceClaims 39 []core.PodResourceClaim merge=name,retainKeys map=name | Devices to be allocated before the start.
  resources 40 core.ResourceRequirements | Requests and limits of the pod as a whole: cpu, memory and hugepages.
  hostnameOverride 41 string* | The exact host name inside the pod.
  schedulingGroup 43 core.PodSchedulingGroup | The group of pods to be scheduled together with this one.
core.PodSchedulingGroup v1.PodSchedulingGroup | A reference to a group of pods.
  podGroupName 1 string* | Name of the group.
core.PodStatus v1.PodStatus | How a pod is.
  observedGeneration 17 int64 | Generation of the spec that the node has acted on.
  phase 1 string/v1.PodPhase | Pending, Running, Succeeded, Failed or Unknown.
  conditions 2 []core.PodCondition merge=type map=type | The pod's conditions.
  message 3 string | A sentence about why the pod is in this state.
  reason 4 string | One word for it, such as Evicted.
  nominatedNodeName 11 string | Node on which room is being made for the pod.
  hostIP 5 string | Address of the node.
  hostIPs 16 []core.HostIP merge=ip | All addresses of the node.
  podIP 6 string | Address of the pod.
  podIPs 12 []core.PodIP merge=ip map=ip | All addresses of the pod; the first is podIP.
  startTime 7 Time* | When the node accepted the pod.
  initContainerStatuses 10 []core.ContainerStatus | State of the init containers.
  containerStatuses 8 []core.ContainerStatus | State of the containers.
  qosClass 9 string/v1.PodQOSClass | Guaranteed, Burstable or BestEffort; set at creation and immutable.
  ephemeralContainerStatuses 13 []core.ContainerStatus | State of the ephemeral containers.
  resize 14 string/v1.PodResizeStatus | State of a pending resize: Proposed, InProgress, Deferred or Infeasible.
  resourceClaimStatuses 15 []core.PodResourceClaimStatus merge=name,retainKeys map=name | State of the resource claims.
  extendedResourceClaimStatus 18 core.PodExtendedResourceClaimStatus | The claim that backs extended resources.
  allocatedResources 19 {Quantity}/v1.ResourceList | What the node has set aside for the pod.
  resources 20 core.ResourceRequirements | Requests and limits that are in force for the pod.
core.PodExtendedResourceClaimStatus v1.PodExtendedResourceClaimStatus | A claim made for extended resources.
  requestMappings 1 []core.ContainerExtendedResourceRequest! required | Whose request is which of the claim's.
  resourceClaimName 2 string! required | Name of the claim.
core.ContainerExtendedResourceRequest v1.ContainerExtendedResourceRequest | A container's request and the claim's.
  containerName 1 string! required | Name of the container.
  resourceName 2 string! required | Name of the extended resource.
  requestName 3 string! required | Name of the request in the claim.
core.PodCondition v1.PodCondition | One aspect of a pod's state.
  type 1 string/v1.PodConditionType! required | Name, such as Ready, PodScheduled or PodResizePending.
  observedGeneration 7 int64 | Generation the condition was judged on.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastProbeTime 3 Time! | When it was last checked.
  lastTransitionTime 4 Time! | When the status last changed.
  reason 5 string | One word for the last change.
  message 6 string | The same in a sentence.
core.HostIP v1.HostIP | An address of the node.
  ip 1 string! required | The address.
core.PodIP v1.PodIP | An address of the pod.
  ip 1 string! required | The address.
core.ContainerStatus v1.ContainerStatus | State of one container.
  name 1 string! required | Name of the container.
  state 2 core.ContainerState! | Its state now.
  lastState 3 core.ContainerState! | How its last run ended.
  ready 4 bool! required | Whether it is ready.
  restartCount 5 int32! required | How often it was restarted.
  image 6 string! required | The image it runs.
  imageID 7 string! required | Identity of that image.
  containerID 8 string | Identity of the container, `type://id`.
  started 9 bool* | Whether it has started and its startup probe has passed.
  allocatedResources 10 {Quantity}/v1.ResourceList | Requests the node has admitted for it.
  resources 11 core.ResourceRequirements | Requests and limits that are in force.
  volumeMounts 12 []core.VolumeMountStatus merge=mountPath map=mountPath | State of its mounts.
  user 13 core.ContainerUser | The user its first process started as.
  allocatedResourcesStatus 14 []core.ResourceStatus merge=name map=name | Health of its devices.
  stopSignal 15 string/v1.Signal* | The signal that asks it to end.
core.ContainerState v1.ContainerState | Exactly one of these; none means waiting.
  waiting 1 core.ContainerStateWaiting | It waits to start.
  running 2 core.ContainerStateRunning | It runs.
  terminated 3 core.ContainerStateTerminated | It has ended.
core.ContainerStateWaiting v1.ContainerStateWaiting | A container that does not run yet.
  reason 1 string | One word for why.
  message 2 string | The same in a sentence.
core.ContainerStateRunning v1.ContainerStateRunning | A container that runs.
  startedAt 1 Time! | Since when.
core.ContainerStateTerminated v1.ContainerStateTerminated | A container that has ended.
  exitCode 1 int32! required | Exit code; 137 is a kill.
  signal 2 int32 | The signal that ended it.
  reason 3 string | One word, such as OOMKilled.
  message 4 string | The container's termination message.
  startedAt 5 Time! | When it started.
  finishedAt 6 Time! | When it ended.
  containerID 7 string | Identity of the container.
core.VolumeMountStatus v1.VolumeMountStatus | State of a mount.
  name 1 string! required | Name of the volume.
  mountPath 2 string! required | Where it is mounted.
  readOnly 3 bool | Whether it is read-only.
  recursiveReadOnly 4 string/v1.RecursiveReadOnlyMode* | Whether the mounts below it are.
  volumeStatus 5 core.VolumeStatus | More about the volume.
core.VolumeStatus v1.VolumeStatus | State of a volume.
  image 1 core.ImageVolumeStatus | For an image volume.
core.ImageVolumeStatus v1.ImageVolumeStatus | State of an image volume.
  imageRef 1 string! required | Digest of the image.
core.ContainerUser v1.ContainerUser | The user of a container's first process.
  linux 1 core.LinuxContainerUser | On Linux.
core.LinuxContainerUser v1.LinuxContainerUser | User and groups on Linux.
  uid 1 int64! required | User id.
  gid 2 int64! required | Group id.
  supplementalGroups 3 []int64 | Further group ids.
core.ResourceStatus v1.ResourceStatus | Health of one resource's devices.
  name 1 string/v1.ResourceName! required | Name of the resource.
  resources 2 []core.ResourceHealth map=resourceID | Its devices.
core.ResourceHealth v1.ResourceHealth | Health of a device.
  resourceID 1 string/v1.ResourceID! required | Identity of the device.
  health 2 string/v1.ResourceHealthStatus | Healthy, Unhealthy or Unknown.
  message 6 string* | More about it.
core.PodResourceClaimStatus v1.PodResourceClaimStatus | State of a resource claim of the pod.
  name 1 string! required | The entry of spec.resourceClaims.
  resourceClaimName 2 string* | The claim made for it.
"""
