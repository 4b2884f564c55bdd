"""core/v1 beside pods (nodes, namespaces, events, quotas …), events.k8s.io, leases, priority and runtime classes."""

TABLE = """
core.Node v1.Node | A machine of the cluster.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.NodeSpec! | How the node is to be used.
  status 3 core.NodeStatus! | How the node is, as it reports itself.
core.NodeSpec v1.NodeSpec | How a node is to be used.
  podCIDR 1 string | Addresses for its pods.
  podCIDRs 7 []string merge set | The same, one per address family.
  providerID 3 string | Identity at the cloud provider.
  unschedulable 4 bool | Whether new pods stay away (cordon).
  taints 5 []core.Taint | Marks that keep away pods without a toleration.
  configSource 6 core.NodeConfigSource | No longer supported.
  externalID 2 string | No longer used.
  podPreemptionPolicy 8 core.NodePodPreemptionPolicy | When pods of the node may be preempted.
core.NodePodPreemptionPolicy v1.NodePodPreemptionPolicy | When pods of a node may be preempted.
  disableResizePreemption 1 []string set | Who does not want pods to be preempted for resizes; any entry disables it.
core.Taint v1.Taint | Keeps pods without a toleration off the node.
  key 1 string! required | Key.
  value 2 string | Value.
  effect 3 string/v1.TaintEffect! required | NoSchedule, PreferNoSchedule or NoExecute.
  timeAdded 4 Time* | When it was added.
core.NodeConfigSource v1.NodeConfigSource | No longer supported.
  configMap 2 core.ConfigMapNodeConfigSource | A config map.
core.ConfigMapNodeConfigSource v1.ConfigMapNodeConfigSource | No longer supported.
  namespace 1 string! required | Namespace of the config map.
  name 2 string! required | Name of the config map.
  uid 3 string/types.UID | Identity of the config map.
  resourceVersion 4 string | Version of the config map.
  kubeletConfigKey 5 string! required | Key in the config map.
core.NodeStatus v1.NodeStatus | How a node is.
  capacity 1 {Quantity}/v1.ResourceList | All resources of the machine.
  allocatable 2 {Quantity}/v1.ResourceList | What pods may use of them.
  phase 3 string/v1.NodePhase | No longer used.
  conditions 4 []core.NodeCondition merge=type map=type | The node's conditions.
  addresses 5 []core.NodeAddress merge=type map=type | Its addresses.
  daemonEndpoints 6 core.NodeDaemonEndpoints! | Ports of its daemons.
  nodeInfo 7 core.NodeSystemInfo! | Versions and identities.
  images 8 []core.ContainerImage | Images it holds.
  volumesInUse 9 []string/v1.UniqueVolumeName | Volumes in use.
  volumesAttached 10 []core.AttachedVolume | Volumes attached.
  config 11 core.NodeConfigStatus | No longer used.
  runtimeHandlers 12 []core.NodeRuntimeHandler | Handlers of its container runtime.
  features 13 core.NodeFeatures | Features of its container runtime.
  declaredFeatures 14 []string | Kubernetes features that pods may rely on.
core.NodeCondition v1.NodeCondition | One aspect of a node's state.
  type 1 string/v1.NodeConditionType! required | Name, such as Ready or MemoryPressure.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastHeartbeatTime 3 Time! | When it was last reported.
  lastTransitionTime 4 Time! | When the status last changed.
  reason 5 string | One word for the last change.
  message 6 string | The same in a sentence.
core.NodeAddress v1.NodeAddress | An address of a node.
  type 1 string/v1.NodeAddressType! required | InternalIP, ExternalIP or Hostname.
  address 2 string! required | The address.
core.NodeDaemonEndpoints v1.NodeDaemonEndpoints | Ports of a node's daemons.
  kubeletEndpoint 1 core.DaemonEndpoint! | The node agent's.
core.DaemonEndpoint v1.DaemonEndpoint | A port.
  Port 1 int32! required | Its number.
core.NodeSystemInfo v1.NodeSystemInfo | Versions and identities of a node.
  machineID 1 string! required | Identity of the machine.
  systemUUID 2 string! required | Identity of the hardware.
  bootID 3 string! required | Identity of this boot.
  kernelVersion 4 string! required | Version of the kernel.
  osImage 5 string! required | Name of the operating system.
  containerRuntimeVersion 6 string! required | Name and version of the container runtime.
  kubeletVersion 7 string! required | Version of the node agent.
  kubeProxyVersion 8 string! required | No longer used.
  operatingSystem 9 string! required | linux or windows.
  architecture 10 string! required | Such as amd64.
  swap 11 core.NodeSwapStatus | Its swap.
  runningInUserNamespace 12 bool* | Whether the node agent runs in a user namespace.
core.NodeSwapStatus v1.NodeSwapStatus | Swap of a node.
  capacity 1 int64* | In bytes.
core.ContainerImage v1.ContainerImage | An image on a node.
  names 1 []string! | Its names.
  sizeBytes 2 int64 | Its size.
core.AttachedVolume v1.AttachedVolume | A volume attached to a node.
  name 1 string/v1.UniqueVolumeName! required | Its name.
  devicePath 2 string! required | Its device.
core.NodeConfigStatus v1.NodeConfigStatus | No longer used.
  assigned 1 core.NodeConfigSource | No longer used.
  active 2 core.NodeConfigSource | No longer used.
  lastKnownGood 3 core.NodeConfigSource | No longer used.
  error 4 string | No longer used.
core.NodeRuntimeHandler v1.NodeRuntimeHandler | A handler of the container runtime.
  name 1 string! | Its name; empty is the default one.
  features 2 core.NodeRuntimeHandlerFeatures | What it can do.
core.NodeRuntimeHandlerFeatures v1.NodeRuntimeHandlerFeatures | What a handler can do.
  recursiveReadOnlyMounts 1 bool* | Recursive read-only mounts.
  userNamespaces 2 bool* | User namespaces.
core.NodeFeatures v1.NodeFeatures | What the container runtime can do.
  supplementalGroupsPolicy 1 bool* | The policy on supplemental groups.
core.Namespace v1.Namespace | A room for names.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.NamespaceSpec! | How the namespace is wanted.
  status 3 core.NamespaceStatus! | How it is.
core.NamespaceSpec v1.NamespaceSpec | How a namespace is wanted.
  finalizers 1 []string/v1.FinalizerName | The namespace stays until this list is empty.
core.NamespaceStatus v1.NamespaceStatus | How a namespace is.
  phase 1 string/v1.NamespacePhase | Active or Terminating.
  conditions 2 []core.NamespaceCondition merge=type map=type | Its conditions.
core.NamespaceCondition v1.NamespaceCondition | One aspect of a namespace's state.
  type 1 string/v1.NamespaceConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 4 Time! | When the status last changed.
  reason 5 string | One word for the last change.
  message 6 string | The same in a sentence.
core.ObjectReference v1.ObjectReference atomic | Any object, or a part of it.
  kind 1 string | Its kind.
  namespace 2 string | Its namespace.
  name 3 string | Its name.
  uid 4 string/types.UID | Its identity.
  apiVersion 5 string | Its API version.
  resourceVersion 6 string | Its version.
  fieldPath 7 string | The part, such as spec.containers{web}.
core.Binding v1.Binding | Ties a pod to a node.
  metadata 1 meta.ObjectMeta! | Name of the pod.
  target 2 core.ObjectReference! required | The node.
core.Event v1.Event | Something that happened to an object.
  metadata 1 meta.ObjectMeta! required | Name and namespace of the event.
  involvedObject 2 core.ObjectReference! required | The object.
  reason 3 string | One word for what happened.
  message 4 string | The same in a sentence.
  source 5 core.EventSource! | Who says so.
  firstTimestamp 6 Time! | When it first happened.
  lastTimestamp 7 Time! | When it last happened.
  count 8 int32 | How often it happened.
  type 9 string | Normal or Warning.
  eventTime 10 MicroTime! | When this event was first seen.
  series 11 core.EventSeries | The series it belongs to.
  action 12 string | What was done or failed.
  related 13 core.ObjectReference | A second object.
  reportingComponent 14 string! | The controller that reports, such as kubelet.
  reportingInstance 15 string! | Which one of them.
core.EventSource v1.EventSource | Who reports an event.
  component 1 string | The component.
  host 2 string | The node it runs on.
core.EventSeries v1.EventSeries | Repetitions of an event.
  count 1 int32 | How many so far.
  lastObservedTime 2 MicroTime! | When the last one was.
events.Event v1.Event | Something that happened to an object.
  metadata 1 meta.ObjectMeta! | Name and namespace of the event.
  eventTime 2 MicroTime! required | When it was first seen.
  series 3 events.EventSeries | The series it belongs to.
  reportingController 4 string | The controller that reports.
  reportingInstance 5 string | Which one of them.
  action 6 string | What was done or failed.
  reason 7 string | One word for why.
  regarding 8 core.ObjectReference! | The object.
  related 9 core.ObjectReference | A second object.
  note 10 string | What happened, in a sentence.
  type 11 string | Normal or Warning.
  deprecatedSource 12 core.EventSource! | source of core/v1.
  deprecatedFirstTimestamp 13 Time! | firstTimestamp of core/v1.
  deprecatedLastTimestamp 14 Time! | lastTimestamp of core/v1.
  deprecatedCount 15 int32 | count of core/v1.
events.EventSeries v1.EventSeries | Repetitions of an event.
  count 1 int32! required | How many so far.
  lastObservedTime 2 MicroTime! required | When the last one was.
core.ConfigMap v1.ConfigMap | Settings for pods.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  immutable 4 bool* | Whether the data may never change again.
  data 2 {string} | Texts.
  binaryData 3 {bytes} | Bytes, in base64.
core.ServiceAccount v1.ServiceAccount | An identity for pods.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  secrets 2 []core.ObjectReference merge=name map=name | Secrets its pods may use.
  imagePullSecrets 3 []core.LocalObjectReference | Secrets its pods pull images with.
  automountServiceAccountToken 4 bool* | Whether its token is mounted into pods.
core.LimitRange v1.LimitRange | Limits and defaults for the pods of a namespace.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.LimitRangeSpec! | The limits.
core.LimitRangeSpec v1.LimitRangeSpec | Limits.
  limits 1 []core.LimitRangeItem! required | One entry per kind of thing.
core.LimitRangeItem v1.LimitRangeItem | Limits for one kind of thing.
  type 1 string/v1.LimitType! required | Pod, Container or PersistentVolumeClaim.
  max 2 {Quantity}/v1.ResourceList | The most.
  min 3 {Quantity}/v1.ResourceList | The least.
  default 4 {Quantity}/v1.ResourceList | Limit for containers without one.
  defaultRequest 5 {Quantity}/v1.ResourceList | Request for containers without one.
  maxLimitRequestRatio 6 {Quantity}/v1.ResourceList | The most that limit divided by request may be.
core.ResourceQuota v1.ResourceQuota | How much a namespace may use.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.ResourceQuotaSpec! | What is allowed.
  status 3 core.ResourceQuotaStatus! | What is used.
core.ResourceQuotaSpec v1.ResourceQuotaSpec | What is allowed.
  hard 1 {Quantity}/v1.ResourceList | The most of each resource.
  scopes 2 []string/v1.ResourceQuotaScope | Only pods in all of these scopes count.
  scopeSelector 3 core.ScopeSelector | The same with values.
core.ScopeSelector v1.ScopeSelector atomic | Selects pods by scope.
  matchExpressions 1 []core.ScopedResourceSelectorRequirement | The requirements.
core.ScopedResourceSelectorRequirement v1.ScopedResourceSelectorRequirement | One requirement on a scope.
  scopeName 1 string/v1.ResourceQuotaScope! required | The scope.
  operator 2 string/v1.ScopeSelectorOperator! required | In, NotIn, Exists or DoesNotExist.
  values 3 []string | Values for In and NotIn.
core.ResourceQuotaStatus v1.ResourceQuotaStatus | What is used.
  hard 1 {Quantity}/v1.ResourceList | The quota in force.
  used 2 {Quantity}/v1.ResourceList | What is used of it.
scheduling.PriorityClass v1.PriorityClass | A name for a priority.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  value 2 int32! required | The priority; the higher, the more important.
  globalDefault 3 bool | Whether pods without a class get this one.
  description 4 string | What it is for.
  preemptionPolicy 5 string/v1.PreemptionPolicy* | PreemptLowerPriority or Never.
node.RuntimeClass v1.RuntimeClass | A name for a handler of the container runtime.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  handler 2 string! required | The handler, as the configuration of the runtime names it. Immutable.
  overhead 3 node.Overhead | What a sandbox needs, on top of the containers.
  scheduling 4 node.Scheduling | Which nodes have the handler.
node.Overhead v1.Overhead | What a sandbox needs.
  podFixed 1 {Quantity}/v1.ResourceList | The same for every pod.
node.Scheduling v1.Scheduling | Which nodes have a handler.
  nodeSelector 1 {string} atomic | Labels that these nodes have; added to the selector of the pod.
  tolerations 2 []core.Toleration | Added to the tolerations of the pod.
coordination.Lease v1.Lease | A sign of life.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 coordination.LeaseSpec! | The lease.
coordination.LeaseSpec v1.LeaseSpec | A lease.
  holderIdentity 1 string* | Who holds it.
  leaseDurationSeconds 2 int32* | How long it is good for.
  acquireTime 3 MicroTime* | Since when.
  renewTime 4 MicroTime* | When it was last renewed.
  leaseTransitions 5 int32* | How often the holder changed.
  strategy 6 string/v1.CoordinatedLeaseStrategy* | How the holder is elected.
  preferredHolder 7 string* | Who is to hold it next.
"""
