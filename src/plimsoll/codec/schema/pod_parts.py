"""core/v1: placement, DNS, security of a pod."""

TABLE = """
core.LocalObjectReference v1.LocalObjectReference atomic | An object in the same namespace.
  name 1 string | Its name.
core.PodSecurityContext v1.PodSecurityContext | Security settings of a pod.
  seLinuxOptions 1 core.SELinuxOptions | SELinux context of all containers.
  windowsOptions 8 core.WindowsSecurityContextOptions | Settings for Windows.
  runAsUser 2 int64* | User id of the processes.
  runAsGroup 6 int64* | Group id of the processes.
  runAsNonRoot 3 bool* | Refuse to run as user 0.
  supplementalGroups 4 []int64 | Further group ids.
  supplementalGroupsPolicy 12 string/v1.SupplementalGroupsPolicy* | Merge or Strict.
  fsGroup 5 int64* | Group that owns the volumes.
  sysctls 7 []core.Sysctl | Kernel parameters of the pod's namespaces.
  fsGroupChangePolicy 9 string/v1.PodFSGroupChangePolicy* | When volumes get that group: OnRootMismatch or Always.
  seccompProfile 10 core.SeccompProfile | Filter of system calls.
  appArmorProfile 11 core.AppArmorProfile | AppArmor profile.
  seLinuxChangePolicy 13 string/v1.PodSELinuxChangePolicy* | How volumes get their label: Recursive or MountOption.
core.SELinuxOptions v1.SELinuxOptions | An SELinux context.
  user 1 string | User part.
  role 2 string | Role part.
  type 3 string | Type part.
  level 4 string | Level part.
core.WindowsSecurityContextOptions v1.WindowsSecurityContextOptions | Security settings on Windows.
  gmsaCredentialSpecName 1 string* | Name of the GMSA credential spec.
  gmsaCredentialSpec 2 string* | The GMSA credential spec itself.
  runAsUserName 3 string* | User name.
  hostProcess 4 bool* | Run as a host process.
core.SeccompProfile v1.SeccompProfile | A filter of system calls.
  type 1 string/v1.SeccompProfileType! required | RuntimeDefault, Unconfined or Localhost.
  localhostProfile 2 string* | File on the node, for Localhost.
core.AppArmorProfile v1.AppArmorProfile | An AppArmor profile.
  type 1 string/v1.AppArmorProfileType! required | RuntimeDefault, Unconfined or Localhost.
  localhostProfile 2 string* | Profile loaded on the node, for Localhost.
core.Sysctl v1.Sysctl | A kernel parameter.
  name 1 string! required | Its name.
  value 2 string! required | Its value.
core.Affinity v1.Affinity | Which nodes and neighbours are wanted.
  nodeAffinity 1 core.NodeAffinity | Nodes.
  podAffinity 2 core.PodAffinity | Pods to be near to.
  podAntiAffinity 3 core.PodAntiAffinity | Pods to be away from.
core.NodeAffinity v1.NodeAffinity | Which nodes are wanted.
  requiredDuringSchedulingIgnoredDuringExecution 1 core.NodeSelector | The node must match.
  preferredDuringSchedulingIgnoredDuringExecution 2 []core.PreferredSchedulingTerm | The node had better match.
core.NodeSelector v1.NodeSelector atomic | Selects nodes; one term must hold.
  nodeSelectorTerms 1 []core.NodeSelectorTerm! required | The terms.
core.NodeSelectorTerm v1.NodeSelectorTerm atomic | Requirements that must all hold; an empty term matches nothing.
  matchExpressions 1 []core.NodeSelectorRequirement | On labels.
  matchFields 2 []core.NodeSelectorRequirement | On fields; metadata.name only.
core.NodeSelectorRequirement v1.NodeSelectorRequirement | One requirement on a node.
  key 1 string! required | Label or field.
  operator 2 string/v1.NodeSelectorOperator! required | In, NotIn, Exists, DoesNotExist, Gt or Lt.
  values 3 []string | Values to compare with.
core.PreferredSchedulingTerm v1.PreferredSchedulingTerm | A preference with a weight.
  weight 1 int32! required | 1 to 100.
  preference 2 core.NodeSelectorTerm! required | What is preferred.
core.PodAffinity v1.PodAffinity | Pods to be near to.
  requiredDuringSchedulingIgnoredDuringExecution 1 []core.PodAffinityTerm | Must hold.
  preferredDuringSchedulingIgnoredDuringExecution 2 []core.WeightedPodAffinityTerm | Had better hold.
core.PodAntiAffinity v1.PodAntiAffinity | Pods to be away from.
  requiredDuringSchedulingIgnoredDuringExecution 1 []core.PodAffinityTerm | Must hold.
  preferredDuringSchedulingIgnoredDuringExecution 2 []core.WeightedPodAffinityTerm | Had better hold.
core.PodAffinityTerm v1.PodAffinityTerm | Other pods and the topology in which they are selected.
  labelSelector 1 meta.LabelSelector | The pods.
  namespaces 2 []string | Their namespaces; none means the pod's own.
  topologyKey 3 string! required | The node label whose value is the area.
  namespaceSelector 4 meta.LabelSelector | Their namespaces by label.
  matchLabelKeys 5 []string | Labels of this pod that the others must share.
  mismatchLabelKeys 6 []string | Labels of this pod that the others must not share.
core.WeightedPodAffinityTerm v1.WeightedPodAffinityTerm | A term with a weight.
  weight 1 int32! required | 1 to 100.
  podAffinityTerm 2 core.PodAffinityTerm! required | The term.
core.Toleration v1.Toleration | A taint that is accepted.
  key 1 string | Key of the taint; empty with Exists means all.
  operator 2 string/v1.TolerationOperator | Exists or Equal. Default Equal.
  value 3 string | Value of the taint.
  effect 4 string/v1.TaintEffect | NoSchedule, PreferNoSchedule or NoExecute; empty means all.
  tolerationSeconds 5 int64* | For NoExecute: how long the pod stays.
core.HostAlias v1.HostAlias | A line of the hosts file.
  ip 1 string! required | The address.
  hostnames 2 []string | Its names.
core.PodDNSConfig v1.PodDNSConfig | DNS settings of a pod.
  nameservers 1 []string | Name servers.
  searches 2 []string | Search domains.
  options 3 []core.PodDNSConfigOption | Resolver options.
core.PodDNSConfigOption v1.PodDNSConfigOption | A resolver option.
  name 1 string | Its name.
  value 2 string* | Its value.
core.PodReadinessGate v1.PodReadinessGate | A condition that counts for readiness.
  conditionType 1 string/v1.PodConditionType! required | Type of the condition.
core.TopologySpreadConstraint v1.TopologySpreadConstraint | How pods are spread over areas.
  maxSkew 1 int32! required | Largest difference between two areas.
  topologyKey 2 string! required | The node label whose value is the area.
  whenUnsatisfiable 3 string/v1.UnsatisfiableConstraintAction! required | DoNotSchedule or ScheduleAnyway.
  labelSelector 4 meta.LabelSelector | The pods that count.
  minDomains 5 int32* | How many areas there must be.
  nodeAffinityPolicy 6 string/v1.NodeInclusionPolicy* | Whether node affinity counts: Honor or Ignore.
  nodeTaintsPolicy 7 string/v1.NodeInclusionPolicy* | Whether taints count: Honor or Ignore.
  matchLabelKeys 8 []string | Labels of this pod that the others must share.
core.PodOS v1.PodOS | Operating system.
  name 1 string/v1.OSName! required | linux or windows.
core.PodSchedulingGate v1.PodSchedulingGate | Holds a pod back from scheduling.
  name 1 string! required | Name of the gate.
core.PodResourceClaim v1.PodResourceClaim | A claim for devices.
  name 1 string! required | Name inside the pod.
  resourceClaimName 3 string* | An existing claim.
  resourceClaimTemplateName 4 string* | Or the template to make one from.
"""
